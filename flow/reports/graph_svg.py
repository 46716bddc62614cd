"""The graph of a flow as an SVG picture, drawn without another program.

Steps are boxes in bands, one for each level. Inputs are rounded, outputs have a double edge, and
thick arrows are shuffles. Colours follow the reader's light or dark scheme.

Each step has a row below the steps that it reads. A row holds steps of one level, so the levels are
bands. An edge that passes rows has a *bend* in each of them, which keeps a place free between the
steps.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import TypeAlias

from flow.dataflow import Dataflow
from flow.displays import display_as
from flow.errors import printable
from flow.reports.graph import Graph, GraphStep, graph_of_flow

_LETTER = 7.4
_LONGEST = 32
_BOX_HEIGHT = 46.0
_ROW_GAP = 40.0
_BAND_TOP = 30.0
_MARGIN = 16.0

_STYLE = """
.flow-graph text { font-family: system-ui, 'Segoe UI', Helvetica, Arial, sans-serif;
  font-size: 13px; fill: #1f2328; text-anchor: middle; }
.flow-graph .fg-dim { font-size: 11px; fill: #59636e; }
.flow-graph .fg-band-name { font-size: 11px; fill: #59636e; text-anchor: start; }
.flow-graph .fg-card { fill: #ffffff; stroke: #d1d9e0; }
.flow-graph .fg-band { fill: #f6f8fa; stroke: #d1d9e0; stroke-dasharray: 4 3; }
.flow-graph .fg-box { fill: #ddf4ff; stroke: #0550ae; }
.flow-graph .fg-end { fill: #ffffff; stroke: #0550ae; }
.flow-graph .fg-edge { fill: none; stroke: #59636e; stroke-width: 1.3; }
.flow-graph .fg-shuffle { stroke-width: 3; }
.flow-graph .fg-head { fill: #59636e; }
@media (prefers-color-scheme: dark) {
  .flow-graph text { fill: #e6edf3; }
  .flow-graph .fg-dim, .flow-graph .fg-band-name { fill: #9198a1; }
  .flow-graph .fg-card { fill: #0d1117; stroke: #3d444d; }
  .flow-graph .fg-band { fill: #151b23; stroke: #3d444d; }
  .flow-graph .fg-box { fill: #10243e; stroke: #4493f8; }
  .flow-graph .fg-end { fill: #0d1117; stroke: #4493f8; }
  .flow-graph .fg-edge { stroke: #9198a1; }
  .flow-graph .fg-head { fill: #9198a1; }
}
""".strip()


def to_svg(flow: Dataflow) -> str:
    """Draw a flow as an SVG picture. The flow need not be complete.

    >>> import flow.operators as op
    >>> flow = Dataflow("example")
    >>> _ = op.map("text", op.input("numbers", flow, [1, 2]), str)
    >>> to_svg(flow).startswith('<svg xmlns="http://www.w3.org/2000/svg" class="flow-graph"')
    True
    """
    return "\n".join(_Picture.of(flow).lines()) + "\n"


display_as(Dataflow, lambda flow: {"image/svg+xml": to_svg(flow)})


@dataclass(frozen=True)
class _Picture:
    """A flow and the layout of its graph."""

    flow_id: str
    graph: Graph
    layout: Layout
    widths: dict[str, float]

    @classmethod
    def of(cls, flow: Dataflow) -> _Picture:
        graph = graph_of_flow(flow)
        widths = {step.step_id: _width(_texts(step)) for step in graph.steps}
        levels = {step.step_id: step.level for step in graph.steps}
        layout = lay_out(levels, [(edge.up, edge.down) for edge in graph.edges], widths)
        return cls(flow.flow_id, graph, layout, widths)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the file."""
        width = max(self.layout.width + 4 * _MARGIN, 160.0)
        height = self._top(len(self.layout.rows)) + _MARGIN
        name, count = _clean(self.flow_id), len(self.graph.steps)
        size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" class="flow-graph" role="img" {size}>'
        yield f"<title>Flow {name}, {count} steps</title>"
        yield f"<style>\n{_STYLE}\n</style>"
        yield _rect("fg-card", 0.5, 0.5, width - 1, height - 1, 8)
        rows = self.layout.level_rows
        for (title, _), (first, last) in zip(self.graph.levels(), rows.values(), strict=True):
            yield from self._band(title, first, last, width)
        yield from self._edges()
        for step in self.graph.steps:
            yield from self._step(step)
        yield "</svg>"

    def _top(self, row: int) -> float:
        """Return the upper edge of the boxes of a row."""
        bands = sum(first <= row for first, _ in self.layout.level_rows.values())
        return _MARGIN + row * (_BOX_HEIGHT + _ROW_GAP) + bands * _BAND_TOP

    def _x(self, node: Node) -> float:
        return self.layout.x[node] + 2 * _MARGIN

    def _band(self, title: str, first: int, last: int, width: float) -> Iterator[str]:
        top = self._top(first) - _BAND_TOP
        height = self._top(last) + _BOX_HEIGHT + _MARGIN * 0.75 - top
        yield _rect("fg-band", _MARGIN, top, width - 2 * _MARGIN, height, 6)
        yield _text("fg-band-name", _MARGIN + 8, top + 16, title)

    def _step(self, step: GraphStep) -> Iterator[str]:
        name, kind = _texts(step)
        middle, width = self._x(step.step_id), self.widths[step.step_id]
        top = self._top(self._row_of(step.step_id))
        left = middle - width / 2
        yield f"<g><title>{_clean('; '.join(step.lines))}</title>"
        match step.operator:
            case "input":
                yield _rect("fg-end", left, top, width, _BOX_HEIGHT, _BOX_HEIGHT / 2)
            case "output":
                yield _rect("fg-end", left, top, width, _BOX_HEIGHT, 4)
                yield _rect("fg-end", left + 3, top + 3, width - 6, _BOX_HEIGHT - 6, 2)
            case _:
                yield _rect("fg-box", left, top, width, _BOX_HEIGHT, 4)
        yield _text("fg-name", middle, top + 20, name)
        yield _text("fg-dim", middle, top + 36, kind)
        yield "</g>"

    def _edges(self) -> Iterator[str]:
        shuffled = self.graph.shuffled
        for edge, route in zip(self.graph.edges, self.layout.routes, strict=True):
            kind = "fg-edge fg-shuffle" if edge.down in shuffled else "fg-edge"
            points = list(self._points(route))
            yield f'<path class="{kind}" d="{_curve(points)}"/>'
            x, y = points[-1]
            yield f'<path class="fg-head" d="M{x - 5:.1f} {y - 9:.1f}h10l-5 9z"/>'
            if edge.port != "down":
                (x1, y1), (x2, y2) = points[0], points[1]
                yield _text("fg-dim", (x1 + x2) / 2, (y1 + y2) / 2 + 4, _short(edge.port))

    def _points(self, route: Sequence[Node]) -> Iterator[tuple[float, float]]:
        """Yield the points of an edge: the ends, and the upper and lower end of each bend."""
        first = self._row_of(route[0])
        for number, node in enumerate(route):
            top, x = self._top(first + number), self._x(node)
            if number:
                yield x, top
            if number < len(route) - 1:
                yield x, top + _BOX_HEIGHT

    def _row_of(self, node: Node) -> int:
        return next(number for number, row in enumerate(self.layout.rows) if node in row)


def _curve(points: Sequence[tuple[float, float]]) -> str:
    """Return the path through points, in turn from a row to the next one, and through a row."""
    (x, y), *others = points
    parts = [f"M{x:.1f} {y:.1f}"]
    for x2, y2 in others:
        half = (y + y2) / 2
        parts.append(f"C{x:.1f} {half:.1f} {x2:.1f} {half:.1f} {x2:.1f} {y2:.1f}")
        x, y = x2, y2
    return "".join(parts)


def _texts(step: GraphStep) -> tuple[str, str]:
    """Return the two lines of a step's box."""
    step_id, *details = step.lines
    return _short(step_id), _short(", ".join(line.partition(":")[0] for line in details))


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 1]}…"


def _width(texts: Sequence[str]) -> float:
    """Return the width of a box in pixels, an estimate from the widths of letters."""
    return max(sum(map(_letter_width, _clean(text))) for text in texts) + 28


def _letter_width(letter: str) -> float:
    return _LETTER * (1.7 if unicodedata.east_asian_width(letter) in "WF" else 1.0)


def _clean(text: str) -> str:
    """Return text for SVG: markup escaped, and characters that XML does not have shown as text."""
    shown = printable(" ".join(text.split())).encode("utf-8", "backslashreplace").decode()
    return escape(shown.replace("\ufffe", "?").replace("\uffff", "?"))


def _rect(kind: str, x: float, y: float, width: float, height: float, radius: float) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" rx="{radius:.1f}"/>'
    )


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{_clean(text)}</text>'


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
    node_widths: dict[Node, float] = {step: width for step, width in widths.items()}  # noqa: C416
    node_widths.update((bend, _BEND_WIDTH) for route in routes for bend in route[1:-1])
    positions = _NodePositions(rows, node_widths)
    for sweep in range(_SWEEPS):
        positions.pull(ups if sweep % 2 == 0 else downs, is_down=sweep % 2 == 0)
    return Layout(rows, *positions.moved_to_origin(), routes, level_rows)


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


def _sort_rows(rows: list[list[Node]], neighbours: _Neighbours, *, is_down: bool) -> None:
    """Sort each row by the mean place of the nodes in the row before, to cross few edges."""
    for row in rows if is_down else reversed(rows):
        at = {node: number for other in rows for number, node in enumerate(other)}
        own = {node: number for number, node in enumerate(row)}
        row.sort(key=lambda node: _mean([at[one] for one in neighbours[node]], own[node]))


def _mean(numbers: Sequence[float], default: float) -> float:
    return sum(numbers) / len(numbers) if numbers else default


@dataclass
class _NodePositions:
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
