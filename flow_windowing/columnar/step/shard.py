"""The windows of all keys of a shard: what `WindowDriver` does for one key, for many at once.

An epoch is dealt with in three strokes. First the watermarks go to where the time that has passed
has brought them, and windows close. Then the epoch's values come in, key by key in order of
arrival, and the watermarks go to where they lead. Last, if the input ends, everything closes. In
each stroke what waits and has been passed enters its windows, before those close.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from flow.columns.arrays import (
    Ints,
    Mask,
    order_by,
    ranges,
    run_starts,
    starts_of,
)
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
from flow_windowing.rules.settings import held_back


class ShardWindows(ShardLogic):
    """The clocks, open windows and waiting values of many keys."""

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
        if held_back(epoch.changed_from, self._plan.emit):
            self._catch_up()
        self._pass_time(epoch.before, BEFORE_ITEMS)
        if rows is not None:
            self._take(rows)
        if epoch.moment != epoch.before:
            self._pass_time(epoch.moment, AFTER_ITEMS)
        self._end_epoch()
        if epoch.end_of_input:
            count = self._state.count
            self._advance(np.full(count, NEVER), np.full(count, AT_END))
        return self._emitter.made

    @override
    def dump(self, numbers: Ints, wanted: list[int]) -> list[SegmentDump]:
        self._add_loaded()
        due_us = self._due_us()
        return write_segments(self._plan, self._state, due_us, numbers, wanted)

    @override
    def due_us(self) -> int:
        return int(split_dues(self._due_us())[0].min(initial=NEVER))

    def _add_loaded(self) -> None:
        """Take in, all at once, what was loaded."""
        if self._loaded:
            state = build_shard_state(self._plan, self._loaded)
            self._loaded = []
            self._state = self._state.concat(state)
            self._changed = np.concatenate([self._changed, np.zeros(state.count, np.bool_)])

    def _end_epoch(self) -> None:
        """Emit what has changed and is still open, in the order in which it changed."""
        state, changed = self._state, self._state.windows.first_changes
        if changed is None:
            return
        rows = np.flatnonzero(changed < NEVER)
        rows = rows[order_by(state.windows.slots[rows], changed[rows])]
        state.windows.first_changes = None
        if self._windowing.may_merge:
            state.windows.ensure_emitted()[rows] = True
        self._emitter.down(state.windows, rows, state.keys, np.full(state.count, AFTER_ITEMS))

    def _catch_up(self) -> None:
        """Emit what open windows have come to while they were to emit as they close."""
        state = self._state
        rows = np.arange(len(state.windows))
        if self._windowing.may_merge:
            state.windows.ensure_emitted()[rows] = True
        self._emitter.down(state.windows, rows, state.keys, np.full(state.count, BEFORE_ITEMS))

    def _pass_time(self, moment: Moment, pos: int) -> None:
        """Advance watermarks to a moment and close windows; what that emits has position `pos`."""
        state = self._state
        if not state.count:
            return
        watermark_us = self._rule.now(state.clocks, moment)
        touched = self._advance(watermark_us, np.full(state.count, pos))
        self._rule.record_holds(self._state.clocks, touched, moment)
        self._forget(moment)

    def _forget(self, moment: Moment) -> None:
        """Forget keys that have been silent for long enough: they start afresh."""
        after_us = self._rule.forget_after_us
        if after_us >= NEVER:
            return
        state = self._state
        silent = state.clocks.last_value_us + after_us <= moment.inputs_us
        gone = np.flatnonzero(silent & ~state.has_values())
        if len(gone):
            state.reset_keys(gone)
            self._changed[gone] = True

    def _take(self, rows: ShardRows) -> None:
        """Let an epoch's rows come in."""
        one = value_reader(rows.values)
        times = self._times(rows, one)
        slots = self._slots_of(rows.keys)
        self._changed[slots] = True
        pos_of_slot = np.full(self._state.count, AFTER_ITEMS)
        pos_of_slot[slots] = rows.pos[np.cumsum(rows.counts) - 1]
        by_slot = np.argsort(slots)
        counts = rows.counts[by_slot]
        chosen = ranges(starts_of(rows.counts)[by_slot], counts)
        order = rows.order[chosen]
        stamps = [None if one is None else one[chosen] for one in rows[5:]]
        slots = slots[by_slot]
        if times.dropped is not None:
            left = ~times.dropped[order]
            note = f"dropped a value: {times.note}"
            self._emitter.count("dropped", int((~left).sum()), note)
            run_of_row = np.repeat(np.arange(len(counts)), counts)
            counts = np.bincount(run_of_row[left], minlength=len(counts))
            order = order[left]
            stamps = [None if one is None else one[left] for one in stamps]
            slots, counts = slots[counts > 0], counts[counts > 0]
        if len(order):
            times_us = times.us[order]
            arrived = _Arrived(rows.values, one, order, slots, counts, times_us, *stamps)
            self._arrive(arrived, pos_of_slot)
        self._forget(self._epoch.moment)
        self._state.reset_arrivals()

    def _times(self, rows: ShardRows, one: Callable[[int], Any]) -> Timestamps:
        """The timestamps of rows."""
        values, plain = rows.values, one
        if self._plan.sides > 1:
            values = [value for _, value in values]
            plain = values.__getitem__
        try:
            return self._rule.times(values, self._epoch.moment, plain)
        except UnreadableTime as error:
            at = int(np.flatnonzero(rows.order == error.row)[0])
            run = int(np.searchsorted(np.cumsum(rows.counts), at, "right"))
            key = rows.keys[run].as_py()
            raise KeyFailure(key, plain(error.row), error.rejected) from error.rejected

    def _arrive(self, arrived: _Arrived, pos_of_slot: Ints) -> None:
        state, rule, moment = self._state, self._rule, self._epoch.moment
        slots, counts = arrived.slots, arrived.counts
        starts = starts_of(counts)
        run_of_row = np.repeat(np.arange(len(counts)), counts)
        slot_of_row = slots[run_of_row]
        times_us = arrived.times_us
        refused = rule.too_far_ahead(times_us, moment)
        time_rows = ClockRows(
            run_of_row,
            times_us,
            starts,
            arrived.reached_us,
            arrived.others_us,
            arrived.own_us,
        )
        before = self._epoch.before
        watermark_us, candidate_us = rule.advanced(
            time_rows, state.clocks.take(slots), refused, before
        )
        after_us = watermark_us[starts + counts - 1]
        numbers = state.arrival_counts[slot_of_row] + ranges(
            np.zeros(len(counts), np.int64), counts
        )
        state.arrival_counts[slots] += counts
        reached_us = rule.now(state.clocks, before)
        reached_us[slots] = after_us
        heard = np.ones(len(slots), np.bool_)
        if refused is not None:
            heard = np.add.reduceat(~refused, starts) > 0
        rule.end_epoch(state.clocks, KeyProgress(slots, candidate_us, after_us, heard), moment)
        entering = EnteringRows(arrived.order, slot_of_row, times_us, numbers, watermark_us)
        entering = self._without_late(entering, refused, arrived)
        if self._plan.waits:
            entering = self._wait(entering, arrived, reached_us, pos_of_slot)
        self._enter(entering, arrived.values, arrived.one, pos_of_slot, arrived.sources_of)
        self._advance(reached_us, pos_of_slot)

    def _without_late(
        self, entering: EnteringRows, refused: Mask | None, arrived: _Arrived
    ) -> EnteringRows:
        """Those that may enter windows; the others are late."""
        if refused is not None:
            out = entering.take(refused)
            self._emitter.count(LateReason.TOO_FAR_AHEAD.value, len(out.rows))
            self._miss_all(out, LateReason.TOO_FAR_AHEAD, arrived.one)
            entering = entering.take(~refused)
        if not self._windowing.is_late_at_once:
            return entering
        late = entering.times_us < entering.watermark_us
        if not late.any():
            return entering
        rows = entering.take(late)
        first, counts = self._windowing.missed_by(rows.times_us)
        missed = LateRows(*rows, first, counts, LateReason.LATE)
        self._emitter.late(missed, arrived.one, arrived.sources_of(rows.rows))
        return entering.take(~late)

    def _miss_all(self, rows: EnteringRows, reason: LateReason, one: Callable[[int], Any]) -> None:
        """Values that enter no window, of which none can be named."""
        nothing = np.zeros(len(rows.rows), np.int64)
        self._emitter.late(LateRows(*rows, nothing, nothing, reason), one)

    def _wait(
        self, entering: EnteringRows, arrived: _Arrived, watermark_us: Ints, pos_of_slot: Ints
    ) -> EnteringRows:
        """Let values wait, and those that have waited enter that the watermark has passed.

        Returns:
            The values that need not wait, as they come after all of these: in order of time.
        """
        buffered = self._state.buffered
        # A value behind the watermark, in a count window, enters at once: at the watermark then.
        enters_us = np.maximum(entering.times_us, entering.watermark_us)
        entering = entering._replace(watermark_us=enters_us)
        at_once = buffered.skips_buffer(entering.slots, enters_us, watermark_us)
        stays = entering.take(~at_once)
        values = arrived.objects(stays.rows)
        new = BufferedValues(stays.slots, stays.times_us, stays.numbers, values, stays.watermark_us)
        self._state.buffered = buffered.merge(new)
        self._release(watermark_us, pos_of_slot)
        enters = entering.take(at_once)
        return enters.take(order_by(enters.slots, enters.watermark_us))

    def _advance(self, watermark_us: Ints, pos_of_slot: Ints) -> list[Ints]:
        """Bring each slot's watermark here: what waits enters, and windows close.

        Returns:
            The slots whose windows have closed or got values, some of them more than once.
        """
        released = self._release(watermark_us, pos_of_slot)
        state = self._state
        self._emitter.send_late(state.keys, pos_of_slot)
        windows = state.windows
        closed_at_us = self._windowing.closed_at_us(state)
        closing = closed_at_us <= watermark_us[windows.slots]
        rows = np.flatnonzero(closing)
        self._emitter.close(windows, rows, closed_at_us[rows], state.keys, pos_of_slot)
        if not len(rows):
            return released
        closed = windows.slots[rows]
        self._changed[closed] = True
        state.counted_values = self._windowing.counted_after(state, rows)
        state.windows = windows.take(~closing)
        return [*released, closed]

    def _release(self, watermark_us: Ints, pos_of_slot: Ints) -> list[Ints]:
        """Let enter what waits and has been passed; returns the slots of these values."""
        state = self._state
        passed = state.buffered.times_us <= watermark_us[state.buffered.slots]
        if not passed.any():
            return []
        out, state.buffered = state.buffered.release(passed)
        self._changed[out.slots] = True
        rows = np.arange(len(out))
        entering = EnteringRows(rows, out.slots, out.times_us, out.numbers, out.enters_us)
        values = fields_as_records(out.values, self._plan.fields)
        self._enter(entering, values, out.values.__getitem__, pos_of_slot)
        return [out.slots]

    def _enter(
        self,
        entering: EnteringRows,
        values: Values,
        one: Callable[[int], Any],
        pos_of_slot: Ints,
        sources_of: Callable[[Ints], Ints | None] = lambda _: None,
    ) -> None:
        """Let values enter the windows that are open when they come."""
        entered = self._entered_numbers(entering.slots)
        state, plan = self._state, self._plan
        if plan.emit == "epoch":
            state.windows.track_changes()
        batch = RowBatch(
            entering, values, entered, plan.keeps_latest, not plan.waits, plan.emit, []
        )
        try:
            rejected = self._windowing.enter(state, batch)
        except FailedRow as error:
            slot = int(entering.slots[np.flatnonzero(entering.rows == error.row)[0]])
            cause = error.__cause__
            if cause is None:
                raise
            raise KeyFailure(state.keys[slot].as_py(), one(error.row), cause) from cause
        if plan.emit == "update":
            self._emitter.updated(batch.updates, state.keys, pos_of_slot)
        else:
            self._emitter.take_back(batch.updates)
        self._emitter.count(LateReason.GAP.value, len(rejected.in_gap))
        self._miss_all(entering.take(rejected.in_gap), LateReason.GAP, one)
        late = entering.take(rejected.late)
        missed = LateRows(*late, rejected.ids, rejected.counts, LateReason.LATE)
        if len(late.rows):
            self._emitter.late(missed, one, sources_of(late.rows))

    def _entered_numbers(self, slots: Ints) -> Ints:
        """The number of each value in the order in which its key's values enter windows."""
        if not self._plan.counts_arrivals:
            return slots
        state = self._state
        starts = run_starts(slots)
        counts = np.diff(starts, append=len(slots))
        numbers = state.entry_counts[slots] + ranges(np.zeros(len(counts), np.int64), counts)
        state.entry_counts[slots[starts]] += counts
        return numbers

    def _slots_of(self, keys: pa.Array) -> Ints:
        """The slot of each key; keys that have none get one."""
        state = self._state
        keys = keys.cast(pa.large_string())
        if not state.count:
            new = np.arange(len(keys))
            slots = new
        else:
            found = pc.index_in(keys, value_set=state.keys)
            unknown = found.is_null().to_numpy(zero_copy_only=False)
            slots = found.fill_null(0).to_numpy().astype(np.int64)
            new = np.flatnonzero(unknown)
            slots[new] = state.count + np.arange(len(new))
        if len(new):
            self._state = state.concat(
                ShardState.of_new_keys(keys.take(pa.array(new)), self._plan.aggregators)
            )
            self._changed = np.concatenate([self._changed, np.ones(len(new), np.bool_)])
        return slots

    def _due_us(self) -> Ints:
        """When each slot is due."""
        state, moment = self._state, self._epoch.moment
        next_us = state.buffered.next_us(state.count)
        if len(state.windows):
            first = run_starts(state.windows.slots)
            slots = state.windows.slots[first]
            close_us = self._windowing.closed_at_us(state)[first]
            next_us[slots] = np.minimum(next_us[slots], close_us)
        due_us = self._rule.due_us(next_us, state.clocks, moment)
        after_us = self._rule.forget_after_us
        if after_us >= NEVER:
            return due_us
        forgotten_us = np.minimum(state.clocks.last_value_us + after_us + moment.downtime_us, NEVER)
        return np.where(state.has_values(), due_us, forgotten_us)


class _Arrived(NamedTuple):
    """An epoch's rows, key after key in order of slot, those without a timestamp left out."""

    values: Values
    one: Callable[[int], Any]
    order: Ints
    slots: Ints
    counts: Ints
    times_us: Ints
    reached_us: Ints | None
    others_us: Ints | None
    own_us: Ints | None
    sources: Ints | None

    def sources_of(self, rows: Ints) -> Ints | None:
        """Return the number of the source partition of values, where these are known."""
        if self.sources is None:
            return None
        by_value = np.argsort(self.order)
        return self.sources[by_value[np.searchsorted(self.order, rows, sorter=by_value)]]

    def objects(self, rows: Ints) -> list[Any]:
        """Values as Python objects."""
        return object_reader(self.values)(rows)
