"""Panes: values that are in the very same windows, where windows overlap.

The windows of a key are runs of its panes in order of time. So numbers are added up by pane, once
each, and windows are put together from panes, however many values those have (J. Li et al., No
pane, no gain: efficient evaluation of sliding-window aggregates over data streams, SIGMOD Record
34(1), 2005).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from flow.columns.arrays import Ints, order_by, ranges, run_starts, starts_of
from flow_windowing.columnar.aggregates.aggregated import Aggregated
from flow_windowing.columnar.aggregates.number_figures import Column, at_rows
from flow_windowing.columnar.state.holding import Holding
from flow_windowing.columnar.state.open_windows import OpenWindows, Rows
from flow_windowing.columnar.windows.entering import Entering, Newcomers
from flow_windowing.columnar.windows.spreading import Spread, gathered_lots

Join: TypeAlias = Callable[[list[Column], list[Column]], list[Column]]
"""What makes columns of two parts, row by row."""

_LEAST = 8
"""With fewer values a window, to add up each of them is less work than to join sums of panes."""


class Panes(NamedTuple):
    """Values by pane, and windows as runs of panes.

    Attributes:
        at: the values, pane after pane.
        starts: where those of each pane start.
        windows: the windows that get values.
        first: the first pane of each.
        counts: how many panes each has from there on.
    """

    at: Ints
    starts: Ints
    windows: Rows
    first: Ints
    counts: Ints

    def joined(self, parts: list[Column], join: Join) -> list[Column]:
        """The columns of windows, made of those of panes.

        Of parts for each pane come those for runs of two, of four and so on; a window takes the
        ones that its number of panes is made of.
        """
        made = at_rows(parts, self.first)
        at, left, reach = self.first + 1, self.counts - 1, 1
        most = int(left.max(initial=0))
        while True:
            chosen = np.flatnonzero(left & reach)
            joined = join(at_rows(made, chosen), at_rows(parts, at[chosen]))
            for column, new in zip(made, joined, strict=True):
                column[chosen] = new
            at[chosen] += reach
            if most < 2 * reach:
                return made
            parts = join([one[:-reach] for one in parts], [one[reach:] for one in parts])
            reach *= 2


def let_in_by_pane(held: Holding, newcomers: Newcomers, spread: Spread, late: Ints) -> Spread:
    """Let values into windows by pane, where that is less work than one by one.

    Args:
        held: what holds the windows.
        newcomers: the values.
        spread: the windows that they enter.
        late: which of the values are late for some of their windows.

    Returns:
        The values that have not entered.
    """
    if (spread.counts <= 1).all():
        return spread
    entering = newcomers.entering
    whole = np.ones(len(spread.at), np.bool_)
    if len(late):
        # A window that closes while values come has some of a pane, so is no run of panes.
        some_late = np.zeros(held.count, np.bool_)
        some_late[entering.places[late]] = True
        whole = ~some_late[entering.places]
    by_pane = spread.take(whole)
    panes = panes_of(entering, by_pane) if len(by_pane.at) else None
    if panes is None:
        return spread
    held.windows, rows = held.windows.opened(panes.windows)
    groups = newcomers.groups(panes.at, panes.starts)
    others = [one for one in held.windows.figures if not one.add_panes(rows, groups, panes)]
    if others:
        _add_one_by_one(held, newcomers, by_pane, others)
    _note(newcomers, held.windows, rows, panes)
    return spread.take(~whole)


def _add_one_by_one(
    held: Holding, newcomers: Newcomers, spread: Spread, figures: list[Aggregated]
) -> None:
    """Add values to some of the figures of windows that are open already."""
    for gathered in gathered_lots(held, newcomers.entering, spread):
        rows = held.windows.rows_of(gathered.windows)
        groups = newcomers.groups(gathered.at, gathered.starts)
        for figure in figures:
            figure.add(rows, groups)


def _note(newcomers: Newcomers, windows: OpenWindows, rows: Ints, panes: Panes) -> None:
    """Note what `Newcomers.note` does."""
    if windows.changed is not None:
        first = np.minimum.reduceat(panes.at, panes.starts)
        (turns,) = panes.joined([first], _lesser)
        windows.changed[rows] = np.minimum(windows.changed[rows], turns)
    if newcomers.keeps_latest:
        # Values lie in order of time: the last one of a window's last pane is its latest.
        ends = np.append(panes.starts[1:], len(panes.at)) - 1
        latest = panes.at[ends[panes.first + panes.counts - 1]]
        latest_us = newcomers.entering.times_us[latest]
        windows.latest_us[rows] = np.maximum(windows.latest_us[rows], latest_us)


def _lesser(left: list[Column], right: list[Column]) -> list[Column]:
    return [np.minimum(a, b) for a, b in zip(left, right, strict=True)]


def panes_of(entering: Entering, spread: Spread) -> Panes | None:
    """Bring values together by pane; ``None`` where windows get too few of them for that.

    Args:
        entering: the values.
        spread: the windows that they enter, at least one each; of two values of a key the later
            one enters none that is before those of the other, and leaves none sooner.
    """
    order = order_by(entering.places[spread.at], entering.times_us[spread.at])
    at, first, counts = spread.take(order)
    places, last = entering.places[at], first + counts - 1
    starts = _changes(places, first, last)
    places, first, last = places[starts], first[starts], last[starts]
    # Panes of a key whose windows follow one another without a gap open a stretch of windows.
    apart = (places[1:] != places[:-1]) | (first[1:] > last[:-1] + 1)
    stretch = np.concatenate([[0], np.cumsum(apart)])
    begins = run_starts(stretch)
    lengths = last[np.append(begins[1:], len(first)) - 1] - first[begins] + 1
    if counts.sum() < _LEAST * lengths.sum():
        return None
    windows = Rows(np.repeat(places[begins], lengths), ranges(first[begins], lengths))
    # A window's panes are those that have begun with it and have not ended before it.
    shift = (starts_of(lengths) - first[begins])[stretch]
    begun = np.cumsum(np.bincount(first + shift, minlength=len(windows.ids)))
    ended = np.cumsum(np.bincount(last + 1 + shift)[: len(windows.ids)])
    return Panes(at, starts, windows, ended, begun - ended)


def _changes(*columns: Ints) -> Ints:
    """Where each run of rows that are alike starts."""
    change = np.zeros(len(columns[0]), np.bool_)
    change[0] = True
    for column in columns:
        change[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(change)
