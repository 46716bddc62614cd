"""The graph of a flow as an SVG picture, and the displays of flows and summaries in notebooks."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

import flow.operators as op
from flow import Dataflow, Summary
from flow.reports.graph_svg import Node, lay_out, to_svg
from flow.testing import TestingSink

SVG = "{http://www.w3.org/2000/svg}"


def diamond() -> Dataflow:
    flow = Dataflow("diamond")
    numbers = op.input("numbers", flow, [1, 2])
    parts = op.branch("parts", numbers, lambda n: n > 1)
    total = op.stateful_map("total", op.key_on("keyed", parts.trues, str), lambda s, v: (s, v))
    both = op.merge("both", total, op.key_on("small", parts.falses, str))
    op.output("out", both, TestingSink([]))
    return flow


def texts(svg: str, kind: str = "") -> list[str]:
    root = ElementTree.fromstring(svg)
    found = (one for one in root.iter(f"{SVG}text") if kind in (one.get("class") or ""))
    return [one.text or "" for one in found]


def test_every_step_is_in_the_picture_with_its_operator_and_path() -> None:
    svg = to_svg(diamond())
    assert texts(svg, "fg-name") == [step.step_id for step in diamond().steps]
    assert "stateful_map, key by key" in texts(svg, "fg-dim")
    assert "total; stateful_map; key by key: stateful_map calls Python for each key" in svg
    assert {"trues", "falses"} <= set(texts(svg, "fg-dim")), "ports are named at their edges"


def test_levels_are_bands_and_shuffles_are_thick() -> None:
    svg = to_svg(diamond())
    assert texts(svg, "fg-band-name") == ["level 0", "level 1, after shuffle 1"]
    assert svg.count('class="fg-edge fg-shuffle"') == 1
    assert svg.count('class="fg-head"') == sum(len(step.ups) for step in diamond().steps)


def test_colours_follow_the_scheme_and_nothing_is_loaded() -> None:
    svg = to_svg(diamond())
    assert "@media (prefers-color-scheme: dark)" in svg
    assert re.findall(r"(?:href|src|url)\W", svg) == []
    unscoped = [
        line
        for line in re.findall(r"^ *([^@{}\n]+) \{", svg, re.MULTILINE)
        if not line.startswith(".flow-graph ")
    ]
    assert unscoped == [], "the style of a picture must not reach the page around it"


@pytest.mark.parametrize(
    "name", ["</text><script>", "a&b", '"', "\0\x1b[31m", "\ud800", "\uffff", "日本語" * 20, "a\nb"]
)
def test_odd_names_are_text(name: str) -> None:
    flow = Dataflow(name)
    op.map(f"step {name}", op.input(f"in {name}", flow, [1]), str)
    root = ElementTree.fromstring(to_svg(flow))
    assert {one.tag for one in root.iter()} <= {
        SVG + tag for tag in ("svg", "title", "style", "rect", "path", "g", "text")
    }


def test_an_empty_flow_has_a_picture() -> None:
    assert texts(to_svg(Dataflow("empty"))) == []


def test_the_order_of_a_row_avoids_crossings() -> None:
    levels = dict.fromkeys("abcd", 0)
    made = lay_out(levels, [("a", "d"), ("b", "c")], dict.fromkeys("abcd", 50.0))
    assert made.rows == [["a", "b"], ["d", "c"]]


@pytest.mark.parametrize("seed", range(20))
def test_no_boxes_overlap_and_all_lie_within_the_width(seed: int) -> None:
    levels = {str(n): n // 5 for n in range(20)}
    edges = [(str(n), str(n + 1 + (n * seed) % 7)) for n in range(12)]
    widths = {str(n): 40.0 + (n * seed) % 90 for n in range(20)}
    made = lay_out(levels, edges, widths)

    def half(node: Node) -> float:
        return widths[node] / 2 if isinstance(node, str) else 0

    for row in made.rows:
        for left, right in pairwise(row):
            assert made.x[left] + half(left) < made.x[right] - half(right)
        for node in row:
            assert half(node) - 1e-6 <= made.x[node] <= made.width - half(node) + 1e-6
    assert {node for row in made.rows for node in row if isinstance(node, str)} == set(levels)


def bundle(shown: Any) -> dict[str, str]:
    found: dict[str, str] = shown._repr_mimebundle_(include=None, exclude=None)
    return found


def test_a_notebook_shows_a_flow_as_its_graph() -> None:
    flow = diamond()
    shown = bundle(flow)
    assert shown == {"text/plain": "Dataflow('diamond')", "image/svg+xml": to_svg(flow)}


def test_a_notebook_shows_a_summary_as_a_table() -> None:
    summary = Summary("visits", "batch", 1, 2.0, step_ids=("in", "<a>"), inputs=("in",))
    summary.counts = Counter({("in", "out"): 3000, ("<a>", "in"): 3000, ("<a>", "late"): 2})
    html = bundle(summary)["text/html"]
    rows = ElementTree.fromstring(f"<div>{html}</div>").iter("tr")
    cells = [[cell.text or "" for cell in row] for row in rows]
    assert cells == [
        ["step", "in", "out", "late", "keys"],
        ["in", "", "3,000", "", ""],
        ["<a>", "3,000", "", "2", ""],
    ]
    assert "visits: 1 epoch, 3,000 items in 2.0 s, 1,500 items/s (batch)" in html


def test_a_summary_without_steps_shows_those_that_have_counts() -> None:
    summary = Summary("visits", "batch", counts=Counter({("b", "in"): 1, ("a", "out"): 1}))
    assert summary.steps_shown() == ("a", "b")
    assert ">b</td>" in bundle(summary)["text/html"]
