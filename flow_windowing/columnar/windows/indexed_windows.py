"""Windows whose bounds follow from their index."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.state.shard_state import ShardState
from flow_windowing.columnar.windows.row_batch import RowBatch, UnassignedRows, WindowGroups
from flow_windowing.columnar.windows.tiles import add_by_tile
from flow_windowing.columnar.windows.window_ranges import WindowRanges, grouped_chunks
from flow_windowing.columnar.windows.windowing import Windowing
from flow_windowing.rules.lateness import has_closed


class IndexedWindows(Windowing):
    """Windows whose bounds follow from their index, and that close in the order of the index."""

    kind = "index"

    @abstractmethod
    def ids_at(self, times_us: Ints) -> tuple[Ints, Ints]:
        """Return the first window of each timestamp, and its number of consecutive windows."""

    @abstractmethod
    def bounds_of(self, window_ids: Ints) -> tuple[Ints, Ints]:
        """Return the open and the close times of windows."""

    @abstractmethod
    def closes_of(self, window_ids: Ints) -> Ints:
        """Return the watermark at which each window closes, grace included."""

    def closed_counts(self, first: Ints, counts: Ints, watermark_us: Ints) -> Ints:  # noqa: ARG002
        """Return the number of windows in each range that a watermark has closed.

        This implementation is for ranges of one window.
        """
        return has_closed(self.closes_of(first), watermark_us).astype(np.int64)

    @override
    def missed_by(self, times_us: Ints) -> tuple[Ints, Ints]:
        return self.ids_at(times_us)

    @override
    def missed_bounds_us(self, window_ids: Ints) -> tuple[Ints, Ints]:
        return self.bounds_of(window_ids)

    @override
    def bounds_us(self, windows: OpenWindows, rows: Ints) -> tuple[Ints, Ints]:
        return self.bounds_of(windows.ids[rows])

    @override
    def closed_at_us(self, state: ShardState) -> Ints:
        return self.closes_of(state.windows.ids)

    @override
    def enter(self, state: ShardState, batch: RowBatch) -> UnassignedRows:
        entering, unassigned = batch.entering, UnassignedRows.none()
        first, counts = self.ids_at(entering.times_us)
        if self.has_gaps:
            unassigned = unassigned._replace(in_gap=np.flatnonzero(counts == 0))
        if not self.is_late_at_once:
            closed = self.closed_counts(first, counts, entering.watermark_us)
            late = np.flatnonzero(closed)
            unassigned = unassigned._replace(late=late, ids=first[late], counts=closed[late])
            first, counts = first + closed, counts - closed
        ranges = WindowRanges.of(first, counts)
        if batch.emit != "update":
            ranges = add_by_tile(state, batch, ranges, unassigned.late)
        for groups in grouped_chunks(state, entering, ranges):
            self.add_groups(state, batch, groups)
        return unassigned

    @override
    def bounds_per_value(
        self, windows: OpenWindows, rows: Ints, batch: RowBatch, groups: WindowGroups
    ) -> tuple[Ints, Ints]:
        return self.bounds_of(np.repeat(groups.windows.ids, groups.counts))
