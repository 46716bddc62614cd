"""Panes of overlapping windows: the values of a pane are in the same windows.

A window of a key is a run of the key's panes in order of time. So each number is reduced once, in
its pane, and windows are combined from panes (J. Li et al., No pane, no gain: efficient evaluation
of sliding-window aggregates over data streams, SIGMOD Record 34(1), 2005).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flow.columns.arrays import Ints, order_by, ranges, run_starts, starts_of
from flow_windowing.columnar.aggregates.accumulator_column import AccumulatorColumn
from flow_windowing.columnar.aggregates.runs import Column, GroupRuns
from flow_windowing.columnar.state.open_windows import OpenWindows, WindowRefs
from flow_windowing.columnar.state.shard_state import ShardState
from flow_windowing.columnar.windows.row_batch import EnteringRows, RowBatch
from flow_windowing.columnar.windows.window_ranges import WindowRanges, grouped_chunks

_LEAST = 8
"""The least mean number of values per window for panes; with fewer, adding each value is faster."""


class Panes(NamedTuple):
    """Entering rows grouped by pane, and windows as runs of panes.

    Attributes:
        entries: the index of each entering row, pane after pane.
        starts: the index in `entries` of each pane's first row.
        windows: the windows that get values, sorted by slot and id.
        runs: the run of panes of each window.
    """

    entries: Ints
    starts: Ints
    windows: WindowRefs
    runs: GroupRuns


def add_by_pane(
    state: ShardState, batch: RowBatch, ranges_: WindowRanges, late: Ints
) -> WindowRanges:
    """Add values to windows by pane, if that is less work than adding them one by one.

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
        # A window that closes between the values of a pane is not a run of whole panes.
        has_late = np.zeros(state.count, np.bool_)
        has_late[entering.slots[late]] = True
        is_whole = ~has_late[entering.slots]
    by_pane = ranges_.take(is_whole)
    panes = panes_of(entering, by_pane) if len(by_pane.entries) else None
    if panes is None:
        return ranges_
    state.windows, rows = state.windows.open(panes.windows)
    groups = batch.groups(panes.entries, panes.starts)
    remaining = [
        column
        for column in state.windows.accumulators
        if not column.add_runs(rows, groups, panes.runs)
    ]
    if remaining:
        _add_one_by_one(state, batch, by_pane, remaining)
    _record_changes(batch, state.windows, rows, panes)
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


def _record_changes(batch: RowBatch, windows: OpenWindows, rows: Ints, panes: Panes) -> None:
    """Record the first change and the greatest timestamp of windows, see `record_changes`."""
    if windows.first_changes is not None:
        first_of_pane = np.minimum.reduceat(panes.entries, panes.starts)
        (first,) = panes.runs.combine([first_of_pane], _minimum)
        windows.first_changes[rows] = np.minimum(windows.first_changes[rows], first)
    if batch.needs_latest:
        # Rows are sorted by time: the last row of a window's last pane has its latest timestamp.
        ends = np.append(panes.starts[1:], len(panes.entries)) - 1
        latest = panes.entries[ends[panes.runs.first + panes.runs.counts - 1]]
        latest_us = batch.entering.times_us[latest]
        windows.latest_us[rows] = np.maximum(windows.latest_us[rows], latest_us)


def _minimum(left: list[Column], right: list[Column]) -> list[Column]:
    return [np.minimum(a, b) for a, b in zip(left, right, strict=True)]


def panes_of(entering: EnteringRows, ranges_: WindowRanges) -> Panes | None:
    """Group entering rows by pane; return ``None`` if windows get too few values.

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
    # A stretch is a sequence of panes of a key whose windows have consecutive ids.
    is_apart = (slots[1:] != slots[:-1]) | (first[1:] > last[:-1] + 1)
    stretch = np.concatenate([[0], np.cumsum(is_apart)])
    begins = run_starts(stretch)
    lengths = last[np.append(begins[1:], len(first)) - 1] - first[begins] + 1
    if counts.sum() < _LEAST * lengths.sum():
        return None
    windows = WindowRefs(np.repeat(slots[begins], lengths), ranges(first[begins], lengths))
    # The panes of a window begin at the window or before it, and end at the window or after it.
    shift = (starts_of(lengths) - first[begins])[stretch]
    begun = np.cumsum(np.bincount(first + shift, minlength=len(windows.ids)))
    ended = np.cumsum(np.bincount(last + 1 + shift)[: len(windows.ids)])
    return Panes(entries, starts, windows, GroupRuns(ended, begun - ended))


def _run_starts(*columns: Ints) -> Ints:
    """Return the start of each run of rows that are equal in all columns."""
    is_start = np.zeros(len(columns[0]), np.bool_)
    is_start[0] = True
    for column in columns:
        is_start[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(is_start)
