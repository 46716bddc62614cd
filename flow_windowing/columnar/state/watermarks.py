"""Clocks over many keys: what `flow_windowing.clocks.clock` says for one key, in columns.

Rows lie key after key, a key's rows in order of arrival. The inputs' clock stands still while an
epoch's rows are considered, so a key's watermark moves there by its rows alone: it is the greatest
of what it was and of the candidates so far, as far as other source partitions let it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, running_max
from flow.instants import NEVER, Moment
from flow.keyed.due import held_until
from flow.keyed.logic import RejectedValue
from flow_windowing.clocks.clock import Clock, DroppedValue, SystemClock
from flow_windowing.clocks.event_clock import EventClock
from flow_windowing.columnar.values.timestamps import Values, read_times
from flow_windowing.rules.watermark import LEAST_TAKEN, NO_WATERMARK


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
        taken_us: what the watermark was taken for when it was last held, `NO_WATERMARK` for a key
            that was not held; ``None`` where no key was.
    """

    base_us: Ints
    set_at_us: Ints
    heard_us: Ints
    taken_us: Ints | None = None

    @classmethod
    def fresh(cls, count: int) -> KeyClocks:
        """Those of so many new keys."""
        zeros = np.zeros(count, np.int64)
        return cls(np.full(count, NO_WATERMARK), zeros, zeros.copy())

    def known_taken(self) -> Ints:
        """Return `taken_us`, which is made where no key was held."""
        if self.taken_us is None:
            self.taken_us = np.full(len(self.base_us), NO_WATERMARK)
        return self.taken_us

    def followed_by(self, other: KeyClocks) -> KeyClocks:
        """These, and others after them."""
        held = self.taken_us is not None or other.taken_us is not None
        return KeyClocks(
            np.concatenate([self.base_us, other.base_us]),
            np.concatenate([self.set_at_us, other.set_at_us]),
            np.concatenate([self.heard_us, other.heard_us]),
            np.concatenate([self.known_taken(), other.known_taken()]) if held else None,
        )

    def take(self, places: Ints | Mask) -> KeyClocks:
        """Some of them."""
        taken_us = None if self.taken_us is None else self.taken_us[places]
        return KeyClocks(
            self.base_us[places], self.set_at_us[places], self.heard_us[places], taken_us
        )


class TimeRows(NamedTuple):
    """The rows of an epoch as clocks see them.

    Attributes:
        run_of_row: the number of each row's key among the keys that have rows.
        time_us: each row's timestamp.
        starts: where each key's rows start.
        reached_us: how far the stream had come with each row, where that is measured.
        others_us: the bound by other source partitions at each row, where they hold the watermark.
        own_us: the progress of each row's own source partition, where they do.
    """

    run_of_row: Ints
    time_us: Ints
    starts: Ints
    reached_us: Ints | None = None
    others_us: Ints | None = None
    own_us: Ints | None = None


class Advanced(NamedTuple):
    """What the rows of an epoch do to watermarks.

    Attributes:
        watermark_us: the watermark of each row's key once the row has been considered.
        led_us: for each key that has rows, the greatest watermark that they lead to.
    """

    watermark_us: Ints
    led_us: Ints


class Settling(NamedTuple):
    """Keys that had values in an epoch.

    Attributes:
        places: the keys.
        led_us: the greatest watermark that the values of each have led to.
        watermark_us: the watermark of each after the last of them.
        heard: which of them had a value that was not refused.
    """

    places: Ints
    led_us: Ints
    watermark_us: Ints
    heard: Mask


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

    def advanced(
        self,
        rows: TimeRows,
        clocks: KeyClocks,  # noqa: ARG002
        refused: Mask | None,  # noqa: ARG002
        before: Moment,
    ) -> Advanced:
        """What the rows of an epoch do to the watermarks of their keys.

        Args:
            rows: the rows.
            clocks: the clocks of the keys that have rows, before them.
            refused: rows that do not move it.
            before: the moment before the rows.
        """
        watermark_us = np.full(len(rows.time_us), before.now_us)
        return Advanced(watermark_us, np.full(len(rows.starts), NO_WATERMARK))

    def settle(self, clocks: KeyClocks, settling: Settling, moment: Moment) -> None:
        """Bring the clocks of keys to the end of an epoch.

        Args:
            clocks: the clocks of all keys.
            settling: the keys, and what their values have led to.
            moment: the moment after the epoch's rows.
        """

    def held(self, clocks: KeyClocks, touched: Sequence[Ints], moment: Moment) -> None:
        """Note what the watermarks of keys are taken for, where partitions hold them.

        Args:
            clocks: the clocks of all keys.
            touched: the keys whose watermark has done something, some of them more than once.
            moment: the moment.
        """

    def due_us(self, close_us: Ints, clocks: KeyClocks, moment: Moment) -> Ints:  # noqa: ARG002
        """The system time at which each key's watermark gets where it has something to do.

        Where the watermark is the stream's, how far that has to come.
        """
        return close_us


def floor_us(clocks: KeyClocks, passed_us: Ints, moment: Moment) -> Ints:
    """What watermarks have been taken for, below which a hold does not bring them.

    Args:
        clocks: the clocks.
        passed_us: each base with what time had added to it as the hold began.
        moment: says when the hold began.
    """
    if clocks.taken_us is None:
        return passed_us
    taken_us = clocks.taken_us
    held = taken_us != NO_WATERMARK
    older = clocks.set_at_us < moment.held_since_us
    return np.where(held & ~older, taken_us, np.maximum(taken_us, passed_us))


def _passed(base_us: Ints, set_at_us: Ints, clock_us: int) -> Ints:
    """Each base, and what the inputs' clock has added to it."""
    passed_us: Ints = np.maximum(clock_us - set_at_us, 0)
    passed_us += base_us
    fresh = base_us == NO_WATERMARK
    if fresh.any():
        passed_us[fresh] = NO_WATERMARK
    return passed_us


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
        own_us = self._passed(clocks, moment.inputs_us)
        if moment.bound_us >= NEVER:
            return own_us
        free_us = self._passed(clocks, moment.held_since_us)
        return np.maximum(floor_us(clocks, free_us, moment), np.minimum(own_us, moment.bound_us))

    def _passed(self, clocks: KeyClocks, clock_us: int) -> Ints:
        """Each key's base, and what the inputs' clock has added to it."""
        if not self._advances:
            return clocks.base_us
        return _passed(clocks.base_us, clocks.set_at_us, clock_us)

    @override
    def too_far_ahead(self, time_us: Ints, moment: Moment) -> Mask | None:
        limit_us = self._clock.max_ahead_us
        if limit_us >= NEVER:
            return None
        refused: Mask = time_us - moment.now_us > limit_us
        return refused if refused.any() else None

    @override
    def advanced(
        self, rows: TimeRows, clocks: KeyClocks, refused: Mask | None, before: Moment
    ) -> Advanced:
        candidates = rows.time_us - self._clock.wait_us
        if refused is not None:
            candidates = np.where(refused, NO_WATERMARK, candidates)
        elif candidates is rows.time_us:
            candidates = candidates.copy()
        led_us = np.maximum.reduceat(candidates, rows.starts)
        own_us = self._passed(clocks, before.inputs_us)
        if rows.others_us is None or rows.own_us is None:
            candidates[rows.starts] = np.maximum(candidates[rows.starts], own_us)
            return Advanced(running_max(candidates, rows.run_of_row), led_us)
        bound_us = np.minimum(rows.others_us, np.maximum(rows.own_us, candidates))
        candidates[rows.starts] = np.maximum(candidates[rows.starts], own_us)
        taken_us = np.minimum(running_max(candidates, rows.run_of_row), bound_us)
        free_us = self._passed(clocks, before.held_since_us)
        least_us = floor_us(clocks, free_us, before)
        taken_us[rows.starts] = np.maximum(taken_us[rows.starts], least_us)
        return Advanced(running_max(taken_us, rows.run_of_row), led_us)

    @override
    def settle(self, clocks: KeyClocks, settling: Settling, moment: Moment) -> None:
        places, now_us = settling.places, moment.running_us
        passed_us = clocks.base_us[places]
        if self._advances:
            passed_us = _passed(passed_us, clocks.set_at_us[places], moment.inputs_us)
        moved = settling.led_us > passed_us
        if moment.bound_us < NEVER:
            held_us = np.minimum(np.maximum(passed_us, settling.led_us), moment.bound_us)
            least_us = np.maximum(settling.watermark_us, LEAST_TAKEN)
            clocks.known_taken()[places] = np.maximum(least_us, held_us)
        elif clocks.taken_us is not None:
            clocks.taken_us[places] = NO_WATERMARK
        places_moved = places[moved]
        clocks.base_us[places_moved] = settling.led_us[moved]
        clocks.set_at_us[places_moved] = now_us
        clocks.heard_us[places[settling.heard]] = now_us

    @override
    def held(self, clocks: KeyClocks, touched: Sequence[Ints], moment: Moment) -> None:
        if moment.bound_us < NEVER:
            watermark_us = self.now(clocks, moment)
            for places in touched:
                taken_us = np.maximum(watermark_us[places], LEAST_TAKEN)
                clocks.known_taken()[places] = taken_us
        elif clocks.taken_us is not None:
            for places in touched:
                clocks.taken_us[places] = NO_WATERMARK

    @override
    def due_us(self, close_us: Ints, clocks: KeyClocks, moment: Moment) -> Ints:
        due = (close_us < NEVER) & (clocks.base_us != NO_WATERMARK)
        if self._advances:
            to_go = np.where(due, close_us - np.where(due, clocks.base_us, 0), 0)
            at = np.minimum(clocks.set_at_us + to_go + moment.downtime_us, NEVER)
        else:
            at = np.where(close_us <= clocks.base_us, moment.inputs_now_us, NEVER)
        at = np.where(due, at, NEVER)
        if moment.bound_us >= NEVER:
            return at
        held = (at <= moment.inputs_now_us) & (close_us > self.now(clocks, moment))
        return np.where(held, close_us + held_until(0), at)


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
    def advanced(
        self, rows: TimeRows, clocks: KeyClocks, refused: Mask | None, before: Moment
    ) -> Advanced:
        if rows.reached_us is None:
            raise TypeError("rows came without how far their stream had come")
        return Advanced(rows.reached_us, np.full(len(rows.starts), NO_WATERMARK))

    @override
    def settle(self, clocks: KeyClocks, settling: Settling, moment: Moment) -> None:
        pass

    @override
    def held(self, clocks: KeyClocks, touched: Sequence[Ints], moment: Moment) -> None:
        pass

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
