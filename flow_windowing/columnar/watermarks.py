"""Clocks over many keys: what `flow_windowing.clocks` says for one key, in columns.

Rows lie key after key, a key's rows in order of arrival. System time stands still in an epoch, so a
key's watermark moves there by its rows alone: it is the greatest of what it was and of the
candidates so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from flow.engine.segmented import Ints, Mask, running_max
from flow.instants import NEVER, Moment
from flow.operators.logic import RejectedValue
from flow_windowing.clocks import NO_WATERMARK, Clock, DroppedValue, SystemClock
from flow_windowing.columnar.timestamps import Values, read_times
from flow_windowing.event_clock import EventClock


class Times(NamedTuple):
    """The timestamps of values.

    Attributes:
        us: each value's timestamp.
        dropped: which of them have none, and are left out; ``None`` for none of them.
        note: what one of them is, in words.
    """

    us: Ints
    dropped: Mask | None = None
    note: str = ""


class UnreadableTime(Exception):
    """A value has no timestamp, and the flow is to stop.

    Attributes:
        row: the value's row.
        rejected: what is wrong with it.
    """

    def __init__(self, row: int, rejected: RejectedValue) -> None:
        self.row = row
        self.rejected = rejected
        super().__init__(row, rejected)


@dataclass
class KeyClocks:
    """What the clocks of some keys remember, a column each.

    Attributes:
        base_us: the watermark's base; `NO_WATERMARK` before there is one.
        set_at_us: the running time at which it was set.
        heard_us: the running time at which the last value came.
    """

    base_us: Ints
    set_at_us: Ints
    heard_us: Ints

    @classmethod
    def fresh(cls, count: int) -> KeyClocks:
        """Those of so many new keys."""
        zeros = np.zeros(count, np.int64)
        return cls(np.full(count, NO_WATERMARK), zeros, zeros.copy())

    def followed_by(self, other: KeyClocks) -> KeyClocks:
        """These, and others after them."""
        return KeyClocks(
            np.concatenate([self.base_us, other.base_us]),
            np.concatenate([self.set_at_us, other.set_at_us]),
            np.concatenate([self.heard_us, other.heard_us]),
        )

    def take(self, places: Ints | Mask) -> KeyClocks:
        """Some of them."""
        return KeyClocks(self.base_us[places], self.set_at_us[places], self.heard_us[places])


class TimeRows(NamedTuple):
    """The rows of an epoch as clocks see them.

    Attributes:
        run_of_row: the number of each row's key among the keys that have rows.
        time_us: each row's timestamp.
        starts: where each key's rows start.
        reached_us: how far the stream had come with each row, where that is measured.
    """

    run_of_row: Ints
    time_us: Ints
    starts: Ints
    reached_us: Ints | None = None


class WatermarkRule:
    """How timestamps and watermarks come about for all keys of a step.

    Attributes:
        remembers: whether keys keep anything of the clock between epochs.
        follows_stream: whether the watermark is the stream's, which rows of any key move.
        forget_after_us: how long after its last value a key is forgotten, `NEVER` for never.
    """

    remembers: bool = False
    follows_stream: bool = False
    forget_after_us: int = NEVER

    def times(self, values: Values, moment: Moment, one: Callable[[int], Any]) -> Times:  # noqa: ARG002
        """The timestamps of values; `one` gives a value as the user knows it."""
        return Times(np.full(len(values), moment.now_us))

    def now(self, clocks: KeyClocks, moment: Moment) -> Ints:
        """Each key's watermark if no more values come."""
        return np.full(len(clocks.base_us), moment.now_us)

    def too_far_ahead(self, time_us: Ints, moment: Moment) -> Mask | None:  # noqa: ARG002
        """Which timestamps are further ahead of system time than the clock allows."""
        return None

    def advanced(self, rows: TimeRows, before_us: Ints, refused: Mask | None) -> Ints:  # noqa: ARG002
        """The watermark of each row's key once the row has been considered.

        Args:
            rows: the rows.
            before_us: the watermark of each key that has rows, before them.
            refused: rows that do not move it.
        """
        return before_us[rows.run_of_row]

    def reached(self, clocks: KeyClocks, places: Ints, after_us: Ints, before: Moment) -> Ints:  # noqa: ARG002
        """Each key's watermark once an epoch's rows have come, which its clock knows of by now.

        Args:
            clocks: the clocks of all keys.
            places: the keys that have rows.
            after_us: their watermarks after the last of these.
            before: the epoch's system time.
        """
        return self.now(clocks, before)

    def due_us(self, close_us: Ints, clocks: KeyClocks, moment: Moment) -> Ints:  # noqa: ARG002
        """The system time at which each key's watermark gets where it has something to do.

        Where the watermark is the stream's, how far that has to come.
        """
        return close_us


class EventRule(WatermarkRule):
    """An `EventClock` with a watermark for each key."""

    remembers = True

    def __init__(self, clock: EventClock[Any]) -> None:
        self._clock = clock
        self._advances = clock.on_idle == "advance"
        after_us = clock.forget_after_us
        self.forget_after_us = NEVER if after_us is None else after_us + clock.wait_us

    @override
    def times(self, values: Values, moment: Moment, one: Callable[[int], Any]) -> Times:
        read = read_times(values, self._clock.ts_getter)
        count = len(values)
        times, known = read or (np.zeros(count, np.int64), np.zeros(count, np.bool_))
        dropped, note = None, ""
        unknown = np.flatnonzero(~known).tolist()
        if unknown and not times.flags.writeable:
            times = times.copy()
        for row in unknown:
            try:
                times[row] = self._clock.timestamp_us(one(row))
            except DroppedValue as error:
                dropped = np.zeros(count, np.bool_) if dropped is None else dropped
                dropped[row], note = True, str(error)
            except RejectedValue as error:
                raise UnreadableTime(row, error) from error
        return Times(times, dropped, note)

    @override
    def now(self, clocks: KeyClocks, moment: Moment) -> Ints:
        if not self._advances:
            return clocks.base_us
        passed_us = np.maximum(moment.running_us - clocks.set_at_us, 0)
        set_ = clocks.base_us != NO_WATERMARK
        return np.where(set_, clocks.base_us + np.where(set_, passed_us, 0), NO_WATERMARK)

    @override
    def too_far_ahead(self, time_us: Ints, moment: Moment) -> Mask | None:
        limit_us = self._clock.max_ahead_us
        if limit_us >= NEVER:
            return None
        refused: Mask = time_us - moment.now_us > limit_us
        return refused if refused.any() else None

    @override
    def advanced(self, rows: TimeRows, before_us: Ints, refused: Mask | None) -> Ints:
        candidates = rows.time_us - self._clock.wait_us
        if refused is not None:
            candidates = np.where(refused, NO_WATERMARK, candidates)
        elif candidates is rows.time_us:
            candidates = candidates.copy()
        candidates[rows.starts] = np.maximum(candidates[rows.starts], before_us)
        return running_max(candidates, rows.run_of_row)

    @override
    def due_us(self, close_us: Ints, clocks: KeyClocks, moment: Moment) -> Ints:
        if not self._advances:
            return np.full(len(close_us), NEVER)
        due = (close_us < NEVER) & (clocks.base_us != NO_WATERMARK)
        to_go = np.where(due, close_us - np.where(due, clocks.base_us, 0), 0)
        at = np.minimum(clocks.set_at_us + to_go + moment.downtime_us, NEVER)
        return np.where(due, at, NEVER)


class StreamRule(EventRule):
    """An `EventClock` with one watermark for all keys, which the engine measures and keeps."""

    remembers = False
    follows_stream = True

    def __init__(self, clock: EventClock[Any]) -> None:
        super().__init__(clock)
        self.forget_after_us = NEVER

    @override
    def now(self, clocks: KeyClocks, moment: Moment) -> Ints:
        return np.full(len(clocks.base_us), moment.progress_us)

    @override
    def advanced(self, rows: TimeRows, before_us: Ints, refused: Mask | None) -> Ints:
        if rows.reached_us is None:
            raise TypeError("rows came without how far their stream had come")
        return rows.reached_us

    @override
    def reached(self, clocks: KeyClocks, places: Ints, after_us: Ints, before: Moment) -> Ints:
        watermark_us = self.now(clocks, before)
        watermark_us[places] = after_us
        return watermark_us

    @override
    def due_us(self, close_us: Ints, clocks: KeyClocks, moment: Moment) -> Ints:
        return close_us


def rule_of(clock: Clock[Any, Any]) -> WatermarkRule | None:
    """The rule of a clock, ``None`` for a clock that has to be asked key by key."""
    if type(clock) is SystemClock:
        return WatermarkRule()
    if type(clock) is EventClock:
        return EventRule(clock) if clock.scope == "key" else StreamRule(clock)
    return None
