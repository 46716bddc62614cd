"""The displays of a flow and of a summary in notebooks: a picture of the graph, and a table."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from flow.dataflow import Dataflow
from flow.displays import display_as
from flow.engine.epoch.summary import Summary
from flow.errors import printable
from flow.reports.graph_svg import to_svg
from flow.reports.summary_table import lines_below, table_rows

_TABLE = "border-collapse: collapse; font-variant-numeric: tabular-nums"
_CELL = "padding: 2px 10px; border-bottom: 1px solid rgba(128, 128, 128, .35); text-align: "


def summary_html(summary: Summary) -> str:
    """Return a table of a run as HTML: a row for each step, and the totals below.

    >>> made = Summary("example", "batch", epochs=1, seconds=2.0, step_ids=("<in>",))
    >>> "&lt;in&gt;" in summary_html(made)
    True
    """
    return "\n".join(_lines(summary))


def _lines(summary: Summary) -> Iterator[str]:
    head, *rows = table_rows(summary.steps_shown(), summary)
    yield f'<table style="{_TABLE}">'
    yield f"<thead>{_row(head, 'th')}</thead>"
    yield "<tbody>"
    for row in rows:
        yield _row(row, "td")
    yield "</tbody></table>"
    for line in lines_below(summary.steps_shown(), summary.inputs, summary):
        yield f"<div>{escape(line)}</div>"


def _row(cells: tuple[str, ...], tag: str) -> str:
    sides = ["left", *["right"] * (len(cells) - 1)]
    made = (
        f'<{tag} style="{_CELL}{side}">{escape(printable(cell))}</{tag}>'
        for side, cell in zip(sides, cells, strict=True)
    )
    return f"<tr>{''.join(made)}</tr>"


display_as(Dataflow, lambda flow: {"image/svg+xml": to_svg(flow)})
display_as(Summary, lambda summary: {"text/html": summary_html(summary)})
