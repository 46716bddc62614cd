"""The windowing step of all keys of a shard, over columns; `WindowDriver` does the same for a key.

An epoch has three phases. In the first, watermarks advance to the system time, and windows close.
In the second, the epoch's values arrive, those of each key in order of arrival, and watermarks
advance with the values. In the third, if the input ends, all windows close. In each phase, buffered
values that the watermark has passed enter their windows before windows close.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, order_by, ranges, run_starts, starts_of
from flow.columns.chunks import AFTER_ITEMS, AT_END, BEFORE_ITEMS
from flow.instants import NEVER, Moment
from flow.keyed.due import split_dues
from flow.keyed.shard_logic import (
    KeyFailure,
    SegmentDump,
    ShardEpoch,
    ShardLogic,
    ShardOutput,
    ShardRows,
)
from flow_windowing.columnar.aggregates.accumulators import FailedRow
from flow_windowing.columnar.state.shard_state import ShardState
from flow_windowing.columnar.state.watermarks import (
    ClockRows,
    KeyProgress,
    Timestamps,
    UnreadableTime,
)
from flow_windowing.columnar.step.emitting import Emitter, LateRows
from flow_windowing.columnar.storage.segment_reader import build_shard_state, read_segment
from flow_windowing.columnar.storage.segment_writer import write_segments
from flow_windowing.columnar.storage.segments import SegmentContent
from flow_windowing.columnar.values.buffered_values import BufferedValues
from flow_windowing.columnar.values.records import (
    Values,
    fields_as_records,
    object_reader,
    value_reader,
)
from flow_windowing.columnar.windows.plan import WindowPlan
from flow_windowing.columnar.windows.row_batch import EnteringRows, RowBatch
from flow_windowing.contract.metadata import LateReason
from flow_windowing.rules.lateness import has_closed, is_behind
from flow_windowing.rules.settings import owes_updates
from flow_windowing.rules.watermark import COLUMNS, expires_at


class ShardWindows(ShardLogic):
    """The clocks, open windows and buffered values of the keys of a shard."""

    def __init__(self, plan: WindowPlan) -> None:
        self._plan = plan
        self._rule, self._windowing = plan.rule, plan.windowing
        self._loaded: list[SegmentContent] = []
        self._state = ShardState.empty(plan.aggregators)
        self._changed = np.empty(0, np.bool_)

    @override
    def load(self, content: bytes) -> int:
        parts = list(read_segment(self._plan, content))
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
        self._emitter = Emitter(self._plan, epoch)
        if owes_updates(epoch.changed_from, self._plan.emit):
            self._emit_owed_updates()
        self._advance_to(epoch.before, BEFORE_ITEMS)
        if rows is not None:
            self._add_rows(rows)
        if epoch.moment != epoch.before:
            self._advance_to(epoch.moment, AFTER_ITEMS)
        self._emit_changed()
        if epoch.end_of_input:
            count = self._state.count
            self._advance(np.full(count, NEVER), np.full(count, AT_END))
        self._emitter.made.watermarks_us = self._touched_watermarks_us()
        return self._emitter.made

    @override
    def dump(self, numbers: Ints, wanted: list[int]) -> list[SegmentDump]:
        self._add_loaded()
        due_us = self._due_us()
        return write_segments(self._plan, self._state, due_us, numbers, wanted)

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
            state = build_shard_state(self._plan, self._loaded)
            self._loaded = []
            self._state = self._state.concat(state)
            self._changed = np.concatenate([self._changed, np.zeros(state.count, np.bool_)])

    def _emit_changed(self) -> None:
        """Emit results of open windows that changed in the epoch, in order of first change."""
        changes = self._state.windows.first_changes
        if changes is None:
            return
        rows = np.flatnonzero(changes < NEVER)
        rows = rows[order_by(self._state.windows.slots[rows], changes[rows])]
        self._state.windows.first_changes = None
        self._emit_open(rows, AFTER_ITEMS)

    def _emit_owed_updates(self) -> None:
        """Emit results of all open windows, after `emit` changed from "close" to updates."""
        self._emit_open(np.arange(len(self._state.windows)), BEFORE_ITEMS)

    def _emit_open(self, rows: Ints, pos: int) -> None:
        """Emit results of open windows, with position `pos` in the epoch."""
        state = self._state
        if self._windowing.may_merge:
            state.windows.ensure_emitted()[rows] = True
        self._emitter.emit_results(state.windows, rows, state.keys, np.full(state.count, pos))

    def _advance_to(self, moment: Moment, pos: int) -> None:
        """Advance watermarks to a moment and close windows; the output has position `pos`."""
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
            note = f"dropped a value: {times.note}"
            self._emitter.count("dropped", int(is_dropped.sum()), note)
            run_of_row = np.repeat(np.arange(len(counts)), counts)
            counts = np.bincount(run_of_row[~is_dropped], minlength=len(counts))
            slots, counts = slots[counts > 0], counts[counts > 0]
            chosen = chosen[~is_dropped]
        if len(chosen):
            order = rows.order[chosen]
            measures = [None if column is None else column[chosen] for column in rows[5:]]
            arriving = _ArrivingRows(
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
        if self._plan.sides > 1:
            values = [value for _, value in values]
            value_of = values.__getitem__
        try:
            return self._rule.times(values, self._epoch.moment, value_of)
        except UnreadableTime as error:
            row = int(np.flatnonzero(rows.order == error.row)[0])
            run = int(np.searchsorted(np.cumsum(rows.counts), row, "right"))
            key = rows.keys[run].as_py()
            raise KeyFailure(key, value_of(error.row), error.rejected) from error.rejected

    def _process(self, arriving: _ArrivingRows, pos_of_slot: Ints) -> None:
        """Advance the clocks of the keys with rows, and enter or buffer the rows on time."""
        state, rule, moment = self._state, self._rule, self._epoch.moment
        slots, counts, times_us = arriving.slots, arriving.counts, arriving.times_us
        starts = starts_of(counts)
        run_of_row = np.repeat(np.arange(len(counts)), counts)
        slot_of_row = slots[run_of_row]
        refused = rule.too_far_ahead(times_us, moment)
        time_rows = ClockRows(
            run_of_row,
            times_us,
            starts,
            arriving.progress_us,
            arriving.bound_us,
            arriving.own_progress_us,
        )
        before = self._epoch.before
        watermark_us, candidate_us = rule.advanced(
            time_rows, state.clocks.take(slots), refused, before
        )
        after_us = watermark_us[starts + counts - 1]
        numbers = state.arrival_counts[slot_of_row] + _numbers_in_runs(counts)
        state.arrival_counts[slots] += counts
        watermark_of_slot = rule.now(state.clocks, before)
        watermark_of_slot[slots] = after_us
        is_accepted = np.ones(len(slots), np.bool_)
        if refused is not None:
            is_accepted = np.add.reduceat(~refused, starts) > 0
        rule.end_epoch(
            state.clocks, KeyProgress(slots, candidate_us, after_us, is_accepted), moment
        )
        entering = EnteringRows(arriving.order, slot_of_row, times_us, numbers, watermark_us)
        entering = self._reject(entering, refused, arriving)
        if self._plan.waits:
            entering = self._buffer(entering, arriving, watermark_of_slot, pos_of_slot)
        self._enter(entering, arriving.values, arriving.value_of, pos_of_slot, arriving.sources_of)
        self._advance(watermark_of_slot, pos_of_slot)

    def _reject(
        self, entering: EnteringRows, refused: Mask | None, arriving: _ArrivingRows
    ) -> EnteringRows:
        """Emit rows that are too far ahead, or late for any window; return the others."""
        if refused is not None:
            ahead = entering.take(refused)
            self._emitter.count(LateReason.TOO_FAR_AHEAD.value, len(ahead.rows))
            self._add_without_windows(ahead, LateReason.TOO_FAR_AHEAD, arriving.value_of)
            entering = entering.take(~refused)
        if not self._windowing.is_late_at_once:
            return entering
        is_late = is_behind(entering.times_us, entering.watermark_us)
        if not is_late.any():
            return entering
        late = entering.take(is_late)
        late_rows = LateRows(*late, *self._windowing.missed_by(late.times_us), LateReason.LATE)
        self._emitter.add_late(late_rows, arriving.value_of, arriving.sources_of(late.rows))
        return entering.take(~is_late)

    def _add_without_windows(
        self, rows: EnteringRows, reason: LateReason, value_of: Callable[[int], Any]
    ) -> None:
        """Collect items of the late stream that name no missed window."""
        zeros = np.zeros(len(rows.rows), np.int64)
        self._emitter.add_late(LateRows(*rows, zeros, zeros, reason), value_of)

    def _buffer(
        self, entering: EnteringRows, arriving: _ArrivingRows, watermark_us: Ints, pos_of_slot: Ints
    ) -> EnteringRows:
        """Buffer rows, and enter buffered values that the watermark has passed.

        Returns:
            The rows that need no buffer, because they enter after those values; sorted by slot and
            by the watermark at which they enter.
        """
        buffered = self._state.buffered
        # A value behind the watermark enters a count window at once, at the current watermark.
        enters_us = np.maximum(entering.times_us, entering.watermark_us)
        entering = entering._replace(watermark_us=enters_us)
        skips = buffered.skips_buffer(entering.slots, enters_us, watermark_us)
        new = entering.take(~skips)
        values = object_reader(arriving.values)(new.rows)
        self._state.buffered = buffered.merge(
            BufferedValues(new.slots, new.times_us, new.numbers, values, new.watermark_us)
        )
        self._release(watermark_us, pos_of_slot)
        direct = entering.take(skips)
        return direct.take(order_by(direct.slots, direct.watermark_us))

    def _advance(self, watermark_us: Ints, pos_of_slot: Ints) -> list[Ints]:
        """Enter buffered values that each slot's watermark passes, and close windows.

        Returns:
            The slots with windows that closed or buffered values that entered; may repeat.
        """
        released = self._release(watermark_us, pos_of_slot)
        state = self._state
        self._emitter.emit_late(state.keys, pos_of_slot)
        windows = state.windows
        closed_at_us = self._windowing.closed_at_us(state)
        is_closing = has_closed(closed_at_us, watermark_us[windows.slots])
        rows = np.flatnonzero(is_closing)
        self._emitter.emit_closed(windows, rows, closed_at_us[rows], state.keys, pos_of_slot)
        if not len(rows):
            return released
        closed = windows.slots[rows]
        self._changed[closed] = True
        state.counted_values = self._windowing.counted_after(state, rows)
        state.windows = windows.take(~is_closing)
        return [*released, closed]

    def _release(self, watermark_us: Ints, pos_of_slot: Ints) -> list[Ints]:
        """Enter buffered values that the watermark has passed; return the slots of the values."""
        state = self._state
        is_passed = state.buffered.times_us <= watermark_us[state.buffered.slots]
        if not is_passed.any():
            return []
        released, state.buffered = state.buffered.release(is_passed)
        self._changed[released.slots] = True
        entering = EnteringRows(
            np.arange(len(released)),
            released.slots,
            released.times_us,
            released.numbers,
            released.enters_us,
        )
        values = fields_as_records(released.values, self._plan.fields)
        self._enter(entering, values, released.values.__getitem__, pos_of_slot)
        return [released.slots]

    def _enter(
        self,
        entering: EnteringRows,
        values: Values,
        value_of: Callable[[int], Any],
        pos_of_slot: Ints,
        sources_of: Callable[[Ints], Ints | None] = lambda _: None,
    ) -> None:
        """Add rows to the windows that are open as each row enters, and emit unassigned rows.

        Raises:
            KeyFailure: when a user's function raised.
        """
        entry_numbers = self._entry_numbers(entering.slots)
        state, plan = self._state, self._plan
        if plan.emit == "epoch":
            state.windows.track_changes()
        batch = RowBatch(
            entering, values, entry_numbers, plan.keeps_latest, not plan.waits, plan.emit, []
        )
        try:
            unassigned = self._windowing.enter(state, batch)
        except FailedRow as error:
            slot = int(entering.slots[np.flatnonzero(entering.rows == error.row)[0]])
            cause = error.__cause__
            if cause is None:
                raise
            raise KeyFailure(state.keys[slot].as_py(), value_of(error.row), cause) from cause
        if plan.emit == "update":
            self._emitter.emit_updates(batch.updates, state.keys, pos_of_slot)
        else:
            self._emitter.add_retractions(batch.updates)
        self._emitter.count(LateReason.GAP.value, len(unassigned.in_gap))
        self._add_without_windows(entering.take(unassigned.in_gap), LateReason.GAP, value_of)
        late = entering.take(unassigned.late)
        late_rows = LateRows(*late, unassigned.ids, unassigned.counts, LateReason.LATE)
        if len(late.rows):
            self._emitter.add_late(late_rows, value_of, sources_of(late.rows))

    def _entry_numbers(self, slots: Ints) -> Ints:
        """Return the entry number of each row; arbitrary numbers if the plan uses none."""
        if not self._plan.counts_arrivals:
            return slots
        state = self._state
        starts = run_starts(slots)
        counts = np.diff(starts, append=len(slots))
        numbers = state.entry_counts[slots] + _numbers_in_runs(counts)
        state.entry_counts[slots[starts]] += counts
        return numbers

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
                ShardState.of_new_keys(keys.take(pa.array(new)), self._plan.aggregators)
            )
            self._changed = np.concatenate([self._changed, np.ones(len(new), np.bool_)])
        return slots

    def _due_us(self) -> Ints:
        """Return the due time of each slot, in the encoding of `flow.keyed.due`."""
        state, moment = self._state, self._epoch.moment
        next_us = state.buffered.next_us(state.count)
        if len(state.windows):
            first = run_starts(state.windows.slots)
            slots = state.windows.slots[first]
            close_us = self._windowing.closed_at_us(state)[first]
            next_us[slots] = np.minimum(next_us[slots], close_us)
        due_us = self._rule.due_us(next_us, state.clocks, moment)
        if self._rule.forget_after_us >= NEVER:
            return due_us
        return np.where(state.has_values(), due_us, self._expires_us(moment))


class _ArrivingRows(NamedTuple):
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


def _numbers_in_runs(counts: Ints) -> Ints:
    """Return the number of each row in its run, from 0."""
    return ranges(np.zeros(len(counts), np.int64), counts)
