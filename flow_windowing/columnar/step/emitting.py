"""The output of a shard: results and metadata of windows, and retractions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, distinct, ranges
from flow.columns.chunks import KeyedRecords, Pairs
from flow.keyed.shard_logic import ShardOutput
from flow_windowing.columnar.admission.admitted_rows import sorted_pairs
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.windows.window_view import METADATA, WindowView, metadata_of, values_of
from flow_windowing.columnar.windows.windowing import Update, Windowing, WindowPlan
from flow_windowing.rules.metadata import CLOSED, DOWN, Retracted, WindowMetadata


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
        if DOWN in self._wanted:
            columns = windows.accumulators
            if self._plan.emits_accumulators:
                results = [column.take(rows).states() for column in columns]
            else:
                results = [column.results(rows) for column in columns]
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
