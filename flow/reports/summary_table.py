"""The table at the end of a run: counts of each step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flow.dataflow import Dataflow
from flow.engine.epoch.context import BUFFERED_VALUES, OPEN_WINDOWS
from flow.engine.epoch.summary import Summary
from flow.engine.plan.plan import Plan
from flow.errors import behind_text, printable
from flow.operators.edges import Input
from flow.reports.loss_warnings import wait_advice

_COUNTS = ("in", "out", "filtered", "late", "gap", "dropped", "invalid", "errors")
_GAUGES = {"keys": "keys", "windows": OPEN_WINDOWS, "buffered": BUFFERED_VALUES}
"""The gauges of the table, by the name of the column."""
_COLUMNS = (*_COUNTS, *_GAUGES)
_ALWAYS = ("in", "out", "keys")
"""The columns of the table that are shown even if they are empty."""

_LONGEST_ID = 40
_PARTITIONS_SHOWN = 12


def summary_table(flow: Dataflow | Plan, summary: Summary) -> str:
    """Return a table of a run: a line for each step in flow order, and a line of totals.

    A count that is 0 for all steps has no column.

    Args:
        flow: the flow that ran, or its plan.
        summary: the summary that `run` returned.

    >>> import flow.operators as op
    >>> from flow.testing import TestingSource
    >>> flow = Dataflow("example")
    >>> _ = op.filter("odd", op.input("numbers", flow, TestingSource([])), lambda n: n % 2)
    >>> summary = Summary("example", "batch", epochs=1, seconds=2.0)
    >>> summary.counts.update({("numbers", "out"): 3000, ("odd", "in"): 3000})
    >>> summary.counts.update({("odd", "out"): 1500, ("odd", "filtered"): 1500})
    >>> print(summary_table(flow, summary))
    step        in    out  filtered  keys
    numbers         3,000
    odd      3,000  1,500     1,500
    example: 1 epoch, 3,000 items in 2.0 s, 1,500 items/s (batch)
    """
    steps = flow.steps if isinstance(flow, Dataflow) else tuple(flow.steps.values())
    step_ids = [step.step_id for step in steps]
    inputs = [step.step_id for step in steps if isinstance(step.operator, Input)]
    below = map(printable, lines_below(step_ids, inputs, summary))
    return "\n".join([*_aligned(table_rows(step_ids, summary)), *below])


def table_rows(step_ids: Sequence[str], summary: Summary) -> list[tuple[str, ...]]:
    """Return the rows of the table: the names of columns, then a row for each step."""
    columns = [
        column
        for column in _COLUMNS
        if column in _ALWAYS or any(_cell(step_id, column, summary) for step_id in step_ids)
    ]
    rows = [
        (_short(step_id), *(_cell(step_id, column, summary) for column in columns))
        for step_id in step_ids
    ]
    return [("step", *columns), *rows]


def lines_below(step_ids: Sequence[str], inputs: Sequence[str], summary: Summary) -> Iterator[str]:
    """Yield the lines below the table: totals, inputs that are behind, and late values."""
    yield _total(inputs, summary)
    for step_id, counts in summary.behind.items():
        if any(counts.values()):
            yield f"{step_id}: {behind_text(counts, _PARTITIONS_SHOWN)}"
    for step_id in step_ids:
        advice = wait_advice(summary.late_by_us(step_id), summary.late_from(step_id))
        if advice:
            yield f"{step_id}: {summary.count(step_id, 'late'):,} late{advice}"


def _cell(step_id: str, column: str, summary: Summary) -> str:
    """Return a count of a step as text; empty for 0."""
    gauge = _GAUGES.get(column)
    number = summary.gauges[step_id, gauge] if gauge else summary.counts[step_id, column]
    return f"{number:,}" if number else ""


def _short(step_id: str) -> str:
    text = printable(" ".join(step_id.split()))
    return text if len(text) <= _LONGEST_ID else f"{text[: _LONGEST_ID - 1]}…"


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers in rows:
        cells = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join([name.ljust(widths[0]), *cells]).rstrip()


def _total(inputs: Sequence[str], summary: Summary) -> str:
    items = sum(summary.count(step_id, "out") for step_id in inputs)
    epochs = "1 epoch" if summary.epochs == 1 else f"{summary.epochs:,} epochs"
    rate = items / summary.seconds if summary.seconds > 0 else 0.0
    engine = f"{summary.engine}, stopped" if summary.stopped else summary.engine
    return (
        f"{summary.flow_id}: {epochs}, {items:,} items in {summary.seconds:.1f} s, "
        f"{rate:,.0f} items/s ({engine})"
    )
