"""The displays of flows and summaries in notebooks."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter
from typing import Any

import flow.operators as op
from flow import Dataflow, Summary
from flow.visualize import to_mermaid


def bundle(shown: Any) -> dict[str, str]:
    found: dict[str, str] = shown._repr_mimebundle_(include=None, exclude=None)
    return found


def test_a_notebook_shows_a_flow_as_its_graph() -> None:
    flow = Dataflow("doubled")
    op.map("double ```", op.input("numbers", flow, [1, 2]), lambda n: 2 * n)
    shown = bundle(flow)
    assert shown["text/plain"] == "Dataflow('doubled')"
    first, *lines, last = shown["text/markdown"].splitlines()
    assert (first, last) == ("```mermaid", "```")
    assert "\n".join(lines) == to_mermaid(flow)
    assert "`" not in to_mermaid(flow), "a step's name does not end the block"


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
