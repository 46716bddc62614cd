"""The layout of a flow's graph: rows of steps, each below the steps that it reads.

A row holds steps of one level, so the levels are bands. An edge that passes rows has a *bend* in
each of them, which keeps a place free between the steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

Node: TypeAlias = "str | tuple[int, int]"
"""A step's id, or a bend: the number of an edge, and a row."""

_SWEEPS = 6
_GAP = 28.0
_BEND_WIDTH = 16.0


@dataclass(frozen=True)
class Layout:
    """Places of steps and edges.

    Attributes:
        rows: the nodes of each row, from left to right.
        x: the middle of each node, in pixels, at least half of its width.
        width: the width of all rows, in pixels.
        routes: the nodes through which each edge passes, from top to bottom, in order of `edges`.
        level_rows: the first and the last row of each level.
    """

    rows: list[list[Node]]
    x: Mapping[Node, float]
    width: float
    routes: list[list[Node]]
    level_rows: Mapping[int, tuple[int, int]]


def lay_out(
    levels: Mapping[str, int], edges: Sequence[tuple[str, str]], widths: Mapping[str, float]
) -> Layout:
    """Lay out a graph.

    Args:
        levels: the level of each step, in flow order: each after the steps that it reads.
        edges: pairs of a step and a step that reads it.
        widths: the width of each step's box, in pixels.

    >>> made = lay_out({"a": 0, "b": 0, "c": 1}, [("a", "b"), ("b", "c"), ("a", "c")],
    ...                dict.fromkeys("abc", 50.0))
    >>> made.rows
    [['a'], ['b', (2, 1)], ['c']]
    """
    row_of, level_rows = _rows(levels, edges)
    rows: list[list[Node]] = [[] for _ in range(max(row_of.values(), default=-1) + 1)]
    for step, row in row_of.items():
        rows[row].append(step)
    routes = []
    for number, (upper, lower) in enumerate(edges):
        bends: list[Node] = [(number, row) for row in range(row_of[upper] + 1, row_of[lower])]
        for row, bend in enumerate(bends, row_of[upper] + 1):
            rows[row].append(bend)
        routes.append([upper, *bends, lower])
    ups, downs = _neighbours(routes)
    for sweep in range(_SWEEPS):
        _sort_rows(rows, ups if sweep % 2 == 0 else downs, is_down=sweep % 2 == 0)
    node_widths: dict[Node, float] = dict.fromkeys(_bends(routes), _BEND_WIDTH)
    node_widths.update({step: width for step, width in widths.items()})  # noqa: C416
    places = _Places(rows, node_widths)
    for sweep in range(_SWEEPS):
        places.pull(ups if sweep % 2 == 0 else downs, is_down=sweep % 2 == 0)
    return Layout(rows, *places.moved_to_origin(), routes, level_rows)


def _rows(
    levels: Mapping[str, int], edges: Sequence[tuple[str, str]]
) -> tuple[dict[str, int], dict[int, tuple[int, int]]]:
    """Return the row of each step, and the first and last row of each level."""
    row_of: dict[str, int] = {}
    level_rows: dict[int, tuple[int, int]] = {}
    ups: dict[str, list[str]] = defaultdict(list)
    for upper, lower in edges:
        ups[lower].append(upper)
    first = 0
    for level in sorted(set(levels.values())):
        for step in (step for step, found in levels.items() if found == level):
            row_of[step] = max([first, *(row_of[up] + 1 for up in ups[step])])
        last = max(row_of[step] for step, found in levels.items() if found == level)
        level_rows[level] = first, last
        first = last + 1
    return row_of, level_rows


_Neighbours: TypeAlias = "dict[Node, list[Node]]"


def _neighbours(routes: Sequence[Sequence[Node]]) -> tuple[_Neighbours, _Neighbours]:
    """Return the nodes above and below each node."""
    ups: _Neighbours = defaultdict(list)
    downs: _Neighbours = defaultdict(list)
    for route in routes:
        for upper, lower in pairwise(route):
            ups[lower].append(upper)
            downs[upper].append(lower)
    return ups, downs


def _bends(routes: Sequence[Sequence[Node]]) -> list[Node]:
    return [node for route in routes for node in route[1:-1]]


def _sort_rows(rows: list[list[Node]], neighbours: _Neighbours, *, is_down: bool) -> None:
    """Sort each row by the mean place of the nodes in the row before, to cross few edges."""
    for row in rows if is_down else reversed(rows):
        at = {node: number for other in rows for number, node in enumerate(other)}
        own = {node: number for number, node in enumerate(row)}
        row.sort(key=lambda node: _mean([at[one] for one in neighbours[node]], own[node]))


def _mean(numbers: Sequence[float], default: float) -> float:
    return sum(numbers) / len(numbers) if numbers else default


@dataclass
class _Places:
    """The middle of each node, which moves towards the nodes that it is joined to."""

    rows: list[list[Node]]
    widths: Mapping[Node, float]
    x: dict[Node, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for row in self.rows:
            self._place(row, [0.0] * len(row))

    def pull(self, neighbours: _Neighbours, *, is_down: bool) -> None:
        """Move each node towards the mean of its neighbours, without overlaps."""
        for row in self.rows if is_down else reversed(self.rows):
            wanted = [
                _mean([self.x[one] for one in neighbours[node]], self.x[node]) for node in row
            ]
            self._place(row, wanted)

    def moved_to_origin(self) -> tuple[dict[Node, float], float]:
        """Return the middles with the left edge of all nodes at 0, and the whole width."""
        left = min((self.x[node] - self.widths[node] / 2 for node in self.x), default=0.0)
        right = max((self.x[node] + self.widths[node] / 2 for node in self.x), default=0.0)
        return {node: x - left for node, x in self.x.items()}, right - left

    def _place(self, row: Sequence[Node], wanted: Sequence[float]) -> None:
        """Place the nodes of a row in order, near the wanted middles."""
        placed: list[float] = []
        for number, (node, x) in enumerate(zip(row, wanted, strict=True)):
            if number:
                apart = (self.widths[row[number - 1]] + self.widths[node]) / 2 + _GAP
                x = max(x, placed[-1] + apart)
            placed.append(x)
        pushed = _mean([at - x for at, x in zip(placed, wanted, strict=True)], 0.0)
        self.x.update({node: at - pushed for node, at in zip(row, placed, strict=True)})
