"""Tumbling, sliding and calendar windows of many keys: their bounds follow from their index."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints, distinct
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.state.shard_state import ShardState
from flow_windowing.columnar.windows.row_batch import RowBatch, UnassignedRows, WindowGroups
from flow_windowing.columnar.windows.window_ranges import WindowRanges, add_by_tile, grouped_chunks
from flow_windowing.columnar.windows.windowing import Windowing
from flow_windowing.rules.watermark import has_closed
from flow_windowing.windowers.aligned import SlidingWindower, TumblingWindower
from flow_windowing.windowers.calendar import Calendar, CalendarWindower

_DAY_US = 86_400_000_000


class IndexedWindows(Windowing):
    """Windows whose bounds follow from their index, and that close in the order of the index."""

    kind = "index"

    @abstractmethod
    @override
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


class CalendarWindows(IndexedWindows):
    """Windows of a local calendar; window i lasts from the start of unit i to the next start.

    The calendar computes the starts of windows once for each UTC day with a value and once for each
    window, independent of the number of values and keys. A binary search among the starts finds the
    window of each timestamp.
    """

    has_gaps = False

    def __init__(self, windower: CalendarWindower) -> None:
        # The attribute is the windower, because its calendar has a cache that cannot be pickled.
        self._windower = windower
        self._grace_us = windower.grace_us or 0
        self.is_late_at_once = windower.grace_us is None

    @override
    def ids_at(self, times_us: Ints) -> tuple[Ints, Ints]:
        ids = self._ids_near(times_us)
        # Of windows with equal starts all but the last are empty, and the search finds the last.
        index = np.searchsorted(self._starts_us(ids), times_us, "right") - 1
        return ids[index], np.ones(len(times_us), np.int64)

    @override
    def bounds_of(self, window_ids: Ints) -> tuple[Ints, Ints]:
        return self._starts_us(window_ids), self._starts_us(window_ids + 1)

    @override
    def closes_of(self, window_ids: Ints) -> Ints:
        return self._starts_us(window_ids + 1) + self._grace_us

    @property
    def _calendar(self) -> Calendar:
        return self._windower.calendar

    def _ids_near(self, times_us: Ints) -> Ints:
        """Return the ids of the windows that overlap a UTC day with a timestamp, ascending."""
        index_at = self._calendar.index_at
        near: set[int] = set()
        for day in distinct(times_us // _DAY_US).tolist():
            first, last = index_at(day * _DAY_US), index_at((day + 1) * _DAY_US - 1)
            near.update(range(first, last + 1))
        return np.array(sorted(near), np.int64)

    def _starts_us(self, window_ids: Ints) -> Ints:
        """Return the open times of windows; each distinct window is looked up once."""
        ids = distinct(window_ids)
        starts_us = np.array([self._calendar.start_us(one) for one in ids.tolist()], np.int64)
        return starts_us[np.searchsorted(ids, window_ids)] if len(ids) else ids
