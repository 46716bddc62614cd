"""The output of a shard: results and metadata of windows, retractions and late values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, distinct, ranges
from flow.columns.chunks import Chunk, KeyedRecords, Pairs
from flow.instants import MIN_US, NEVER
from flow.keyed.logic import Counted
from flow.keyed.shard_logic import ShardEpoch, ShardOutput
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.windows.plan import WindowPlan
from flow_windowing.columnar.windows.updates import Update
from flow_windowing.columnar.windows.window_view import (
    ResultColumn,
    WindowView,
    metadata_of,
    window_metadata,
)
from flow_windowing.contract.metadata import LateReason, LateValue, Retracted, WindowMetadata
from flow_windowing.rules.lateness import counted_late
from flow_windowing.rules.streams import CLOSED, DOWN, LATE, PORTS

_METADATA = WindowView(None)


class LateRows(NamedTuple):
    """Late values in columns; each row becomes one item of the late stream.

    Attributes:
        rows: the index of each row's value in its batch of rows.
        slots: the slot of each row's key.
        times_us: the timestamps, int64 µs.
        numbers: the arrival numbers.
        watermark_us: the watermark of the key as each row arrived or left the buffer.
        ids: the id of the first window that each row misses.
        counts: the number of windows, with consecutive ids, that each row misses; 0 if unknown.
        reason: the reason, the same for all rows.
    """

    rows: Ints
    slots: Ints
    times_us: Ints
    numbers: Ints
    watermark_us: Ints
    ids: Ints
    counts: Ints
    reason: LateReason


class Emitter:
    """The collector of a shard's output in one epoch.

    Attributes:
        made: the output so far.
    """

    def __init__(self, plan: WindowPlan, epoch: ShardEpoch) -> None:
        self.made = ShardOutput.empty(len(PORTS))
        self._plan = plan
        self._wanted = epoch.wanted
        self._late: list[tuple[LateRows, Callable[[int], Any]]] = []
        self._retractions: list[Update] = []

    def count(self, name: str, amount: int, note: str = "") -> None:
        """Count values that the step emits to no stream."""
        if amount:
            self.made.counted.append(Counted(name, amount, note))

    def add_late(
        self, late: LateRows, value_of: Callable[[int], Any], sources: Ints | None = None
    ) -> None:
        """Count late values and collect them for `emit_late`.

        Args:
            late: the late values.
            value_of: returns the value of a row as a Python object.
            sources: the number of each row's source partition; ``None`` if unknown.
        """
        if late.reason is LateReason.LATE and len(late.rows):
            late_by_us = late.watermark_us - late.times_us
            is_behind = late_by_us > 0
            sources = None if sources is None else sources[is_behind]
            self.made.counted += counted_late(late_by_us[is_behind], sources)
        if len(late.rows) and LATE in self._wanted:
            self._late.append((late, value_of))
        else:
            self.made.unread[LATE] += len(late.rows)

    def emit_late(self, keys: pa.Array, pos_of_slot: Ints) -> None:
        """Emit the collected late values, those of each key in order of arrival."""
        collected, self._late = self._late, []
        if not collected:
            return
        slots = np.concatenate([late.slots for late, _ in collected])
        numbers = np.concatenate([late.numbers for late, _ in collected])
        values = [
            value for late, value_of in collected for value in self._values_of(late, value_of)
        ]
        self._emit_sorted(LATE, values, slots, numbers, keys, pos_of_slot)

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
            self.made.unread[CLOSED] += len(rows)
        elif len(rows):
            closed = self._update(windows, rows, closed_at_us, [])
            batch = self._records(_METADATA, closed)
            names = _keys_of(closed, keys)
            self._append(CLOSED, KeyedRecords(names, batch, pos_of_slot[closed.slots]))

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
            self.made.unread[DOWN] += sum(len(update.ids) for update in updates)
            return
        retracting = [update.slots for update in updates if update.is_retraction is not None]
        if retracting:
            retracts = np.zeros(len(pos_of_slot), np.bool_)
            retracts[np.concatenate(retracting)] = True
            merged = [update.take(np.flatnonzero(retracts[update.slots])) for update in updates]
            items = [item for update in merged for item in self._items(update)]
            slots = np.concatenate([update.slots for update in merged])
            order = np.concatenate([update.order for update in merged])
            self._emit_sorted(DOWN, items, slots, order, keys, pos_of_slot)
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
        names, pos = _keys_of(update, keys), pos_of_slot[update.slots]
        if all(isinstance(column, pa.Array) for column in update.results):
            batch = self._records(WindowView(self._plan.result_columns), update)
            self._append(DOWN, KeyedRecords(names, batch, pos))
        else:
            self._append(DOWN, Pairs(names.to_pylist(), self._items(update), pos))

    def _emit_sorted(
        self,
        port: int,
        values: list[Any],
        slots: Ints,
        order: Ints,
        keys: pa.Array,
        pos_of_slot: Ints,
    ) -> None:
        """Emit Python objects, sorted by slot and order; the sort is stable."""
        by_slot = np.lexsort((order, slots))
        slots = slots[by_slot]
        names = keys.take(pa.array(slots)).to_pylist()
        in_order = [values[row] for row in by_slot.tolist()]
        self._append(port, Pairs(names, in_order, pos_of_slot[slots]))

    def _items(self, update: Update) -> list[Any]:
        """Return ``(WindowMetadata, value)`` of each row."""
        metadata = metadata_of(self._records(_METADATA, update))
        values = self._values(update.results)
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

    def _append(self, port: int, chunk: Chunk) -> None:
        self.made.chunks[port].append(chunk)

    def _values(self, results: list[pa.Array | list[Any]]) -> list[Any]:
        """Return the value of each window as a Python object."""
        result_columns = self._plan.result_columns
        columns = [
            _objects(result, column) for result, column in zip(result_columns, results, strict=True)
        ]
        if result_columns[0].name is None:
            return columns[0]
        names = [result.name for result in result_columns]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _values_of(self, late: LateRows, value_of: Callable[[int], Any]) -> list[LateValue[Any]]:
        """Return the items of the late stream."""
        values = [value_of(row) for row in late.rows.tolist()]
        sides: list[int | None] = [None] * len(values)
        if self._plan.sides > 1:
            sides, values = [side for side, _ in values], [value for _, value in values]
        times = zip(late.times_us.tolist(), late.watermark_us.tolist(), strict=True)
        return [
            LateValue.of_us(
                value,
                time_us,
                watermark_us if watermark_us > -NEVER else MIN_US - 1,
                windows,
                late.reason,
                side,
            )
            for value, side, (time_us, watermark_us), windows in zip(
                values, sides, times, self._missed_windows(late), strict=True
            )
        ]

    def _missed_windows(self, late: LateRows) -> list[tuple[WindowMetadata, ...]]:
        """Return the windows that each value misses; values share the metadata of a window."""
        ids = distinct(ranges(late.ids, late.counts))
        if not len(ids):
            return [()] * len(late.rows)
        windows = tuple(window_metadata(ids, self._plan.windowing.missed_bounds_us(ids)))
        # The ids that a value misses are consecutive, so they are a slice of the sorted ids.
        first = np.searchsorted(ids, late.ids)
        ends = first + late.counts
        return [windows[a:b] for a, b in zip(first.tolist(), ends.tolist(), strict=True)]


def _keys_of(update: Update, keys: pa.Array) -> pa.Array:
    return keys.take(pa.array(update.slots))


def _objects(result: ResultColumn, column: pa.Array | list[Any]) -> list[Any]:
    """Return results as Python objects, with the empty value instead of nulls."""
    if isinstance(column, list):
        return column
    values: list[Any] = column.to_pylist()
    if result.empty_value is None or not column.null_count:
        return values
    return [result.empty_value if value is None else value for value in values]
