"""Tumbling, sliding and calendar windows of many keys: their bounds follow from their index.

Values enter ranges of windows, by chunks or by tiles. If a window of a day opens every minute, a
value is in 1,440 windows. A pair of a value and a window takes about 55 bytes while the value
enters. An open window takes about as many bytes, but values share it. So consecutive values enter
in chunks, and memory has the open windows and the pairs of one chunk.

For columns of numbers and windows with many values, tiles are faster. The values of a tile are in
the same windows, and a window of a key is a run of the key's tiles in order of time. So each number
is reduced once, in its tile, and windows are combined from tiles (J. Li et al., No pane, no gain:
efficient evaluation of sliding-window aggregates over data streams, SIGMOD Record 34(1), 2005).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, distinct, order_by, ranges, run_starts, starts_of
from flow_windowing.columnar.admission.admitted_rows import EnteringRows
from flow_windowing.columnar.aggregates.accumulator_column import AccumulatorColumn
from flow_windowing.columnar.aggregates.accumulators import Column, GroupRuns
from flow_windowing.columnar.state.shard_state import OpenWindows, ShardState, WindowRefs
from flow_windowing.columnar.windows.windowing import (
    RowBatch,
    UnassignedRows,
    WindowGroups,
    Windowing,
    group_by_window,
)
from flow_windowing.rules.watermark import has_closed
from flow_windowing.windowers.aligned import SlidingWindower, TumblingWindower
from flow_windowing.windowers.calendar import CalendarWindower

_PAIRS = 1 << 18
_LEAST = 8
"""The least mean number of values per window for tiles; with fewer, adding each value is faster."""


class WindowRanges(NamedTuple):
    """Entering rows, each with the range of windows that it enters.

    Attributes:
        entries: the index of each entering row, in order of entering.
        first: the id of the first window of each row.
        counts: the number of windows of each row, with consecutive ids.
    """

    entries: Ints
    first: Ints
    counts: Ints

    @classmethod
    def of(cls, first: Ints, counts: Ints) -> WindowRanges:
        """Return the ranges of all entering rows."""
        return cls(np.arange(len(first)), first, counts)

    def take(self, chosen: Ints | Mask | slice) -> WindowRanges:
        """Return the chosen ranges."""
        return WindowRanges(self.entries[chosen], self.first[chosen], self.counts[chosen])


def pairs_per_chunk(windows: OpenWindows) -> int:
    """Return the number of pairs of a chunk; a chunk has at least the pairs of one value.

    Each chunk scans all open windows once. A chunk has at least as many pairs as there are open
    windows, so that the scan never takes longer than the work on pairs.
    """
    return max(_PAIRS, len(windows))


def grouped_chunks(
    state: ShardState, entering: EnteringRows, entered: WindowRanges
) -> Iterator[WindowGroups]:
    """Group entering rows by window, chunk after chunk.

    Args:
        state: the shard state; the caller adds a chunk's values before it takes the next chunk.
        entering: the entering rows.
        entered: the windows that the rows enter.
    """
    if (entered.counts == 1).all():
        yield group_by_window(entering, entered.entries, entered.first)
        return
    ends, begin, before = np.cumsum(entered.counts), 0, 0
    while begin < len(ends):
        most = before + pairs_per_chunk(state.windows)
        end = max(int(np.searchsorted(ends, most, "right")), begin + 1)
        entries, first, counts = entered.take(slice(begin, end))
        yield group_by_window(entering, np.repeat(entries, counts), ranges(first, counts))
        begin, before = end, int(ends[end - 1])


class Tiles(NamedTuple):
    """Entering rows grouped by tile, and windows as runs of tiles.

    Attributes:
        entries: the index of each entering row, tile after tile.
        starts: the index in `entries` of each tile's first row.
        windows: the windows that get values, sorted by slot and id.
        runs: the run of tiles of each window.
    """

    entries: Ints
    starts: Ints
    windows: WindowRefs
    runs: GroupRuns


def add_by_tile(
    state: ShardState, batch: RowBatch, entered: WindowRanges, late: Ints
) -> WindowRanges:
    """Add values to windows by tile, if that is less work than adding them one by one.

    Args:
        state: the shard state.
        batch: the batch of rows.
        entered: the windows that the batch's rows enter.
        late: the rows that are late for some of their windows.

    Returns:
        The ranges of the rows that have not been added.
    """
    if (entered.counts <= 1).all():
        return entered
    entering = batch.entering
    is_whole = np.ones(len(entered.entries), np.bool_)
    if len(late):
        # A window that closes between the values of a tile is not a run of whole tiles.
        has_late = np.zeros(state.count, np.bool_)
        has_late[entering.slots[late]] = True
        is_whole = ~has_late[entering.slots]
    by_tile = entered.take(is_whole)
    tiles = tiles_of(entering, by_tile) if len(by_tile.entries) else None
    if tiles is None:
        return entered
    state.windows, rows = state.windows.open(tiles.windows)
    groups, accumulators = batch.groups(tiles.entries, tiles.starts), state.windows.accumulators
    remaining = [one for one in accumulators if not one.add_runs(rows, groups, tiles.runs)]
    if remaining:
        _add_one_by_one(state, batch, by_tile, remaining)
    _record_changes(batch, state.windows, rows, tiles)
    return entered.take(~is_whole)


def _add_one_by_one(
    state: ShardState, batch: RowBatch, entered: WindowRanges, accumulators: list[AccumulatorColumn]
) -> None:
    """Add values to some of the accumulators of open windows."""
    for groups in grouped_chunks(state, batch.entering, entered):
        rows = state.windows.rows_of(groups.windows)
        of_aggregates = batch.groups(groups.entries, groups.starts)
        for column in accumulators:
            column.add(rows, of_aggregates)


def _record_changes(batch: RowBatch, windows: OpenWindows, rows: Ints, tiles: Tiles) -> None:
    """Record the first change and the greatest timestamp of windows, see `record_changes`."""
    if windows.first_changes is not None:
        first_of_tile = np.minimum.reduceat(tiles.entries, tiles.starts)
        (first,) = tiles.runs.combine([first_of_tile], _minimum)
        windows.first_changes[rows] = np.minimum(windows.first_changes[rows], first)
    if batch.needs_latest:
        # Rows are sorted by time: the last row of a window's last tile has its latest timestamp.
        ends = np.append(tiles.starts[1:], len(tiles.entries)) - 1
        latest = tiles.entries[ends[tiles.runs.first + tiles.runs.counts - 1]]
        latest_us = batch.entering.times_us[latest]
        windows.latest_us[rows] = np.maximum(windows.latest_us[rows], latest_us)


def _minimum(left: list[Column], right: list[Column]) -> list[Column]:
    return [np.minimum(a, b) for a, b in zip(left, right, strict=True)]


def tiles_of(entering: EnteringRows, entered: WindowRanges) -> Tiles | None:
    """Group entering rows by tile; return ``None`` if windows get too few values.

    Args:
        entering: the entering rows.
        entered: the windows that the rows enter, at least one for each row. Both the first and the
            last window of a key's rows do not decrease with the rows' timestamps.
    """
    order = order_by(entering.slots[entered.entries], entering.times_us[entered.entries])
    entries, first, counts = entered.take(order)
    slots, last = entering.slots[entries], first + counts - 1
    starts = run_starts(slots, first, last)
    slots, first, last = slots[starts], first[starts], last[starts]
    # A stretch is a sequence of tiles of a key whose windows have consecutive ids.
    is_apart = (slots[1:] != slots[:-1]) | (first[1:] > last[:-1] + 1)
    stretch = np.concatenate([[0], np.cumsum(is_apart)])
    begins = run_starts(stretch)
    lengths = last[np.append(begins[1:], len(first)) - 1] - first[begins] + 1
    if counts.sum() < _LEAST * lengths.sum():
        return None
    windows = WindowRefs(np.repeat(slots[begins], lengths), ranges(first[begins], lengths))
    # The tiles of a window begin at the window or before it, and end at the window or after it.
    shift = (starts_of(lengths) - first[begins])[stretch]
    begun = np.cumsum(np.bincount(first + shift, minlength=len(windows.ids)))
    ended = np.cumsum(np.bincount(last + 1 + shift)[: len(windows.ids)])
    return Tiles(entries, starts, windows, GroupRuns(ended, begun - ended))


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
        entering, unassigned = batch.entering, UnassignedRows()
        first, counts = self.ids_at(entering.times_us)
        if self.has_gaps:
            unassigned = UnassignedRows(np.flatnonzero(counts == 0))
        if not self.is_late_at_once:
            closed = self.closed_counts(first, counts, entering.watermark_us)
            late = np.flatnonzero(closed)
            unassigned = UnassignedRows(unassigned.in_gap, late, first[late], closed[late])
            first, counts = first + closed, counts - closed
        entered = WindowRanges.of(first, counts)
        if batch.emit != "update":
            entered = add_by_tile(state, batch, entered, unassigned.late)
        for groups in grouped_chunks(state, entering, entered):
            self.add_groups(state, batch, groups)
        return unassigned

    @override
    def bounds_per_value(
        self, windows: OpenWindows, rows: Ints, batch: RowBatch, groups: WindowGroups
    ) -> tuple[Ints, Ints]:
        return self.bounds_of(np.repeat(groups.windows.ids, groups.counts))


class AlignedWindows(IndexedWindows):
    """Windows of one length on a grid; see `flow_windowing.windowers.aligned`."""

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

    def _ids_near(self, times_us: Ints) -> Ints:
        """Return the ids of the windows that overlap a UTC day with a timestamp, ascending."""
        index_at = self._windower.calendar.index_at
        near: set[int] = set()
        for day in distinct(times_us // _DAY_US).tolist():
            first, last = index_at(day * _DAY_US), index_at((day + 1) * _DAY_US - 1)
            near.update(range(first, last + 1))
        return np.array(sorted(near), np.int64)

    def _starts_us(self, window_ids: Ints) -> Ints:
        """Return the open times of windows; each distinct window is looked up once."""
        ids = distinct(window_ids)
        start_us = self._windower.calendar.start_us
        starts_us = np.array(list(map(start_us, ids.tolist())), np.int64)
        return starts_us[np.searchsorted(ids, window_ids)] if len(ids) else ids
