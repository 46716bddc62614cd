"""Aggregation of records before the shuffle, where it cannot change a result.

A task of stage 0 aggregates records of a key that enter the same windows to a *partial row*: their
accumulators, their number, their greatest timestamp and position. The shard adds the accumulators
to its windows. So a million records may become a few thousand rows.

Results are the same if the order in which values enter means nothing, and if all the records are on
time. A record is on time for certain if no record before it has a timestamp that is more than the
wait ahead. Of the records of the task that is known; of those before the task, the *front* is an
upper bound. All other records leave as they are, and partial rows of their key end at each, so that
its watermark there is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, Mask, ranges, run_starts
from flow.columns.chunks import KeyedRecords, radix_order
from flow.instants import NEVER
from flow.keyed.shard_logic import PARTIAL_COUNT, PARTIAL_TIME, STAMP_COLUMN
from flow.keyed.step import TimeColumn
from flow_windowing.aggregates.aggregator import Aggregator, form_of
from flow_windowing.columnar.admission.admitted_rows import ArrivingRows, EnteringRows
from flow_windowing.columnar.admission.shard_clocks import ShardClock
from flow_windowing.columnar.aggregates.accumulator_column import (
    FORM_OF_KIND,
    AccumulatorColumn,
    has_kernel,
    kernel_for,
)
from flow_windowing.columnar.aggregates.accumulators import Groups, UnfitForColumns
from flow_windowing.columnar.state.shard_state import ShardState
from flow_windowing.columnar.windows.indexed_windows import IndexedWindows
from flow_windowing.columnar.windows.windowing import RowBatch, WindowPlan, group_by_window

LEAST_ROWS = 4_096
"""Records at once, at least; fewer are not worth the work."""

LEAST_RATIO = 4
"""Records of a partial row in the mean, at least; with fewer, aggregating twice takes longer."""


@dataclass(frozen=True)
class WindowPreaggregation:
    """The aggregation before the shuffle of a windowing step; see `flow.keyed.step.Preaggregation`.

    Attributes:
        clock: the clock of the step.
        windowing: the windows.
        aggregators: the aggregates.
    """

    clock: ShardClock[Any]
    windowing: IndexedWindows
    aggregators: tuple[Aggregator[Any, Any, Any], ...]

    @classmethod
    def of(cls, plan: WindowPlan) -> WindowPreaggregation | None:
        """Return the aggregation of a step; ``None`` if it could change a result."""
        clock, windowing, aggregators = plan.clock, plan.windowing, plan.aggregators
        commutes = all(has_kernel(one) and form_of(one).ignores_arrival for one in aggregators)
        is_at_close = plan.emit == "close" and not plan.waits and plan.sides == 1
        if clock.order_wait_us is None or not commutes or not is_at_close:
            return None
        if not isinstance(windowing, IndexedWindows) or windowing.has_gaps:
            return None
        return cls(clock, windowing, aggregators) if windowing.is_late_at_once else None

    @property
    def time_column(self) -> TimeColumn | None:
        """The column with the timestamps; ``None`` if no record is late, whatever the front."""
        name, wait_us = self.clock.time_column, self.clock.order_wait_us
        return None if name is None or wait_us is None else TimeColumn(name, wait_us)

    def greatest_us(self, records: KeyedRecords) -> int:
        """Return the greatest timestamp, if records can be late; `NEVER` if one is not known."""
        if self.clock.order_wait_us == NEVER:
            return -NEVER
        times_us = self._times_us(records)
        return NEVER if times_us is None else int(times_us.max(initial=-NEVER))

    def split(
        self, records: KeyedRecords, front_us: int
    ) -> tuple[KeyedRecords, KeyedRecords] | None:
        """Return the records that are not aggregated, and partial rows.

        A partial row has the records of a *cell*: those of a key and a tile.
        """
        keys, most = records.keys, len(records) // LEAST_RATIO
        if len(records) < LEAST_ROWS or not pa.types.is_dictionary(keys.type):
            return None
        times_us = self._times_us(records)
        if times_us is None or (front_us >= NEVER and self.time_column is not None):
            return None
        # Tiles are no longer than windows, so this bound tells at once that there are many cells.
        first, _ = self.windowing.ids_at(np.array([times_us.min(), times_us.max()]))
        if len(keys.dictionary) * (int(first[1] - first[0]) + 1) > most:
            return None
        codes, tiles = keys.indices.to_numpy().astype(np.int64), self._tiles(times_us)
        width = int(tiles.max()) + 1
        is_certain = self._is_certain(times_us, front_us)
        certain, cells = np.arange(len(codes)), codes * width + tiles
        if not is_certain.all():
            certain, cells = _cut_cells(cells, codes, is_certain)
        order = radix_order(cells, int(cells.max(initial=0)) + 1)
        rows, starts = certain[order], run_starts(cells[order])
        if not len(starts) or len(starts) > most:
            return None
        partials = self._partial_rows(records, rows, times_us[rows], starts)
        if partials is None:
            return None
        last = rows[np.append(starts[1:], len(rows)) - 1]
        if STAMP_COLUMN in records.batch.schema.names:
            stamps = records.batch[STAMP_COLUMN].take(pa.array(last))
            partials = partials.append_column(STAMP_COLUMN, stamps)
        partial_rows = KeyedRecords(keys.take(pa.array(last)), partials, records.pos[last])
        return _taken(records, keys, np.flatnonzero(~is_certain)), partial_rows

    def _times_us(self, records: KeyedRecords) -> Ints | None:
        read = self.clock.times_in(records.batch)
        return None if read is None or not read[1].all() else read[0]

    def _tiles(self, times_us: Ints) -> Ints:
        """Return the number of the tile of each record, from 0; a tile has the same windows."""
        first, counts = self.windowing.ids_at(times_us)
        # Neither the first nor the last window decreases with time, so their sum tells tiles apart.
        tiles: Ints = first if (counts == counts[0]).all() else 2 * first + counts
        numbers: Ints = tiles - tiles.min()
        return numbers

    def _is_certain(self, times_us: Ints, front_us: int) -> Mask:
        """Return the mask of records that are on time for certain; see `split`."""
        wait_us = self.clock.order_wait_us
        if wait_us is None or wait_us >= NEVER:
            return np.ones(len(times_us), np.bool_)
        before_us = np.maximum.accumulate(np.append(front_us, times_us[:-1]))
        is_certain: Mask = times_us >= before_us - wait_us
        return is_certain

    def _partial_rows(
        self, records: KeyedRecords, rows: Ints, times_us: Ints, starts: Ints
    ) -> pa.RecordBatch | None:
        """Return the partial rows of cells; ``None`` if columns of numbers cannot hold them.

        Args:
            records: the records.
            rows: the index of each certain record, cell after cell.
            times_us: their timestamps.
            starts: the index in `rows` of the first record of each cell.
        """
        groups, count = Groups(records.batch, rows, starts, _no_arrivals, True), len(starts)
        columns: dict[str, Ints] = {
            PARTIAL_TIME: np.maximum.reduceat(times_us, starts),
            PARTIAL_COUNT: groups.counts,
        }
        for number, aggregator in enumerate(self.aggregators):
            kernel = kernel_for(aggregator, groups)
            if kernel is None:
                return None
            accumulators = kernel.empty(aggregator, count)
            try:
                accumulators.add(np.arange(count), groups)
            except UnfitForColumns:
                return None
            for at, column in enumerate(accumulators.columns):
                columns[f"{number} {at} {kernel.kind}"] = column
        return pa.RecordBatch.from_pydict(columns)


def _cut_cells(cells: Ints, codes: Ints, is_certain: Mask) -> tuple[Ints, Ints]:
    """Return the certain records, and their cells, cut at each uncertain record of the key.

    Args:
        cells: the number of the cell of each record.
        codes: the number of its key.
        is_certain: the mask of certain records.
    """
    by_key = radix_order(codes, int(codes.max()) + 1)
    blocks = np.empty_like(codes)
    blocks[by_key] = np.cumsum(~is_certain[by_key])
    certain = np.flatnonzero(is_certain)
    return certain, (blocks * (int(cells.max()) + 1) + cells)[certain]


def _taken(records: KeyedRecords, keys: pa.Array, rows: Ints) -> KeyedRecords:
    """Return the given rows of records, whose keys are `keys`."""
    chosen = pa.array(rows)
    return KeyedRecords(keys.take(chosen), records.batch.take(chosen), records.pos[rows])


def enter_partials(
    plan: WindowPlan, state: ShardState, entering: EnteringRows, arriving: ArrivingRows
) -> EnteringRows:
    """Add the accumulators of partial rows to their windows; return the rows that are values."""
    numbers = entering.rows - len(arriving.values)
    is_partial = numbers >= 0
    if not is_partial.any():
        return entering
    rows, numbers = entering.take(is_partial), numbers[is_partial]
    first, counts = plan.windowing.ids_at(rows.times_us)
    entries = np.repeat(np.arange(len(numbers)), counts)
    groups = group_by_window(rows, entries, ranges(first, counts))
    state.windows, targets = state.windows.open(groups.windows)
    for number, column in enumerate(state.windows.accumulators):
        added = _accumulators(plan.aggregators[number], number, arriving.partials)
        column.add_runs_of(targets, added.take(numbers[groups.entries]), groups.starts)
    batch = RowBatch(rows, [], rows.slots, plan.keeps_latest, True, plan.emit, [])
    batch.record_changes(state.windows, targets, groups)
    return entering.take(~is_partial)


def _accumulators(
    aggregator: Aggregator[Any, Any, Any], number: int, partials: tuple[pa.RecordBatch, ...]
) -> AccumulatorColumn:
    """Return the accumulators of an aggregate, by its number, in all partial rows."""
    whole = AccumulatorColumn(aggregator)
    for batch in partials:
        names = [name for name in batch.schema.names if name.startswith(f"{number} ")]
        kernel = FORM_OF_KIND[names[0].split(" ", 2)[2]]
        columns = [batch[name].to_numpy() for name in names]
        whole = whole.concat(AccumulatorColumn(aggregator, kernel(aggregator, columns)))
    return whole


def _no_arrivals() -> tuple[Ints, Ints, Ints]:
    raise TypeError("the aggregates of partial rows ignore arrivals")
