"""The window driver: clock, windower, buffered values and window logics of one key.

For each value, in order of arrival, the clock returns its timestamp and advances the watermark. The
value is late, or is buffered until the watermark passes it (`ordered`), or enters its windows at
once. Then the windows that the watermark has passed close. A value is processed completely before
the next value, and buffered values enter one by one, as if the watermark passed each of them
separately. So results do not depend on the boundaries of epochs.

The configuration of a windowing step is the same for a driver and for columns.
"""

from __future__ import annotations

import bisect
import pickle
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, TypeAlias

from typing_extensions import override

from flow.errors import RAISED, shorten
from flow.instants import NEVER, Moment, datetime_us, from_us
from flow.keyed.logic import FailedCall, Keep, RejectedValue, detach_items
from flow.keyed.shard_logic import BlockHolder
from flow_windowing.by_key.clocked_driver import ClockedDriver
from flow_windowing.clocks.clock import Clock, check_clock
from flow_windowing.clocks.event_clock import EventLogic
from flow_windowing.rules.key_state import DriverState, RetainedValue, Waiting, WaitQueue
from flow_windowing.rules.leaves import FEW_WINDOWS, Leaves, StoredWindow
from flow_windowing.rules.metadata import CLOSED, DOWN, LateReason, Retracted, WindowMetadata
from flow_windowing.rules.triggers import (
    AfterWatermark,
    Emission,
    Timestamp,
    owes_updates,
    timestamp_of,
)
from flow_windowing.rules.watermark import is_behind
from flow_windowing.rules.window_logic import Arrival, Calling, EpochWindowLogic, WindowLogic
from flow_windowing.windowers.session_windower import SessionLogic
from flow_windowing.windowers.windower import (
    AssignedWindows,
    FilledWindow,
    Windower,
    check_windower,
)

WindowBuilder: TypeAlias = Callable[[Any], WindowLogic[Any, Any, Any]]
"""A function that returns the logic of a window from a snapshot, ``None`` for a new window."""


@dataclass(frozen=True)
class WindowingConfig:
    """Configuration of a windowing step.

    Attributes:
        clock: the clock.
        windower: the windower.
        builder: returns the logic of a window.
        ordered: True if values enter windows in timestamp order.
        sides: number of streams that the step reads; with more than one, values are
            ``(side, value)``.
        emit: the time at which windows emit; see `flow_windowing.rules.triggers`.
        timestamp: the timestamp that metadata carries; ``None`` for none.

    Raises:
        FlowTypeError: when `clock` is not a `Clock`, or `windower` is not a `Windower`.
    """

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"ordered", "emit", "timestamp"})

    clock: Clock[Any, Any]
    windower: Windower[Any]
    builder: WindowBuilder
    ordered: bool = True
    sides: int = 1
    emit: Emission = "close"
    timestamp: Timestamp | None = None

    def __post_init__(self) -> None:
        check_clock(self.clock)
        check_windower(self.windower)

    @property
    def result_timestamp(self) -> Timestamp:
        """The timestamp of a result for a step that reads it; that of windows without one."""
        return self.timestamp or "open"

    @cached_property
    def reach_us(self) -> int:
        """The greatest time before a value at which the result of its window may lie, in µs."""
        return self.windower.reach_us(self.result_timestamp)

    @cached_property
    def retracts(self) -> bool:
        """True if an emitted result may have to be retracted."""
        if isinstance(self.emit, AfterWatermark) and not self.emit.accumulate:
            return False  # Panes without common values stay valid as windows merge.
        return self.emit != "close" and self.windower.merges


_NEW_KEY = DriverState(None, None, None, 0, 0, {}, (), {}, {})


class WindowDriver(ClockedDriver[DriverState], BlockHolder):
    """The logic of one key of a windowing step; emits ``(port, value)``.

    Invariants: `_retained` is sorted by timestamp, then entry number. `_emitted` has the last
    emission of each open window that may have to be retracted, pickled if it comes from a leaf.
    """

    def __init__(self, config: WindowingConfig, snapshot: DriverState | None) -> None:
        state = snapshot or _NEW_KEY
        super().__init__(config.clock, config.sides, state.clock, state.arrived)
        self._config = config
        self._grace_us = config.windower.grace_us
        self._keep_us = config.windower.keep_us
        self._windower = config.windower.build(state.windower)
        self._buffer = WaitQueue(state.waiting)
        self._entered = state.entered
        self._windows = {
            window_id: config.builder(window) for window_id, window in state.windows.items()
        }
        self._retained = list(state.retained)
        self._latest = dict(state.latest)
        self._emitted: dict[int, tuple[WindowMetadata, Any] | bytes] = {
            window_id: emission or self._current_emission(window_id)
            for window_id, emission in state.emissions.items()
        }
        self._changed: dict[int, None] = {}
        self._leaves = Leaves(state.leaves) if state.leaves else None

    def _take_due(self, watermark_us: int = -NEVER, now_us: int = -NEVER) -> None:
        """Take the windows that are due at a watermark or a system time from their leaves."""
        if self._leaves is not None and self.blocks is not None:
            for stored in self._leaves.take_due(self.blocks.take, watermark_us, now_us):
                self._restore(stored)

    def _restore(self, stored: StoredWindow) -> None:
        """Restore the window of a session that was in a leaf."""
        session, window, emission, latest_us = stored
        if type(self._windower) is SessionLogic:
            self._windower.add(session)
        self._windows[session[0]] = self._config.builder(window)
        if emission is not None:
            self._emitted[session[0]] = emission
        if latest_us is not None:
            self._latest[session[0]] = latest_us

    @override
    def on_batch(self, values: list[Any], moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        if self._leaves is not None and self._leaves.count > FEW_WINDOWS:
            self._read_near(values)
        return super().on_batch(values, moment)

    def _read_near(self, values: list[Any]) -> None:
        """Read the leaves of an epoch's values at once, which Spark answers in half the time."""
        leaves, windower, clock = self._leaves, self._windower, self._clock
        if leaves is None or self.blocks is None or type(windower) is not SessionLogic:
            return
        if isinstance(clock, EventLogic) and not self._config.ordered:
            times_us = clock.read_ahead(map(self._plain, values))
            leaves.read_near(times_us, windower.reach_us, self.blocks.take)

    @override
    def on_changed(self, before: str, moment: Moment) -> Iterable[tuple[int, Any]]:
        self._moment = moment
        self._take_due(NEVER)  # The due times of leaves depend on the settings.
        if owes_updates(before, self._config.emit):
            for window_id in sorted(self._windows):
                self._emit_result(window_id)
        return self._take_output()

    @override
    def on_epoch_end(self, moment: Moment) -> Iterable[tuple[int, Any]]:
        self._moment = moment
        changed, self._changed = self._changed, {}
        for window_id in changed:
            self._emit_result(window_id)
        return self._take_output()

    @override
    def snapshot(self) -> DriverState:
        return DriverState(
            self._clock.snapshot(),
            self._windower.snapshot(),
            self._buffer.snapshot() if self._buffer else None,
            self._arrived,
            self._entered,
            {number: logic.snapshot() for number, logic in self._windows.items()},
            tuple(self._retained),
            dict(self._emitted),
            dict(self._latest),
            b"" if self._leaves is None else self._leaves.content,
        )

    @override
    def _enter_value(self, value: Any, timestamp_us: int, watermark_us: int, number: int) -> None:
        """Emit the value if it is late, buffer it if order needs that, or enter it at once."""
        if self._grace_us is None and is_behind(timestamp_us, watermark_us):
            self._emit_late(
                value, timestamp_us, watermark_us, self._windower.missed_by(timestamp_us)
            )
        elif self._config.ordered and timestamp_us > watermark_us:
            self._buffer.push(Waiting(timestamp_us, number, value))
        else:
            # Values of other keys may have advanced the stream's watermark. The buffered values
            # that it has passed arrived before this value, so they enter first.
            if self._leaves is not None and self._leaves.next_us <= watermark_us:
                self._take_due(watermark_us)
            self._release(watermark_us)
            self._enter(value, timestamp_us, number, watermark_us)

    @override
    def _advance(self, watermark_us: int) -> bool:
        """Enter buffered values, close windows and evict retained values that the watermark passed.

        Returns:
            True if a value entered or a window closed.
        """
        if self._leaves is not None and self._leaves.next_us <= watermark_us:
            self._take_due(watermark_us)
        has_entered, has_closed = self._release(watermark_us), self._close_passed(watermark_us)
        if self._expires_us() <= watermark_us:
            least_us = watermark_us - (self._keep_us or 0)
            del self._retained[: bisect.bisect_left(self._retained, least_us, key=_timestamp_of)]
        if not self._has_values():
            # A reset at the end of the epoch would make numbers depend on the boundaries of epochs.
            self._arrived = self._entered = 0
        return has_entered or has_closed

    def _release(self, watermark_us: int) -> bool:
        """Enter buffered values that the watermark has passed; return True if a value entered.

        Each value enters at a watermark equal to its timestamp: a buffered value was on time at its
        arrival, and is not late for windows that the watermark has passed since.
        """
        has_entered = False
        while self._buffer and self._buffer.next_us() <= watermark_us:
            has_entered = True
            timestamp_us, number, value = self._buffer.pop()
            self._enter(value, timestamp_us, number, timestamp_us)
        return has_entered

    def _enter(self, value: Any, timestamp_us: int, number: int, watermark_us: int) -> None:
        """Add a value to the windows that are open at a watermark."""
        self._close_passed(watermark_us)
        if self._leaves is not None:
            self._take_near(timestamp_us)
        opened = self._windower.open_for(timestamp_us, watermark_us)
        for original, target in self._windower.merged():
            self._merge(original, target)
        arrival = Arrival(timestamp_us, number, self._entered)
        self._entered += 1
        for filled in opened.filled:
            self._fill(filled, RetainedValue(timestamp_us, arrival, value))
        filled_ids = {filled.window_id for filled in opened.filled}
        for window_id in opened.ids:
            if window_id not in filled_ids:
                logic = self._logic_of(window_id)
                with Calling(logic, "on_value", value):
                    self._record_change(window_id, timestamp_us, logic.on_value_at(value, arrival))
                self._count_values(window_id, 1)
        self._emit_unassigned(opened, value, timestamp_us, watermark_us)
        if self._keep_us is not None:
            retained = RetainedValue(timestamp_us, arrival, value)
            bisect.insort(self._retained, retained, key=lambda one: (one[0], one.at.entered))
        self._close_passed(watermark_us)

    def _take_near(self, timestamp_us: int) -> None:
        """Take the sessions that a value joins from their leaves."""
        leaves, windower = self._leaves, self._windower
        if leaves is not None and self.blocks is not None and type(windower) is SessionLogic:
            for stored in leaves.take_near(timestamp_us, windower.reach_us, self.blocks.take):
                self._restore(stored)

    def _emit_unassigned(
        self, opened: AssignedWindows, value: Any, timestamp_us: int, watermark_us: int
    ) -> None:
        """Emit a late value if the value missed windows, or is in a gap."""
        if opened.missed:
            self._emit_late(value, timestamp_us, watermark_us, opened.missed)
        elif not opened.ids:
            self._counts[LateReason.GAP.value] += 1
            self._emit_late(value, timestamp_us, watermark_us, (), LateReason.GAP)

    def _fill(self, filled: FilledWindow, newest: RetainedValue) -> None:
        """Open a window over retained values, and over the newest value if it is in the window."""
        first = bisect.bisect_left(self._retained, filled.first_us, key=_timestamp_of)
        last = bisect.bisect_right(self._retained, filled.last_us, key=_timestamp_of)
        values = self._retained[first:last]
        if filled.first_us <= newest.timestamp_us <= filled.last_us:
            values.append(newest)
        values.sort(key=lambda retained: retained.at.entered)
        logic, latest_us = self._logic_of(filled.window_id), max(one.timestamp_us for one in values)
        with Calling(logic, "on_fill"):
            output = logic.on_fill([(retained.value, retained.at) for retained in values])
            self._record_change(filled.window_id, latest_us, output)
        self._count_values(filled.window_id, len(values))

    def _logic_of(self, window_id: int) -> WindowLogic[Any, Any, Any]:
        logic = self._windows.get(window_id)
        if logic is None:
            logic = self._windows[window_id] = self._build_logic()
        return logic

    def _build_logic(self) -> WindowLogic[Any, Any, Any]:
        """Return the logic of a new window.

        Raises:
            FailedCall: when the builder raised or returned another object.
        """
        try:
            logic: object = self._config.builder(None)
        except (RejectedValue, FailedCall):
            raise
        except RAISED as error:
            raise FailedCall("the builder") from error
        if not isinstance(logic, WindowLogic):
            wrong = TypeError(f"a builder must return a WindowLogic, got {shorten(logic)}")
            raise FailedCall("the builder") from wrong
        return logic

    def _record_change(self, window_id: int, timestamp_us: int, values: Iterable[Any]) -> None:
        """Record that a value changed a window, and emit the values that its logic returned."""
        if self._config.timestamp == "last":
            self._latest[window_id] = max(self._latest.get(window_id, -NEVER), timestamp_us)
        if self._config.emit == "epoch" or self._windows[window_id].emits_each_epoch:
            self._changed[window_id] = None
        if values:
            self._emit_from(window_id, values)

    def _count_values(self, window_id: int, count: int) -> None:
        """Note that values entered a window; a driver with a trigger counts them."""

    def _emit_result(self, window_id: int) -> None:
        """Emit the current result of an open window, if its logic has one before the close."""
        logic = self._windows[window_id]
        if isinstance(logic, EpochWindowLogic):
            with Calling(logic, "on_epoch_end"):
                self._emit_from(window_id, logic.on_epoch_end())

    def _emit_from(self, window_id: int, values: Iterable[Any]) -> None:
        """Emit values of an open window; values that are part of its changing state are copied."""
        logic = self._windows[window_id]
        if not logic.detaches:
            values = detach_items(logic, values)
        self._emit(self._windower.metadata(window_id), values)

    def _merge(self, original: int, target: int) -> None:
        merged = self._windows.pop(original)
        latest_us = self._latest.pop(original, -NEVER)
        self._changed.pop(original, None)
        if original in self._emitted:
            emission = self._emitted.pop(original)
            metadata, value = pickle.loads(emission) if isinstance(emission, bytes) else emission
            self._output.append((DOWN, (metadata, Retracted(value))))
        logic = self._logic_of(target)
        with Calling(logic, "on_merge"):
            self._record_change(target, latest_us, logic.on_merge(merged))

    def _close_passed(self, watermark_us: int) -> bool:
        if self._windower.next_close_us() > watermark_us:
            return False
        for metadata in self._windower.close_for(watermark_us):
            self._close(metadata)
        return True

    def _close(self, metadata: WindowMetadata) -> None:
        logic = self._windows.pop(metadata.window_id)
        self._changed.pop(metadata.window_id, None)
        self._emit_last(metadata, logic)
        self._output.append((CLOSED, self._with_timestamp(metadata)))
        self._emitted.pop(metadata.window_id, None)
        self._latest.pop(metadata.window_id, None)

    def _emit_last(self, metadata: WindowMetadata, logic: WindowLogic[Any, Any, Any]) -> None:
        """Emit the last values of a window that closes."""
        with Calling(logic, "on_close"):
            self._emit(metadata, logic.on_close())

    def _emit(self, metadata: WindowMetadata, values: Iterable[Any]) -> None:
        metadata = self._with_timestamp(metadata)
        for value in values:
            self._output.append((DOWN, (metadata, value)))
            if self._config.retracts:
                self._emitted[metadata.window_id] = (metadata, value)

    def _current_emission(self, window_id: int) -> tuple[WindowMetadata, Any]:
        """Return the emission of an open window with its current result.

        It replaces the last emission, which not every snapshot stores.
        """
        logic = self._windows[window_id]
        if not isinstance(logic, EpochWindowLogic):
            raise TypeError(
                f"the snapshot of a window that may be retracted must hold its last emission: "
                f"{type(logic).__name__} cannot emit it again, as it is no EpochWindowLogic"
            )
        (value,) = logic.on_epoch_end()
        return self._with_timestamp(self._windower.metadata(window_id)), value

    def _with_timestamp(self, metadata: WindowMetadata) -> WindowMetadata:
        """Return the metadata with the timestamp that the step is configured to set."""
        choice = self._config.timestamp
        if choice is None:
            return metadata
        opens, closes = metadata.open_time, metadata.close_time

        def last_time() -> datetime:
            latest_us = self._latest.get(metadata.window_id)
            return closes if latest_us is None else from_us(latest_us)

        return replace(metadata, timestamp=timestamp_of(choice, opens, closes, last_time))

    def _expires_us(self) -> int:
        """Return the watermark at which the first retained value is evicted."""
        if not self._retained or self._keep_us is None:
            return NEVER
        return self._retained[0].timestamp_us + self._keep_us + 1

    @override
    def hold_us(self, ports: Collection[int]) -> int:
        buffered_us, reach_us = self._buffer.next_us(), self._config.reach_us
        hold_us = buffered_us - reach_us if buffered_us < NEVER else NEVER
        if not self._config.windower.closes_by_time:
            return hold_us
        if self._leaves is not None and self._leaves.count:
            by_open = self._config.result_timestamp == "open"
            hold_us = min(hold_us, self._leaves.hold_us(by_open=by_open))
        return min([hold_us, *map(self._result_us, self._windows)])

    def _result_us(self, window_id: int) -> int:
        """Return the least timestamp that the result of an open window may still have."""
        metadata, timestamp = self._windower.metadata(window_id), self._config.result_timestamp
        if timestamp == "last" and window_id in self._latest:
            return self._latest[window_id]
        return datetime_us(metadata.close_time if timestamp == "close" else metadata.open_time)

    @override
    def _has_values(self) -> bool:
        if self._windows or self._buffer or self._retained:
            return True
        return self._leaves is not None and self._leaves.count > 0

    @override
    def _has_state(self) -> bool:
        return self._windower.snapshot() is not None

    @override
    def _next_us(self) -> int:
        next_us = min(self._windower.next_close_us(), self._buffer.next_us(), self._expires_us())
        return next_us if self._leaves is None else min(next_us, self._leaves.next_us)


_timestamp_of = attrgetter("timestamp_us")
