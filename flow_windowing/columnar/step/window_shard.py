"""The windowing step of all keys of a shard, over columns; `WindowDriver` does the same for a key.

In each phase of an epoch, buffered values that the watermark has passed enter their windows before
windows close. Results, retractions and the metadata of closed windows leave by an `Emitter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, distinct, numbered, order_by, ranges, run_starts
from flow.columns.chunks import BEFORE_ITEMS, KeyedRecords, Pairs
from flow.columns.record_batches import value_reader
from flow.instants import NEVER
from flow.keyed.shard_logic import BlockStore, KeyFailure, ShardOutput
from flow_windowing.columnar.admission.admitted_rows import (
    ArrivingRows,
    EnteringRows,
    no_windows,
    sorted_pairs,
)
from flow_windowing.columnar.aggregates.accumulators import FailedRow
from flow_windowing.columnar.state.shard_state import OpenWindows
from flow_windowing.columnar.step.clocked_shard import ClockedShard
from flow_windowing.columnar.step.preaggregation import enter_partials
from flow_windowing.columnar.values.blocks import move_list, read_list
from flow_windowing.columnar.values.buffered_values import BufferedValues, objects_of
from flow_windowing.columnar.values.records import Values, fields_as_records, object_reader
from flow_windowing.columnar.windows.window_view import METADATA, WindowView, metadata_of, values_of
from flow_windowing.columnar.windows.windowing import RowBatch, Update, Windowing, WindowPlan
from flow_windowing.rules.metadata import CLOSED, DOWN, LateReason, Retracted, WindowMetadata
from flow_windowing.rules.triggers import owes_updates
from flow_windowing.rules.watermark import has_closed


class ShardWindows(ClockedShard):
    """The clocks, open windows and buffered values of the keys of a shard."""

    def __init__(self, plan: WindowPlan) -> None:
        windowing = plan.windowing
        super().__init__(plan.form, plan.sides, 0 if windowing.is_late_at_once else None)
        self._plan, self._windowing = plan, windowing
        self._stores_lists = plan.emit == "close"

    @override
    def _begin_epoch(self) -> None:
        self._emitter = Emitter(self._plan, self._made, self._epoch.wanted)
        changed_from = self._epoch.changed_from
        if changed_from is None:
            return
        all_windows = np.arange(len(self._state.windows))
        if not self._stores_lists:
            self._read_lists(all_windows)
        if owes_updates(changed_from, self._plan.emit):
            self._emit_open(all_windows, BEFORE_ITEMS)

    @override
    def _end_epoch(self) -> None:
        """Emit results of open windows that changed in the epoch, in order of first change."""
        changes = self._state.windows.first_changes
        if changes is None:
            return
        rows = np.flatnonzero(changes < NEVER)
        rows = rows[order_by(self._state.windows.slots[rows], changes[rows])]
        self._state.windows.first_changes = None
        self._emit_open(rows, self._after_items)

    def _emit_open(self, rows: Ints, pos: int) -> None:
        """Emit results of open windows, with position `pos` in the epoch."""
        state = self._state
        if self._windowing.may_merge:
            state.windows.ensure_emitted()[rows] = True
        self._emitter.emit_results(state.windows, rows, state.keys, np.full(state.count, pos))

    @override
    def _enter_rows(
        self,
        entering: EnteringRows,
        arriving: ArrivingRows,
        watermark_us: Ints,
        pos_of_slot: Ints,
    ) -> None:
        if self._plan.waits:
            entering = self._buffer(entering, arriving, watermark_us, pos_of_slot)
        if arriving.partials:
            entering = enter_partials(self._plan, self._state, entering, arriving)
        self._enter(entering, arriving.values, value_reader(arriving.values), pos_of_slot)
        self._advance(watermark_us, pos_of_slot)

    @override
    def _missed_windows(
        self, late: EnteringRows, values: list[Any]
    ) -> Sequence[tuple[WindowMetadata, ...]]:
        return missed_windows(self._windowing, *self._windowing.ids_at(late.times_us))

    def _buffer(
        self, entering: EnteringRows, arriving: ArrivingRows, watermark_us: Ints, pos_of_slot: Ints
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

    @override
    def _advance(self, watermark_us: Ints, pos_of_slot: Ints) -> list[Ints]:
        """Enter buffered values that each slot's watermark passes, and close windows."""
        released = self._release(watermark_us, pos_of_slot)
        state = self._state
        self._late.emit(state.keys, pos_of_slot)
        windows = state.windows
        closed_at_us = self._windowing.closed_at_us(state)
        is_closing = has_closed(closed_at_us, watermark_us[windows.slots])
        rows = np.flatnonzero(is_closing)
        self._read_lists(rows)
        self._emitter.emit_closed(windows, rows, closed_at_us[rows], state.keys, pos_of_slot)
        if not len(rows):
            return released
        closed = windows.slots[rows]
        self._changed[closed] = True
        state.counted_values = self._windowing.counted_after(state, rows)
        state.windows = windows.take(~is_closing)
        return [*released, closed]

    @override
    def _move_to_blocks(self, store: BlockStore, is_moving: Mask) -> None:
        super()._move_to_blocks(store, is_moving)
        if self._stores_lists:
            windows = self._state.windows
            # A list that a merge reads, to retract it, has had no values since the step emitted it,
            # and so it has not moved.
            rows = np.flatnonzero(is_moving[windows.slots])
            for column in windows.accumulators:
                column.map_lists(rows, lambda entries: move_list(entries, store))

    def _read_lists(self, rows: Ints) -> None:
        """Read the blocks of the lists of windows."""
        store, windows = self.blocks, self._state.windows
        if store is None:
            return
        for column in windows.accumulators:
            read = column.map_lists(rows, lambda entries: read_list(entries, store.take))
            self._changed[windows.slots[read]] = True

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
        values = fields_as_records(objects_of(released.values), self._plan.fields)
        self._enter(entering, values, released.values.__getitem__, pos_of_slot)
        return [released.slots]

    def _enter(
        self,
        entering: EnteringRows,
        values: Values,
        value_of: Callable[[int], Any],
        pos_of_slot: Ints,
    ) -> None:
        """Add rows to the windows that are open as each row enters, and emit unassigned rows.

        Raises:
            KeyFailure: when a user's function raised.
        """
        state, plan, entry_numbers = self._state, self._plan, entering.slots
        if plan.counts_arrivals:  # Otherwise, any numbers do.
            entry_numbers = numbered(state.entry_counts, entering.slots)
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
        in_gap, late = entering.take(unassigned.in_gap), entering.take(unassigned.late)
        self._late.add(in_gap, LateReason.GAP, value_of, no_windows)
        self._late.add(
            late,
            LateReason.LATE,
            value_of,
            lambda *_: missed_windows(self._windowing, unassigned.ids, unassigned.counts),
        )

    @override
    def _holds_us(self) -> Ints:
        state, windows = self._state, self._state.windows
        holds_us = state.next_us()
        holds_us[holds_us < NEVER] -= self._plan.reach_us
        if len(windows) and self._windowing.closes_by_time:
            bounds_us = self._windowing.bounds_us(windows, np.arange(len(windows)))
            first = run_starts(windows.slots)
            slots = windows.slots[first]
            times_us = self._plan.holds_us(bounds_us, windows.latest_us)
            holds_us[slots] = np.minimum(holds_us[slots], np.minimum.reduceat(times_us, first))
        return holds_us

    @override
    def _next_us(self) -> Ints:
        state = self._state
        next_us = state.next_us()
        if len(state.windows):
            first = run_starts(state.windows.slots)
            slots = state.windows.slots[first]
            close_us = self._windowing.closed_at_us(state)[first]
            next_us[slots] = np.minimum(next_us[slots], close_us)
        return next_us


class Emitter:
    """The emission of results, retractions and closed windows of a shard in one epoch.

    Args:
        plan: the plan of the step.
        made: the output of the shard.
        wanted: the numbers of the step's streams that have a reader.
    """

    def __init__(self, plan: WindowPlan, made: ShardOutput, wanted: frozenset[int]) -> None:
        self._made = made
        self._plan = plan
        self._wanted = wanted
        self._retractions: list[Update] = []

    def emit_closed(
        self,
        windows: OpenWindows,
        rows: Ints,
        closed_at_us: Ints,
        keys: pa.Array,
        pos_of_slot: Ints,
    ) -> None:
        """Emit the metadata of windows that close, and results that no update has emitted.

        Args:
            windows: the open windows.
            rows: the rows of the windows that close, sorted by slot and watermark of the close.
            closed_at_us: the watermark at which each window closes.
            keys: the key of each slot.
            pos_of_slot: the position in the epoch of the output of each slot.
        """
        if self._plan.emit != "update":
            retractions, self._retractions = self._retractions, []
            updates = [*self._results_of(windows, rows, closed_at_us), *retractions]
            self.emit_updates(updates, keys, pos_of_slot)
        if CLOSED not in self._wanted:
            self._made.unread[CLOSED] += len(rows)
        elif len(rows):
            closed = self._update(windows, rows, closed_at_us, [])
            batch = self._records(METADATA, closed)
            names = keys.take(pa.array(closed.slots))
            self._made.chunks[CLOSED].append(KeyedRecords(names, batch, pos_of_slot[closed.slots]))

    def emit_results(
        self, windows: OpenWindows, rows: Ints, keys: pa.Array, pos_of_slot: Ints
    ) -> None:
        """Emit the results of the windows in the given rows, in the given order."""
        updates = self._results_of(windows, rows, np.arange(len(rows)))
        self.emit_updates(updates, keys, pos_of_slot)

    def add_retractions(self, updates: list[Update]) -> None:
        """Collect retractions for `emit_closed`, which orders them and results by watermark."""
        self._retractions += updates

    def emit_updates(self, updates: list[Update], keys: pa.Array, pos_of_slot: Ints) -> None:
        """Emit results and retractions, those of each key sorted by `Update.order`.

        Each update is sorted by order already; of rows with equal order, those of an earlier update
        come first. Only keys with retractions need rows of several updates merged.
        """
        if DOWN not in self._wanted:
            self._made.unread[DOWN] += sum(len(update.ids) for update in updates)
            return
        retracting = [update.slots for update in updates if update.is_retraction is not None]
        if retracting:
            retracts = np.zeros(len(pos_of_slot), np.bool_)
            retracts[np.concatenate(retracting)] = True
            merged = [update.take(np.flatnonzero(retracts[update.slots])) for update in updates]
            items = [item for update in merged for item in self._items(update)]
            slots = np.concatenate([update.slots for update in merged])
            order = np.concatenate([update.order for update in merged])
            pairs = sorted_pairs(items, slots, order, keys, pos_of_slot)
            self._made.chunks[DOWN].append(pairs)
            updates = [update.take(np.flatnonzero(~retracts[update.slots])) for update in updates]
        for update in updates:
            if len(update.ids):
                self._emit_update(update, keys, pos_of_slot)

    def _results_of(self, windows: OpenWindows, rows: Ints, order: Ints) -> list[Update]:
        """Return the current results of windows; results are not computed if nobody reads them."""
        if not len(rows):
            return []
        results: list[pa.Array | list[Any]] = []
        if DOWN in self._wanted or self._plan.emits_items:
            columns = windows.accumulators
            if self._plan.emits_accumulators:
                results = [column.take(rows).states() for column in columns]
            else:
                results = [column.results(rows) for column in columns]
        if self._plan.emits_items:
            (lists,) = results
            counts = np.fromiter(map(len, lists), np.int64, len(lists))
            rows, order = np.repeat(rows, counts), np.repeat(order, counts)
            results = [list(chain.from_iterable(lists))]
        return [self._update(windows, rows, order, results)]

    def _update(
        self, windows: OpenWindows, rows: Ints, order: Ints, results: list[pa.Array | list[Any]]
    ) -> Update:
        windowing, spans = self._plan.windowing, windows.spans
        merged_ids = None
        if windowing.kind == "sessions" and spans is not None:
            merged_ids = spans.merged_ids[rows]
        return Update(
            order,
            windows.slots[rows],
            windows.ids[rows],
            windowing.bounds_us(windows, rows),
            windows.latest_us[rows],
            results,
            merged_ids,
        )

    def _emit_update(self, update: Update, keys: pa.Array, pos_of_slot: Ints) -> None:
        names, pos = keys.take(pa.array(update.slots)), pos_of_slot[update.slots]
        if all(isinstance(column, pa.Array) for column in update.results):
            batch = self._records(WindowView(self._plan.result_columns), update)
            self._made.chunks[DOWN].append(KeyedRecords(names, batch, pos))
        else:
            self._made.chunks[DOWN].append(Pairs(names.to_pylist(), self._items(update), pos))

    def _items(self, update: Update) -> list[Any]:
        """Return ``(WindowMetadata, value)`` of each row."""
        metadata = metadata_of(self._records(METADATA, update))
        values = values_of(self._plan.result_columns, update.results)
        if update.is_retraction is not None:
            values = [
                Retracted(value) if is_retraction else value
                for value, is_retraction in zip(values, update.is_retraction.tolist(), strict=True)
            ]
        return list(zip(metadata, values, strict=True))

    def _records(self, view: WindowView, update: Update) -> pa.RecordBatch:
        """Return records of windows, with their results if the view has columns for them."""
        timestamps_us = self._plan.timestamps_us(update.bounds_us, update.latest_us)
        results = () if view.results is None else update.results
        return view.records(update.ids, update.bounds_us, timestamps_us, results, update.merged_ids)


def missed_windows(
    windowing: Windowing, ids: Ints, counts: Ints
) -> list[tuple[WindowMetadata, ...]]:
    """Return the windows that each late value misses; values share the metadata of a window.

    Args:
        windowing: the windows of the step.
        ids: the id of the first window that each value misses.
        counts: the number of windows, with consecutive ids, that each value misses.
    """
    missed = distinct(ranges(ids, counts))
    if not len(missed):
        return [()] * len(ids)
    columns = (missed, *windowing.bounds_of(missed))
    windows = tuple(map(WindowMetadata.of_us, *(column.tolist() for column in columns)))
    # The ids that a value misses are consecutive, so they are a slice of the sorted ids.
    first = np.searchsorted(missed, ids)
    ends = first + counts
    return [windows[a:b] for a, b in zip(first.tolist(), ends.tolist(), strict=True)]
