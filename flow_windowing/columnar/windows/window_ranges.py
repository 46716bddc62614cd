"""Ranges of windows that values enter, by chunks or by tiles.

If a window of a day opens every minute, a value is in 1,440 windows. A pair of a value and a window
takes about 55 bytes while the value enters. An open window takes about as many bytes, but values
share it. So consecutive values enter in chunks, and memory has the open windows and the pairs of
one chunk.

For columns of numbers and windows with many values, tiles are faster. The values of a tile are in
the same windows, and a window of a key is a run of the key's tiles in order of time. So each number
is reduced once, in its tile, and windows are combined from tiles (J. Li et al., No pane, no gain:
efficient evaluation of sliding-window aggregates over data streams, SIGMOD Record 34(1), 2005).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from flow.columns.arrays import Ints, Mask, order_by, ranges, run_starts, starts_of
from flow_windowing.columnar.admission.rows import EnteringRows
from flow_windowing.columnar.aggregates.accumulator_column import AccumulatorColumn
from flow_windowing.columnar.aggregates.accumulators import Column, GroupRuns
from flow_windowing.columnar.state.open_windows import OpenWindows, WindowRefs
from flow_windowing.columnar.state.shard_state import ShardState
from flow_windowing.columnar.windows.row_batch import RowBatch, WindowGroups, group_by_window

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
    state: ShardState, entering: EnteringRows, ranges_: WindowRanges
) -> Iterator[WindowGroups]:
    """Group entering rows by window, chunk after chunk.

    Args:
        state: the shard state; the caller adds a chunk's values before it takes the next chunk.
        entering: the entering rows.
        ranges_: the windows that the rows enter.
    """
    if (ranges_.counts == 1).all():
        yield group_by_window(entering, ranges_.entries, ranges_.first)
        return
    ends, begin, before = np.cumsum(ranges_.counts), 0, 0
    while begin < len(ends):
        most = before + pairs_per_chunk(state.windows)
        end = max(int(np.searchsorted(ends, most, "right")), begin + 1)
        entries, first, counts = ranges_.take(slice(begin, end))
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
    state: ShardState, batch: RowBatch, ranges_: WindowRanges, late: Ints
) -> WindowRanges:
    """Add values to windows by tile, if that is less work than adding them one by one.

    Args:
        state: the shard state.
        batch: the batch of rows.
        ranges_: the windows that the batch's rows enter.
        late: the rows that are late for some of their windows.

    Returns:
        The ranges of the rows that have not been added.
    """
    if (ranges_.counts <= 1).all():
        return ranges_
    entering = batch.entering
    is_whole = np.ones(len(ranges_.entries), np.bool_)
    if len(late):
        # A window that closes between the values of a tile is not a run of whole tiles.
        has_late = np.zeros(state.count, np.bool_)
        has_late[entering.slots[late]] = True
        is_whole = ~has_late[entering.slots]
    by_tile = ranges_.take(is_whole)
    tiles = tiles_of(entering, by_tile) if len(by_tile.entries) else None
    if tiles is None:
        return ranges_
    state.windows, rows = state.windows.open(tiles.windows)
    groups = batch.groups(tiles.entries, tiles.starts)
    remaining = [
        column
        for column in state.windows.accumulators
        if not column.add_runs(rows, groups, tiles.runs)
    ]
    if remaining:
        _add_one_by_one(state, batch, by_tile, remaining)
    _record_changes(batch, state.windows, rows, tiles)
    return ranges_.take(~is_whole)


def _add_one_by_one(
    state: ShardState, batch: RowBatch, ranges_: WindowRanges, accumulators: list[AccumulatorColumn]
) -> None:
    """Add values to some of the accumulators of open windows."""
    for groups in grouped_chunks(state, batch.entering, ranges_):
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


def tiles_of(entering: EnteringRows, ranges_: WindowRanges) -> Tiles | None:
    """Group entering rows by tile; return ``None`` if windows get too few values.

    Args:
        entering: the entering rows.
        ranges_: the windows that the rows enter, at least one for each row. Both the first and the
            last window of a key's rows do not decrease with the rows' timestamps.
    """
    order = order_by(entering.slots[ranges_.entries], entering.times_us[ranges_.entries])
    entries, first, counts = ranges_.take(order)
    slots, last = entering.slots[entries], first + counts - 1
    starts = _run_starts(slots, first, last)
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


def _run_starts(*columns: Ints) -> Ints:
    """Return the start of each run of rows that are equal in all columns."""
    is_start = np.zeros(len(columns[0]), np.bool_)
    is_start[0] = True
    for column in columns:
        is_start[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(is_start)
