"""The window driver: one key's clock, windower, waiting values and window logics, working together.

For each value, in arrival order: the clock gives its timestamp and moves the watermark; the value
is late, or waits until the watermark passes it (`ordered`), or enters its windows at once; windows
that the watermark has passed close. Each value is dealt with wholly before the next, and what waits
enters one by one as if the watermark moved past each alone, so that cutting the input into epochs
differently changes nothing.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any

import numpy as np
from typing_extensions import override

from flow.errors import RAISED, shorten
from flow.instants import NEVER, Moment, from_us
from flow.keyed.detaching import detach_items
from flow.keyed.logic import (
    COUNTED,
    DISCARD,
    KEEP,
    Bounded,
    Counted,
    FailedCall,
    Keep,
    RejectedValue,
    Stamped,
    StatefulBatchLogic,
)
from flow_windowing.clocks.clock import DroppedValue
from flow_windowing.contract.arrival import Arrival
from flow_windowing.contract.logic import Calling, EpochWindowLogic, WindowLogic
from flow_windowing.contract.metadata import LateReason, LateValue, Retracted, WindowMetadata
from flow_windowing.object.config import WindowingConfig
from flow_windowing.rules.key_state import DriverState, Kept
from flow_windowing.rules.lateness import counted_late
from flow_windowing.rules.settings import owes_updates
from flow_windowing.rules.streams import CLOSED, DOWN, LATE
from flow_windowing.rules.timestamps import timestamp_of
from flow_windowing.rules.waiting import Waiting, WaitQueue
from flow_windowing.windowers.windower import Filled, Opened

_NEW_KEY = DriverState(None, None, None, 0, 0, {}, (), {}, {})


class WindowDriver(StatefulBatchLogic[Any, tuple[int, Any], DriverState]):
    """The logic of one key of a windowing step; emits (port, value)."""

    detaches = True

    def __init__(self, config: WindowingConfig, snapshot: DriverState | None) -> None:
        state = snapshot or _NEW_KEY
        self._config = config
        self._late_at_once = config.windower.grace_us is None
        self._keep_us = config.windower.keep_us
        self._clock = config.clock.build(state.clock)
        self._windower = config.windower.build(state.windower)
        self._waiting = WaitQueue(state.waiting)
        self._arrived, self._entered = state.arrived, state.entered
        self._windows = {number: config.builder(one) for number, one in state.windows.items()}
        self._kept = list(state.kept)
        self._latest = dict(state.latest)
        self._shown = {one: last or self._as_it_is(one) for one, last in state.shown.items()}
        self._changed: dict[int, None] = {}
        self._counts: Counter[str] = Counter()
        self._source = -1
        self._lateness: list[tuple[int, int]] = []
        self._note = ""
        self._out: list[tuple[int, Any]] = []
        self._moment = Moment(0)

    @override
    def on_batch(self, values: list[Any], moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        self._moment = moment
        before = moment.before
        for value in values:
            if isinstance(value, Bounded):
                plain, others_us, own_us, self._source = value
                self._take(plain, replace(before, bound_us=others_us, progress_us=own_us))
            elif isinstance(value, Stamped):
                self._take(value.value, replace(before, progress_us=value.progress_us))
            else:
                self._take(value, before)
        self._source = -1
        self._clock.settle(moment)
        if self._config.clock.progress is not None:
            self._advance(self._clock.watermark(moment))
        return self._emitted(), self._keep()

    @override
    def on_notify(self, moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        self._moment = moment
        if self._advance(self._clock.watermark(moment)):
            self._clock.settle(moment)
        if not self._holds_values() and self._clock.forget_us(moment) <= moment.inputs_now_us:
            return self._emitted(), DISCARD
        return self._emitted(), self._keep()

    @override
    def on_changed(self, before: str, moment: Moment) -> Iterable[tuple[int, Any]]:
        self._moment = moment
        if owes_updates(before, self._config.emit):
            for window_id in sorted(self._windows):
                self._say(window_id)
        return self._emitted()

    @override
    def on_epoch_end(self, moment: Moment) -> Iterable[tuple[int, Any]]:
        self._moment = moment
        changed, self._changed = self._changed, {}
        for window_id in changed:
            self._say(window_id)
        return self._emitted()

    @override
    def on_end(self, moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        self._moment = moment
        self._advance(NEVER)
        return self._emitted(), self._keep()

    @override
    def notify_at_us(self) -> int:
        due_us = min(self._windower.next_close_us(), self._waiting.next_us(), self._expires_us())
        if due_us < NEVER:
            return self._clock.due_us(due_us, self._moment)
        return NEVER if self._holds_values() else self._clock.forget_us(self._moment)

    @override
    def snapshot(self) -> DriverState:
        return DriverState(
            self._clock.snapshot(),
            self._windower.snapshot(),
            self._waiting.snapshot() if self._waiting else None,
            self._arrived,
            self._entered,
            {number: logic.snapshot() for number, logic in self._windows.items()},
            tuple(self._kept),
            dict(self._shown),
            dict(self._latest),
        )

    def _take(self, value: Any, moment: Moment) -> None:
        """Deal with a value that has just come."""
        plain = value if self._config.sides == 1 else value[1]
        try:
            timestamp_us, watermark_us, refused = self._clock.on_item(plain, moment)
        except DroppedValue as dropped:
            self._counts["dropped"] += 1
            self._note = str(dropped)
            return
        number, self._arrived = self._arrived, self._arrived + 1
        if refused is not None:
            self._counts[refused.value] += 1
            self._late(value, timestamp_us, watermark_us, (), refused)
        elif timestamp_us < watermark_us and self._late_at_once:
            self._late(value, timestamp_us, watermark_us, self._windower.missed_by(timestamp_us))
        elif self._config.ordered and timestamp_us > watermark_us:
            self._waiting.push(Waiting(timestamp_us, number, value))
        else:
            # Another key may have moved the watermark: all that it has passed was here before.
            self._release(watermark_us)
            self._enter(value, timestamp_us, number, watermark_us)
        self._advance(watermark_us)

    def _advance(self, watermark_us: int) -> bool:
        """Let values enter that the watermark has passed, and close windows; True if any did."""
        released, closed = self._release(watermark_us), self._close_passed(watermark_us)
        if self._expires_us() <= watermark_us:
            least_us = watermark_us - (self._keep_us or 0)
            del self._kept[: bisect.bisect_left(self._kept, least_us, key=_timestamp_of)]
        if not self._holds_values():
            # Here and not as the epoch ends, so that numbers do not tell where epochs were cut.
            self._arrived = self._entered = 0
        return released or closed

    def _release(self, watermark_us: int) -> bool:
        """Let waiting values that the watermark has passed enter, each as if it had just done so.

        What waited was on time when it came, however far the watermark has moved since.
        """
        released = False
        while self._waiting and self._waiting.next_us() <= watermark_us:
            released = True
            timestamp_us, number, value = self._waiting.pop()
            self._enter(value, timestamp_us, number, timestamp_us)
        return released

    def _enter(self, value: Any, timestamp_us: int, number: int, watermark_us: int) -> None:
        """Let a value enter the windows that are open at this watermark."""
        self._close_passed(watermark_us)
        opened = self._windower.open_for(timestamp_us, watermark_us)
        for original, target in self._windower.merged():
            self._merge(original, target)
        at = Arrival(timestamp_us, number, self._entered)
        self._entered += 1
        filled = {one.window_id for one in opened.filled}
        for one in opened.filled:
            self._fill(one, Kept(timestamp_us, at, value))
        for window_id in opened.ids:
            if window_id not in filled:
                logic = self._logic(window_id)
                with Calling(logic, "on_value", value):
                    self._touched(window_id, timestamp_us, logic.on_value_at(value, at))
        self._miss(opened, value, timestamp_us, watermark_us)
        if self._keep_us is not None:
            bisect.insort(self._kept, Kept(timestamp_us, at, value), key=_turn_of)
        self._close_passed(watermark_us)

    def _miss(self, opened: Opened, value: Any, timestamp_us: int, watermark_us: int) -> None:
        if opened.missed:
            self._late(value, timestamp_us, watermark_us, opened.missed)
        elif not opened.ids:
            self._counts[LateReason.GAP.value] += 1
            self._late(value, timestamp_us, watermark_us, (), LateReason.GAP)

    def _fill(self, filled: Filled, newest: Kept) -> None:
        """Open a window over values seen before, and the newest, if it belongs there."""
        first = bisect.bisect_left(self._kept, filled.first_us, key=_timestamp_of)
        last = bisect.bisect_right(self._kept, filled.last_us, key=_timestamp_of)
        values = self._kept[first:last]
        if filled.first_us <= newest.timestamp_us <= filled.last_us:
            values.append(newest)
        values.sort(key=lambda kept: kept.at.entered)
        logic, latest_us = self._logic(filled.window_id), max(kept.timestamp_us for kept in values)
        with Calling(logic, "on_fill"):
            made = logic.on_fill([(kept.value, kept.at) for kept in values])
            self._touched(filled.window_id, latest_us, made)

    def _logic(self, window_id: int) -> WindowLogic[Any, Any, Any]:
        logic = self._windows.get(window_id)
        if logic is None:
            logic = self._windows[window_id] = self._built()
        return logic

    def _built(self) -> WindowLogic[Any, Any, Any]:
        """The logic of a new window."""
        try:
            logic: object = self._config.builder(None)
        except (RejectedValue, FailedCall):
            raise
        except RAISED as error:
            raise FailedCall("the builder") from error
        if not isinstance(logic, WindowLogic):
            wrong = TypeError(f"it made {shorten(logic)}, which is no WindowLogic")
            raise FailedCall("the builder") from wrong
        return logic

    def _touched(self, window_id: int, timestamp_us: int, made: Iterable[Any]) -> None:
        """Note that a window has changed, and send down what it made of it."""
        if self._config.timestamp == "last":
            self._latest[window_id] = max(self._latest.get(window_id, -NEVER), timestamp_us)
        if self._config.emit == "epoch" or self._windows[window_id].speaks_each_epoch:
            self._changed[window_id] = None
        if made:
            self._speak(window_id, made)

    def _say(self, window_id: int) -> None:
        """Let an open window emit what it has come to, if it is one that can."""
        logic = self._windows[window_id]
        if isinstance(logic, EpochWindowLogic):
            with Calling(logic, "on_epoch_end"):
                self._speak(window_id, logic.on_epoch_end())

    def _speak(self, window_id: int, made: Iterable[Any]) -> None:
        """Send down what an open window has made; what the window keeps goes on to change."""
        logic = self._windows[window_id]
        values = made if logic.detaches else detach_items(logic, made)
        self._down(self._windower.metadata(window_id), values)

    def _merge(self, original: int, target: int) -> None:
        consumed = self._windows.pop(original)
        latest_us = self._latest.pop(original, -NEVER)
        self._changed.pop(original, None)
        if original in self._shown:
            metadata, value = self._shown.pop(original)
            self._out.append((DOWN, (metadata, Retracted(value))))
        logic = self._logic(target)
        with Calling(logic, "on_merge"):
            self._touched(target, latest_us, logic.on_merge(consumed))

    def _close_passed(self, watermark_us: int) -> bool:
        if self._windower.next_close_us() > watermark_us:
            return False
        for metadata in self._windower.close_for(watermark_us):
            self._close(metadata)
        return True

    def _close(self, metadata: WindowMetadata) -> None:
        logic = self._windows.pop(metadata.window_id)
        self._changed.pop(metadata.window_id, None)
        with Calling(logic, "on_close"):
            self._down(metadata, logic.on_close())
        self._out.append((CLOSED, self._dated(metadata)))
        self._shown.pop(metadata.window_id, None)
        self._latest.pop(metadata.window_id, None)

    def _late(
        self,
        value: Any,
        timestamp_us: int,
        watermark_us: int,
        missed: Sequence[WindowMetadata],
        reason: LateReason = LateReason.LATE,
    ) -> None:
        """Emit a late value, once for all windows that it missed."""
        side, plain = (None, value) if self._config.sides == 1 else value
        windows = tuple(sorted(missed))
        late = LateValue.of_us(plain, timestamp_us, watermark_us, windows, reason, side)
        self._out.append((LATE, late))
        if reason is LateReason.LATE and watermark_us > timestamp_us:
            self._lateness.append((watermark_us - timestamp_us, self._source))

    def _down(self, metadata: WindowMetadata, values: Iterable[Any]) -> None:
        dated = self._dated(metadata)
        for value in values:
            self._out.append((DOWN, (dated, value)))
            if self._config.retracts:
                self._shown[metadata.window_id] = (dated, value)

    def _as_it_is(self, window_id: int) -> tuple[WindowMetadata, Any]:
        """What an open window would emit now."""
        logic = self._windows[window_id]
        if not isinstance(logic, EpochWindowLogic):
            raise TypeError(f"what a {type(logic).__name__} has emitted has to be remembered")
        (value,) = logic.on_epoch_end()
        return self._dated(self._windower.metadata(window_id)), value

    def _dated(self, metadata: WindowMetadata) -> WindowMetadata:
        """Return the metadata with the timestamp that was asked for."""
        choice = self._config.timestamp
        if choice is None:
            return metadata
        opens, closes = metadata.open_time, metadata.close_time

        def last_time() -> datetime:
            latest_us = self._latest.get(metadata.window_id)
            return closes if latest_us is None else from_us(latest_us)

        return replace(metadata, timestamp=timestamp_of(choice, opens, closes, last_time))

    def _expires_us(self) -> int:
        """The watermark at which the first of the values kept is not needed any more."""
        if not self._kept or self._keep_us is None:
            return NEVER
        return self._kept[0].timestamp_us + self._keep_us + 1

    def _holds_values(self) -> bool:
        return bool(self._windows or self._waiting or self._kept)

    def _keep(self) -> Keep:
        """Whether the key has anything to remember."""
        if self._holds_values():
            return KEEP
        remembers = self._clock.snapshot() is not None or self._windower.snapshot() is not None
        return KEEP if remembers else DISCARD

    def _emitted(self) -> list[tuple[int, Any]]:
        out, self._out = self._out, []
        if self._counts:
            note = self._note
            for what, amount in self._counts.items():
                said = f"dropped a value: {note}" if what == "dropped" else ""
                out.append((COUNTED, Counted(what, amount, said)))
            self._counts.clear()
        if self._lateness:
            late_by_us, sources = np.array(self._lateness, np.int64).T
            out += ((COUNTED, one) for one in counted_late(late_by_us, sources))
            self._lateness.clear()
        return out


_timestamp_of = attrgetter("timestamp_us")


def _turn_of(kept: Kept) -> tuple[int, int]:
    return kept.timestamp_us, kept.at.entered
