"""The driver of one key of a step with a clock: timestamps, watermarks, timers and late values."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
from typing_extensions import override

from flow.instants import NEVER, Moment
from flow.keyed.logic import (
    COUNTED,
    DISCARD,
    KEEP,
    BoundedValue,
    Counted,
    Keep,
    StampedValue,
    StatefulBatchLogic,
)
from flow_windowing.clocks.clock import Clock, DroppedValue
from flow_windowing.rules.metadata import LATE, LateReason, LateValue, WindowMetadata
from flow_windowing.rules.watermark import counted_late

S = TypeVar("S")


class ClockedDriver(StatefulBatchLogic[Any, tuple[int, Any], S], Generic[S]):
    """The logic of one key of a step with a clock; emits ``(port, value)``.

    For each value, in order of arrival, the clock returns its timestamp and advances the watermark.
    A subclass takes the value in `_enter_value`, and does in `_advance` the work of the watermark.

    Args:
        clock: the clock.
        sides: the number of streams of the step; with more than one, values are ``(side, value)``.
        clock_state: the snapshot of the clock, ``None`` for a new key.
        arrived: the number of values that arrived since the key last had no value in state.
    """

    detaches = True

    def __init__(self, clock: Clock[Any, Any], sides: int, clock_state: Any, arrived: int) -> None:
        self._clock = clock.build(clock_state)
        self._has_progress = clock.progress is not None
        self._sides = sides
        self._arrived = arrived
        self._counts: Counter[str] = Counter()
        self._source = -1
        self._late_by: list[tuple[int, int]] = []
        self._note = ""
        self._output: list[tuple[int, Any]] = []
        self._moment = Moment(0)

    @abstractmethod
    def _enter_value(self, value: Any, timestamp_us: int, watermark_us: int, number: int) -> None:
        """Process a value that the clock accepted, before `_advance` to the same watermark."""

    @abstractmethod
    def _advance(self, watermark_us: int) -> bool:
        """Do the work of a watermark; return True if the key's state or output depends on it."""

    @abstractmethod
    def _has_values(self) -> bool:
        """Return True if the key has values in state."""

    @abstractmethod
    def _has_state(self) -> bool:
        """Return True if a key without values has state beside that of its clock."""

    @abstractmethod
    def _next_us(self) -> int:
        """Return the watermark at which the key is due, `NEVER` for none."""

    @override
    def on_batch(self, values: list[Any], moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        self._moment = moment
        before = moment.before
        for value in values:
            if isinstance(value, BoundedValue):
                plain, bound_us, progress_us, self._source = value
                self._add_value(plain, replace(before, bound_us=bound_us, progress_us=progress_us))
            elif isinstance(value, StampedValue):
                self._add_value(value.value, replace(before, progress_us=value.progress_us))
            else:
                self._add_value(value, before)
        self._source = -1
        self._clock.settle(moment)
        if self._has_progress:
            self._advance(self._clock.watermark(moment))
        self._fire_timers()
        return self._take_output(), self._disposition()

    @override
    def on_notify(self, moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        self._moment = moment
        if self._advance(self._clock.watermark(moment)):
            self._clock.settle(moment)
        self._fire_timers()
        if not self._has_values() and self._clock.forget_us(moment) <= moment.inputs_now_us:
            return self._take_output(), DISCARD
        return self._take_output(), self._disposition()

    @override
    def watermark_us(self, moment: Moment) -> int | None:
        return self._clock.watermark(moment)

    @override
    def on_end(self, moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        self._moment = moment
        self._advance(NEVER)
        return self._take_output(), self._disposition()

    @override
    def notify_at_us(self) -> int:
        due_us = self._next_us()
        if due_us < NEVER:
            # A held key is due at a watermark, before any timer: its timers wait with it.
            return min(self._clock.due_us(due_us, self._moment), self._timer_us())
        return self._timer_us() if self._has_values() else self._clock.forget_us(self._moment)

    def _fire_timers(self) -> None:
        """Do the work of timers by system time that the moment has reached; by default none."""

    def _timer_us(self) -> int:
        """Return the due time of the next timer by system time, `NEVER` for none."""
        return NEVER

    def _plain(self, value: Any) -> Any:
        """Return a value of `on_batch` without its bounds and its side."""
        item = value.value if isinstance(value, (BoundedValue, StampedValue)) else value
        return item if self._sides == 1 else item[1]

    def _add_value(self, value: Any, moment: Moment) -> None:
        """Process a value as it arrives."""
        plain = value if self._sides == 1 else value[1]
        try:
            timestamp_us, watermark_us, refused = self._clock.on_item(plain, moment)
        except DroppedValue as dropped:
            self._counts["dropped"] += 1
            self._note = str(dropped)
            return
        number, self._arrived = self._arrived, self._arrived + 1
        if refused is not None:
            self._counts[refused.value] += 1
            self._emit_late(value, timestamp_us, watermark_us, (), refused)
        else:
            self._enter_value(value, timestamp_us, watermark_us, number)
        self._advance(watermark_us)

    def _emit_late(
        self,
        value: Any,
        timestamp_us: int,
        watermark_us: int,
        missed: Sequence[WindowMetadata],
        reason: LateReason = LateReason.LATE,
    ) -> None:
        """Emit one item of the late stream for a value, with all windows that it missed."""
        side, plain = (None, value) if self._sides == 1 else value
        windows = tuple(sorted(missed))
        late = LateValue.of_us(plain, timestamp_us, watermark_us, windows, reason, side)
        self._output.append((LATE, late))
        if reason is LateReason.LATE and watermark_us > timestamp_us:
            self._late_by.append((watermark_us - timestamp_us, self._source))

    def _disposition(self) -> Keep:
        """Return `DISCARD` for a key that is as a new key, with no values in state, else `KEEP`."""
        if self._has_values():
            return KEEP
        has_state = self._clock.snapshot() is not None or self._has_state()
        return KEEP if has_state else DISCARD

    def _take_output(self) -> list[tuple[int, Any]]:
        """Return the collected output, followed by the counts of values that left the step."""
        output, self._output = self._output, []
        for name, amount in self._counts.items():
            note = f"dropped a value: {self._note}" if name == "dropped" else ""
            output.append((COUNTED, Counted(name, amount, note)))
        self._counts.clear()
        if self._late_by:
            late_by_us, sources = np.array(self._late_by, np.int64).T
            output += ((COUNTED, counted) for counted in counted_late(late_by_us, sources))
            self._late_by.clear()
        return output
