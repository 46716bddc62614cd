"""Tumbling and sliding windows of many keys at once."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints
from flow_windowing.columnar.windows.indexed_windows import IndexedWindows
from flow_windowing.windowers.aligned import SlidingWindower, TumblingWindower


class AlignedWindows(IndexedWindows):
    """Windows of one length on a grid; see `flow_windowing.rules.grid`."""

    def __init__(self, windower: TumblingWindower | SlidingWindower) -> None:
        self._grid = windower.grid
        self.is_late_at_once = windower.grace_us is None
        self.has_gaps = self._grid.has_gaps

    @override
    def ids_at(self, times_us: Ints) -> tuple[Ints, Ints]:
        last = self._grid.last_at(times_us)
        if self._grid.is_tumbling:
            return last, np.ones(len(last), np.int64)
        first = self._grid.first_at(times_us)
        return first, last - first + 1

    @override
    def bounds_of(self, window_ids: Ints) -> tuple[Ints, Ints]:
        return self._grid.bounds_us(window_ids)

    @override
    def closes_of(self, window_ids: Ints) -> Ints:
        return self._grid.closed_at_us(window_ids)

    @override
    def closed_counts(self, first: Ints, counts: Ints, watermark_us: Ints) -> Ints:
        if self._grid.is_tumbling:
            return super().closed_counts(first, counts, watermark_us)
        closed: Ints = np.clip(self._grid.first_open(watermark_us) - first, 0, counts)
        return closed
