"""Watermark rules: the clocks of `flow_windowing.clocks` for many keys at once.

Rows are grouped by key, each key's rows in order of arrival. The inputs' clock does not move within
an epoch's rows, so only rows advance a key's watermark there: it is the maximum of its value before
and of the rows' candidates so far, limited by the bound of other source partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, running_max
from flow.instants import NEVER, Moment
from flow.keyed.due import held_due_us
from flow.keyed.logic import RejectedValue
from flow.keyed.shard_logic import KeyFailure, ShardRows
from flow_windowing.clocks.clock import Clock, DroppedValue, SystemClock
from flow_windowing.clocks.event_clock import EventClock
from flow_windowing.clocks.timestamp_columns import read_times
from flow_windowing.columnar.state.key_clocks import KeyClocks
from flow_windowing.columnar.values.records import Values
from flow_windowing.rules.watermark import (
    COLUMNS,
    LEAST_TAKEN,
    NO_WATERMARK,
    advanced,
    floor,
    held,
)


class Timestamps(NamedTuple):
    """Timestamps of values.

    Attributes:
        us: the timestamps, int64 µs, shape (values,).
        dropped: the mask of values without a timestamp, which are dropped; ``None`` for no value.
        note: the reason for the last of the dropped values; empty without dropped values.
    """

    us: Ints
    dropped: Mask | None = None
    note: str = ""


class UnreadableTime(Exception):
    """A value without a timestamp, which stops the flow.

    Attributes:
        row: the value's row.
        rejected: the error of the clock.
    """

    def __init__(self, row: int, rejected: RejectedValue) -> None:
        self.row = row
        self.rejected = rejected
        super().__init__(row, rejected)

    def of_key(self, rows: ShardRows, value_of: Callable[[int], Any]) -> KeyFailure:
        """Return the failure of the value's key; `value_of` returns a value as Python object."""
        number = int(np.flatnonzero(rows.order == self.row)[0])
        return KeyFailure(rows.key_of(number), value_of(self.row), self.rejected)


class ClockRows(NamedTuple):
    """Rows of an epoch, grouped by key, with the columns that clocks need.

    Attributes:
        run_of_row: the number of each row's key among the keys with rows, ascending.
        times_us: the timestamp of each row.
        starts: the index of each key's first row.
        progress_us: the stream progress after each row; ``None`` if it is not measured.
        bound_us: the bound that other source partitions set at each row; ``None`` without a hold.
        own_progress_us: the progress of each row's own source partition; ``None`` without a hold.
    """

    run_of_row: Ints
    times_us: Ints
    starts: Ints
    progress_us: Ints | None = None
    bound_us: Ints | None = None
    own_progress_us: Ints | None = None


class RowWatermarks(NamedTuple):
    """Watermarks at the rows of an epoch.

    Attributes:
        watermark_us: the watermark of each row's key after the row.
        candidate_us: the greatest candidate of each key with rows, `NO_WATERMARK` without any.
    """

    watermark_us: Ints
    candidate_us: Ints


class KeyProgress(NamedTuple):
    """Watermarks of the keys that had values in an epoch.

    Attributes:
        slots: the slots of the keys.
        candidate_us: the greatest candidate of each key.
        watermark_us: the watermark of each key after its last value.
        is_accepted: True for a key with a value that was not refused.
    """

    slots: Ints
    candidate_us: Ints
    watermark_us: Ints
    is_accepted: Mask


class RowAdvance(NamedTuple):
    """Watermarks after the clocks of keys have advanced by the rows of an epoch.

    Attributes:
        watermark_us: the watermark of each row's key after the row.
        of_keys_us: the watermark of each key with rows after its last row.
        refused: the mask of rows that are too far ahead; ``None`` for no row.
    """

    watermark_us: Ints
    of_keys_us: Ints
    refused: Mask | None


class WatermarkRule:
    """Timestamps and watermarks of all keys of a step; here those of a `SystemClock`.

    Attributes:
        forget_after_us: the time from a key's last value to its expiry, `NEVER` for no expiry.
    """

    forget_after_us: int = NEVER

    def times(self, values: Values, moment: Moment, one: Callable[[int], Any]) -> Timestamps:  # noqa: ARG002
        """Return the timestamps of values.

        Args:
            values: the values.
            moment: the moment after the epoch's rows.
            one: returns the value of a row as a Python object.

        Raises:
            UnreadableTime: when a value has no timestamp and the clock rejects such values.
        """
        return Timestamps(np.full(len(values), moment.now_us))

    def now(self, clocks: KeyClocks, moment: Moment) -> Ints:
        """Return the watermark of each slot at a moment."""
        return np.full(len(clocks.base_us), moment.now_us)

    def advance(
        self, clocks: KeyClocks, slots: Ints, rows: ClockRows, before: Moment, after: Moment
    ) -> RowAdvance:
        """Advance the clocks of the keys with rows to the end of an epoch.

        Args:
            clocks: the clocks of all keys, which are changed.
            slots: the slots of the keys with rows.
            rows: the rows.
            before: the moment before the rows.
            after: the moment after the rows.
        """
        refused = self.too_far_ahead(rows.times_us, after)
        watermark_us, candidate_us = self.advanced(rows, clocks.take(slots), refused, before)
        is_accepted = np.ones(len(slots), np.bool_)
        if refused is not None:
            is_accepted = np.add.reduceat(~refused, rows.starts) > 0
        of_keys_us = watermark_us[np.append(rows.starts[1:], len(watermark_us)) - 1]
        self.end_epoch(clocks, KeyProgress(slots, candidate_us, of_keys_us, is_accepted), after)
        return RowAdvance(watermark_us, of_keys_us, refused)

    def too_far_ahead(self, times_us: Ints, moment: Moment) -> Mask | None:  # noqa: ARG002
        """Return the mask of timestamps too far ahead of system time; ``None`` if none is."""
        return None

    def advanced(
        self,
        rows: ClockRows,
        clocks: KeyClocks,  # noqa: ARG002
        refused: Mask | None,  # noqa: ARG002
        before: Moment,
    ) -> RowWatermarks:
        """Return the watermarks at the rows of an epoch.

        Args:
            rows: the rows.
            clocks: the clocks of the keys with rows, before the rows.
            refused: the mask of rows that do not advance the watermark; ``None`` for no row.
            before: the moment before the rows.
        """
        watermark_us = np.full(len(rows.times_us), before.now_us)
        return RowWatermarks(watermark_us, np.full(len(rows.starts), NO_WATERMARK))

    def end_epoch(self, clocks: KeyClocks, progress: KeyProgress, moment: Moment) -> None:
        """Advance the clocks of the keys with values to the end of an epoch.

        Args:
            clocks: the clocks of all keys, which are changed.
            progress: the watermarks of the keys with values.
            moment: the moment after the epoch's rows.
        """

    def record_holds(self, clocks: KeyClocks, touched: Sequence[Ints], moment: Moment) -> None:
        """Record the watermarks that keys have used under a hold, below which they may not fall.

        Args:
            clocks: the clocks of all keys, which are changed.
            touched: the slots whose watermark closed a window or released a value; may repeat.
            moment: the moment of the watermarks.
        """

    def due_us(self, close_us: Ints, clocks: KeyClocks, moment: Moment) -> Ints:  # noqa: ARG002
        """Return the system time at which each key's watermark reaches `close_us`.

        For a step whose watermark is the stream progress, `close_us` itself is returned.
        """
        return close_us


class EventRule(WatermarkRule):
    """An `EventClock` with a watermark for each key."""

    def __init__(self, clock: EventClock[Any]) -> None:
        self._clock = clock
        self._advances = clock.on_idle == "advance"
        after_us = clock.forget_after_us
        self.forget_after_us = NEVER if after_us is None else after_us + clock.wait_us

    @override
    def times(self, values: Values, moment: Moment, one: Callable[[int], Any]) -> Timestamps:
        read = read_times(values, self._clock.ts_getter)
        count = len(values)
        times, is_known = read or (np.zeros(count, np.int64), np.zeros(count, np.bool_))
        dropped, note = None, ""
        unknown = np.flatnonzero(~is_known).tolist()
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
        return Timestamps(times, dropped, note)

    @override
    def now(self, clocks: KeyClocks, moment: Moment) -> Ints:
        free_us = self._unbounded_us(clocks, moment.inputs_us)
        if moment.bound_us >= NEVER:
            return free_us
        return held(COLUMNS, free_us, moment.bound_us, self._floor_us(clocks, moment))

    def _unbounded_us(self, clocks: KeyClocks, clock_us: int) -> Ints:
        """Return the watermark of each slot without the bound of other source partitions."""
        if not self._advances:
            return clocks.base_us
        return advanced(COLUMNS, clocks.base_us, clocks.set_at_us, clock_us)

    def _floor_us(self, clocks: KeyClocks, moment: Moment) -> Ints:
        """Return the watermark of each slot below which a hold does not lower it."""
        since_us = moment.held_since_us
        free_us = self._unbounded_us(clocks, since_us)
        if clocks.held_watermark_us is None:
            return free_us
        return floor(COLUMNS, clocks.held_watermark_us, clocks.set_at_us, free_us, since_us)

    @override
    def too_far_ahead(self, times_us: Ints, moment: Moment) -> Mask | None:
        limit_us = self._clock.max_ahead_us
        if limit_us >= NEVER:
            return None
        refused: Mask = times_us - moment.now_us > limit_us
        return refused if refused.any() else None

    @override
    def advanced(
        self, rows: ClockRows, clocks: KeyClocks, refused: Mask | None, before: Moment
    ) -> RowWatermarks:
        candidates = rows.times_us - self._clock.wait_us
        if refused is not None:
            candidates = np.where(refused, NO_WATERMARK, candidates)
        elif candidates is rows.times_us:
            candidates = candidates.copy()
        candidate_us = np.maximum.reduceat(candidates, rows.starts)
        free_us = self._unbounded_us(clocks, before.inputs_us)
        if rows.bound_us is None or rows.own_progress_us is None:
            candidates[rows.starts] = np.maximum(candidates[rows.starts], free_us)
            return RowWatermarks(running_max(candidates, rows.run_of_row), candidate_us)
        bound_us = np.minimum(rows.bound_us, np.maximum(rows.own_progress_us, candidates))
        candidates[rows.starts] = np.maximum(candidates[rows.starts], free_us)
        bounded_us = np.minimum(running_max(candidates, rows.run_of_row), bound_us)
        floor_us = self._floor_us(clocks, before)
        bounded_us[rows.starts] = np.maximum(bounded_us[rows.starts], floor_us)
        return RowWatermarks(running_max(bounded_us, rows.run_of_row), candidate_us)

    @override
    def end_epoch(self, clocks: KeyClocks, progress: KeyProgress, moment: Moment) -> None:
        slots, now_us = progress.slots, moment.running_us
        free_us = clocks.base_us[slots]
        if self._advances:
            free_us = advanced(COLUMNS, free_us, clocks.set_at_us[slots], moment.inputs_us)
        moved = progress.candidate_us > free_us
        if moment.bound_us < NEVER:
            held_us = np.minimum(np.maximum(free_us, progress.candidate_us), moment.bound_us)
            least_us = np.maximum(progress.watermark_us, LEAST_TAKEN)
            clocks.ensure_held_watermark()[slots] = np.maximum(least_us, held_us)
        elif clocks.held_watermark_us is not None:
            clocks.held_watermark_us[slots] = NO_WATERMARK
        moved_slots = slots[moved]
        clocks.base_us[moved_slots] = progress.candidate_us[moved]
        clocks.set_at_us[moved_slots] = now_us
        clocks.last_value_us[slots[progress.is_accepted]] = now_us

    @override
    def record_holds(self, clocks: KeyClocks, touched: Sequence[Ints], moment: Moment) -> None:
        if moment.bound_us < NEVER:
            watermark_us = self.now(clocks, moment)
            for slots in touched:
                held_us = np.maximum(watermark_us[slots], LEAST_TAKEN)
                clocks.ensure_held_watermark()[slots] = held_us
        elif clocks.held_watermark_us is not None:
            for slots in touched:
                clocks.held_watermark_us[slots] = NO_WATERMARK

    @override
    def due_us(self, close_us: Ints, clocks: KeyClocks, moment: Moment) -> Ints:
        has_due = (close_us < NEVER) & (clocks.base_us != NO_WATERMARK)
        if self._advances:
            wait_us = np.where(has_due, close_us - np.where(has_due, clocks.base_us, 0), 0)
            due_us = np.minimum(clocks.set_at_us + wait_us + moment.downtime_us, NEVER)
        else:
            due_us = np.where(close_us <= clocks.base_us, moment.inputs_now_us, NEVER)
        due_us = np.where(has_due, due_us, NEVER)
        if moment.bound_us >= NEVER:
            return due_us
        is_held = (due_us <= moment.inputs_now_us) & (close_us > self.now(clocks, moment))
        return np.where(is_held, close_us + held_due_us(0), due_us)


class StreamRule(EventRule):
    """An `EventClock` with one watermark for all keys: the stream progress."""

    def __init__(self, clock: EventClock[Any]) -> None:
        super().__init__(clock)
        self.forget_after_us = NEVER

    @override
    def now(self, clocks: KeyClocks, moment: Moment) -> Ints:
        return np.full(len(clocks.base_us), moment.progress_us)

    @override
    def advanced(
        self, rows: ClockRows, clocks: KeyClocks, refused: Mask | None, before: Moment
    ) -> RowWatermarks:
        if rows.progress_us is None:
            raise TypeError("rows of a stream clock need progress_us, got None")
        return RowWatermarks(rows.progress_us, np.full(len(rows.starts), NO_WATERMARK))

    @override
    def end_epoch(self, clocks: KeyClocks, progress: KeyProgress, moment: Moment) -> None:
        pass

    @override
    def record_holds(self, clocks: KeyClocks, touched: Sequence[Ints], moment: Moment) -> None:
        pass

    @override
    def due_us(self, close_us: Ints, clocks: KeyClocks, moment: Moment) -> Ints:
        return close_us


def rule_of(clock: Clock[Any, Any]) -> WatermarkRule | None:
    """Return the rule of a clock; ``None`` for a clock that only works key by key."""
    if type(clock) is SystemClock:
        return WatermarkRule()
    if type(clock) is EventClock:
        return EventRule(clock) if clock.scope == "key" else StreamRule(clock)
    return None
