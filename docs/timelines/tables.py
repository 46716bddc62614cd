"""The timeline of a table: changes, the versions of the table, and the items that see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import flow.operators as op
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource
from timelines.chart import ROW, TOP, WIDTH, Axis
from timelines.svg import Drawing

KEY = "x"


class Seen(NamedTuple):
    """An item, and the value that it sees.

    Attributes:
        at: the item's arrival, in seconds.
        value: the value of the key; ``None`` without one.
    """

    at: float
    value: str | None


@dataclass(frozen=True)
class TableRun:
    """A run of a table with one key.

    Attributes:
        changes: the arrival of each change, in seconds, and its value.
        items: the items.
        epochs: the planning of each epoch, in seconds.
    """

    changes: tuple[tuple[float, str | None], ...]
    items: tuple[Seen, ...]
    epochs: tuple[float, ...]


def run_table(
    changes: Sequence[tuple[float, str | None]], items: Sequence[float], epochs: Sequence[float]
) -> TableRun:
    """Send changes and items to a flow with a table: each in the first epoch after its arrival."""
    flow = Dataflow("timeline")
    changed = op.input("changes", flow, TestingSource([]))
    arrived = op.input("items", flow, TestingSource([]))
    table = op.table("table", changed)
    op.output("out", op.map_with("look", arrived, table, _seen), TestingSink([]))
    with TestDriver(flow) as driver:
        before = float("-inf")
        for epoch in epochs:
            driver.send_all(
                {
                    "changes": [(KEY, value) for at, value in changes if before < at <= epoch],
                    "items": [at for at in items if before < at <= epoch],
                }
            )
            before = epoch
        return TableRun(tuple(changes), tuple(driver.received("out")), tuple(epochs))


def _seen(at: float, table: Mapping[str, str]) -> Seen:
    return Seen(at, table.get(KEY))


def draw_table(title: str, description: str, axis: Axis, run: TableRun) -> str:
    """Draw changes, the version of each epoch over the time whose arrivals it reads, and items."""
    drawing = Drawing(title, description)
    bottom = TOP + ROW * 3 + 12
    for epoch in run.epochs:
        drawing.line(axis.x(epoch), TOP, axis.x(epoch), bottom, "grid")
        drawing.text(axis.x(epoch), bottom + 14, axis.label(epoch), "dim", "middle")
    drawing.text(WIDTH - 14, bottom + 14, axis.unit, "dim", "end")
    y = TOP + ROW / 2
    drawing.text(14, y, "changes", "dim")
    for at, value in run.changes:
        drawing.circle(axis.x(at), y, 9, "value")
        drawing.text(axis.x(at), y, value or "-", "letter")
    y += ROW
    drawing.text(14, y, "versions", "dim")
    for start, epoch in pairwise((axis.first, *run.epochs)):
        known = [value for at, value in run.changes if at <= epoch]
        left, right = axis.x(start), axis.x(epoch)
        drawing.rect(left, y - 8, right - left, 16, "window")
        drawing.text((left + right) / 2, y, _text(known[-1] if known else None), "code", "middle")
    y += ROW
    drawing.text(14, y, "items", "dim")
    for item in run.items:
        drawing.circle(axis.x(item.at), y, 4, "value")
        drawing.text(axis.x(item.at) + 8, y, f"sees {_text(item.value)}", "code")
    return drawing.svg(WIDTH, bottom + 34)


def _text(value: str | None) -> str:
    return "no x" if value is None else f"x = {value}"
