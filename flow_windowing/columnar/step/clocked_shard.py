"""The keys of a shard of a step with a clock, over columns; `ClockedDriver` does it for one key.

An epoch has three phases. In the first, watermarks advance to the system time. In the second, the
epoch's values arrive, those of each key in order of arrival, and watermarks advance with the
values. In the third, if the input ends, watermarks pass all times.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, ranges, starts_of
from flow.columns.chunks import AFTER_ITEMS, AT_END, BEFORE_ITEMS, value_reader
from flow.columns.sided_records import SidedRecords
from flow.instants import NEVER, Moment
from flow.keyed.due import split_dues
from flow.keyed.logic import Counted
from flow.keyed.shard_logic import SegmentDump, ShardEpoch, ShardLogic, ShardOutput, ShardRows
from flow_windowing.columnar.state.shard_state import ShardState
from flow_windowing.columnar.state.state_form import StateForm
from flow_windowing.columnar.state.watermarks import (
    ClockRows,
    Timestamps,
    UnreadableTime,
    WatermarkRule,
)
from flow_windowing.columnar.storage.segment_reader import build_shard_state, read_segment
from flow_windowing.columnar.storage.segment_writer import write_segments
from flow_windowing.columnar.storage.segments import SegmentContent
from flow_windowing.columnar.values.records import Values
from flow_windowing.columnar.windows.row_batch import EnteringRows
from flow_windowing.rules.watermark import COLUMNS, expires_at


class ClockedShard(ShardLogic):
    """The clocks and the state of the keys of a shard.

    A subclass takes the rows of an epoch in `_enter_rows`, and does in `_advance` the work of the
    watermarks.

    Args:
        rule: the watermark rule.
        form: the form of the state in segments.
        sides: the number of streams of the step; with more than one, values are ``(side, value)``.
    """

    def __init__(self, rule: WatermarkRule, form: StateForm, sides: int) -> None:
        self._rule, self._form, self._sides = rule, form, sides
        self._loaded: list[SegmentContent] = []
        self._state = ShardState.empty(form.aggregators)
        self._changed = np.empty(0, np.bool_)

    @abstractmethod
    def _begin_epoch(self) -> ShardOutput:
        """Begin the epoch `_epoch`, and return the output that the epoch adds to."""

    @abstractmethod
    def _enter_rows(
        self,
        entering: EnteringRows,
        refused: Mask | None,
        arriving: ArrivingRows,
        watermark_us: Ints,
        pos_of_slot: Ints,
    ) -> None:
        """Process the rows of an epoch, whose keys' clocks have advanced to the end of the epoch.

        Args:
            entering: the rows, sorted by slot, those of a key in order of arrival.
            refused: the mask of rows that are too far ahead; ``None`` for none.
            arriving: the values of the rows.
            watermark_us: the watermark of each slot after the rows.
            pos_of_slot: the position in the epoch of the output of each slot.
        """

    @abstractmethod
    def _advance(self, watermark_us: Ints, pos_of_slot: Ints) -> list[Ints]:
        """Do the work of the watermark of each slot; return the slots it changed, may repeat."""

    @abstractmethod
    def _next_us(self) -> Ints:
        """Return the watermark at which each slot is due, `NEVER` for none."""

    def _end_epoch(self) -> None:
        """Emit at the end of an epoch, before the end of the input."""

    @override
    def load(self, content: bytes) -> int:
        parts = list(read_segment(self._form, content))
        self._loaded += parts
        return sum(part.key_count for part in parts)

    @override
    def keys(self) -> pa.Array:
        self._add_loaded()
        return self._state.keys

    @override
    def changed(self) -> Mask:
        self._add_loaded()
        return self._changed

    @override
    def run(self, rows: ShardRows | None, epoch: ShardEpoch) -> ShardOutput:
        self._add_loaded()
        self._epoch = epoch
        self._made = self._begin_epoch()
        self._advance_to(epoch.before, BEFORE_ITEMS)
        if rows is not None:
            self._add_rows(rows)
        # Partitions may hold the watermark at the last row, and no longer after it.
        was_held = rows is not None and rows.others_us is not None
        if was_held or epoch.moment != epoch.before:
            self._advance_to(epoch.moment, AFTER_ITEMS)
        self._end_epoch()
        if epoch.end_of_input:
            count = self._state.count
            self._advance(np.full(count, NEVER), np.full(count, AT_END))
        self._made.watermarks_us = self._touched_watermarks_us()
        return self._made

    @override
    def dump(self, numbers: Ints, wanted: list[int]) -> list[SegmentDump]:
        self._add_loaded()
        due_us = self._due_us()
        return write_segments(self._form, self._state, due_us, numbers, wanted)

    @override
    def due_us(self) -> int:
        return int(split_dues(self._due_us())[0].min(initial=NEVER))

    def _touched_watermarks_us(self) -> Ints:
        """Return the watermark of each key that the epoch changed."""
        if not self._changed.any():
            return np.empty(0, np.int64)
        return self._rule.now(self._state.clocks, self._epoch.moment)[self._changed]

    def _add_loaded(self) -> None:
        """Add the keys of all loaded segments to the state, in one concatenation."""
        if self._loaded:
            state = build_shard_state(self._form, self._loaded)
            self._loaded = []
            self._state = self._state.concat(state)
            self._changed = np.concatenate([self._changed, np.zeros(state.count, np.bool_)])

    def _advance_to(self, moment: Moment, pos: int) -> None:
        """Advance watermarks to a moment; the output has position `pos`."""
        state = self._state
        if not state.count:
            return
        watermark_us = self._rule.now(state.clocks, moment)
        touched = self._advance(watermark_us, np.full(state.count, pos))
        self._rule.record_holds(self._state.clocks, touched, moment)
        self._expire_keys(moment)

    def _expire_keys(self, moment: Moment) -> None:
        """Reset keys that have no values in state, and whose last value is older than the limit."""
        if self._rule.forget_after_us >= NEVER:
            return
        state = self._state
        is_overdue = self._expires_us(moment) <= moment.inputs_now_us
        expired = np.flatnonzero(is_overdue & ~state.has_values())
        if len(expired):
            state.reset_keys(expired)
            self._changed[expired] = True

    def _expires_us(self, moment: Moment) -> Ints:
        """Return the system time at which each slot's clock expires."""
        last_us, after_us = self._state.clocks.last_value_us, self._rule.forget_after_us
        return expires_at(COLUMNS, last_us, after_us, moment.downtime_us)

    def _add_rows(self, rows: ShardRows) -> None:
        """Add an epoch's rows, sorted by slot; rows without a timestamp are dropped."""
        value_of = value_reader(rows.values)
        times = self._times(rows, value_of)
        slots = self._slots_of(rows.keys)
        self._changed[slots] = True
        pos_of_slot = np.full(self._state.count, AFTER_ITEMS)
        pos_of_slot[slots] = rows.pos[np.cumsum(rows.counts) - 1]
        by_slot = np.argsort(slots)
        slots, counts = slots[by_slot], rows.counts[by_slot]
        chosen = ranges(starts_of(rows.counts)[by_slot], counts)
        if times.dropped is not None:
            is_dropped = times.dropped[rows.order[chosen]]
            note, amount = f"dropped a value: {times.note}", int(is_dropped.sum())
            if amount:
                self._made.counted.append(Counted("dropped", amount, note))
            run_of_row = np.repeat(np.arange(len(counts)), counts)
            counts = np.bincount(run_of_row[~is_dropped], minlength=len(counts))
            slots, counts = slots[counts > 0], counts[counts > 0]
            chosen = chosen[~is_dropped]
        if len(chosen):
            order = rows.order[chosen]
            measures = [None if column is None else column[chosen] for column in rows[5:]]
            arriving = ArrivingRows(
                rows.values, value_of, order, slots, counts, times.us[order], *measures
            )
            self._process(arriving, pos_of_slot)
        self._expire_keys(self._epoch.moment)
        self._state.reset_arrivals()

    def _times(self, rows: ShardRows, value_of: Callable[[int], Any]) -> Timestamps:
        """Return the timestamps of values.

        Raises:
            KeyFailure: when a value has no timestamp and the clock rejects such values.
        """
        values = rows.values
        if isinstance(values, SidedRecords):
            pairs = values
            value_of = lambda row: pairs[row][1]  # noqa: E731 (as the list's method below)
        elif self._sides > 1:
            values = [value for _, value in values]
            value_of = values.__getitem__
        try:
            return self._rule.times(values, self._epoch.moment, value_of)
        except UnreadableTime as error:
            raise error.of_key(rows, value_of) from error.rejected

    def _process(self, arriving: ArrivingRows, pos_of_slot: Ints) -> None:
        """Advance the clocks of the keys with rows, and process the rows."""
        state, rule, before = self._state, self._rule, self._epoch.before
        slots, counts, times_us = arriving.slots, arriving.counts, arriving.times_us
        run_of_row = np.repeat(np.arange(len(counts)), counts)
        slot_of_row = slots[run_of_row]
        numbers = state.arrival_counts[slot_of_row] + numbers_in_runs(counts)
        state.arrival_counts[slots] += counts
        watermark_of_slot = rule.now(state.clocks, before).copy()  # May be the clocks' own array.
        clock_rows = ClockRows(
            run_of_row,
            times_us,
            starts_of(counts),
            arriving.progress_us,
            arriving.bound_us,
            arriving.own_progress_us,
        )
        advance = rule.advance(state.clocks, slots, clock_rows, before, self._epoch.moment)
        watermark_of_slot[slots] = advance.of_keys_us
        entering = EnteringRows(
            arriving.order, slot_of_row, times_us, numbers, advance.watermark_us
        )
        self._enter_rows(entering, advance.refused, arriving, watermark_of_slot, pos_of_slot)

    def _slots_of(self, keys: pa.Array) -> Ints:
        """Add new keys to the state, and return the slot of each key."""
        state = self._state
        keys = keys.cast(pa.large_string())
        if not state.count:
            slots = new = np.arange(len(keys))
        else:
            indices = pc.index_in(keys, value_set=state.keys)
            is_new = indices.is_null().to_numpy(zero_copy_only=False)
            slots = indices.fill_null(0).to_numpy().astype(np.int64)
            new = np.flatnonzero(is_new)
            slots[new] = state.count + np.arange(len(new))
        if len(new):
            self._state = state.concat(
                ShardState.of_new_keys(keys.take(pa.array(new)), self._form.aggregators)
            )
            self._changed = np.concatenate([self._changed, np.ones(len(new), np.bool_)])
        return slots

    def _due_us(self) -> Ints:
        """Return the due time of each slot, in the encoding of `flow.keyed.due`."""
        state, moment = self._state, self._epoch.moment
        due_us = self._rule.due_us(self._next_us(), state.clocks, moment)
        if self._rule.forget_after_us >= NEVER:
            return due_us
        return np.where(state.has_values(), due_us, self._expires_us(moment))


class ArrivingRows(NamedTuple):
    """The rows of an epoch with a timestamp, sorted by slot, those of a key in order of arrival.

    Attributes:
        values: the values that `order` refers to.
        value_of: returns a value as a Python object.
        order: the index of each row's value.
        slots: the slots of the keys with rows, ascending.
        counts: the number of rows of each key in `slots`.
        times_us: the timestamp of each row.
        progress_us: as `ClockRows.progress_us`.
        bound_us: as `ClockRows.bound_us`.
        own_progress_us: as `ClockRows.own_progress_us`.
        sources: the number of each row's source partition in the epoch; ``None`` if unknown.
    """

    values: Values
    value_of: Callable[[int], Any]
    order: Ints
    slots: Ints
    counts: Ints
    times_us: Ints
    progress_us: Ints | None
    bound_us: Ints | None
    own_progress_us: Ints | None
    sources: Ints | None

    def sources_of(self, rows: Ints) -> Ints | None:
        """Return the number of the source partition of values, given by index."""
        if self.sources is None:
            return None
        by_value = np.argsort(self.order)
        return self.sources[by_value[np.searchsorted(self.order, rows, sorter=by_value)]]


def numbers_in_runs(counts: Ints) -> Ints:
    """Return the number of each row in its run, from 0."""
    return ranges(np.zeros(len(counts), np.int64), counts)
