"""The table at the end of a run, counts of each step, as text and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from flow.displays import display_as, print_as
from flow.engine.epoch.statistics import STATISTICS, Statistic
from flow.engine.epoch.summary import Summary
from flow.errors import behind_text, cut_text, printable
from flow.reports.loss_warnings import wait_advice

_COLUMNS = tuple(each for each in STATISTICS if each.column)
_LONGEST_ID = 40
_PARTITIONS_SHOWN = 12


def summary_text(summary: Summary) -> str:
    """Return a table of a run: a line for each step in flow order, and a line of totals.

    A count that is 0 for all steps has no column.

    >>> summary = Summary("example", "batch", epochs=1, seconds=2.0)
    >>> summary.step_ids, summary.inputs = ("numbers", "odd"), ("numbers",)
    >>> summary.counts.update({("numbers", "out"): 3000, ("odd", "in"): 3000})
    >>> summary.counts.update({("odd", "out"): 1500, ("odd", "filtered"): 1500})
    >>> print(summary)
    step        in    out  filtered  keys
    numbers         3,000
    odd      3,000  1,500     1,500
    example: 1 epoch, 3,000 items in 2.0 s, 1,500 items/s (batch)
    """
    steps = summary.steps_shown()
    below = map(printable, lines_below(steps, summary.inputs, summary))
    return "\n".join([*_aligned(table_rows(steps, summary)), *below])


def table_rows(step_ids: Sequence[str], summary: Summary) -> list[tuple[str, ...]]:
    """Return the rows of the table: the names of columns, then a row for each step."""
    columns = [
        column
        for column in _COLUMNS
        if column.is_always_shown or any(_cell(step_id, column, summary) for step_id in step_ids)
    ]
    rows = [
        (_short(step_id), *(_cell(step_id, column, summary) for column in columns))
        for step_id in step_ids
    ]
    return [("step", *(column.column for column in columns)), *rows]


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


def _cell(step_id: str, column: Statistic, summary: Summary) -> str:
    """Return a statistic of a step as text; empty for 0."""
    numbers = summary.counts if column.is_counter else summary.gauges
    number = numbers[step_id, column.name]
    return f"{number:,}" if number else ""


def _short(step_id: str) -> str:
    return cut_text(printable(" ".join(step_id.split())), _LONGEST_ID)


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


_TABLE = "border-collapse: collapse; font-variant-numeric: tabular-nums"
_CELL = "padding: 2px 10px; border-bottom: 1px solid rgba(128, 128, 128, .35); text-align: "


def summary_html(summary: Summary) -> str:
    """Return a table of a run as HTML: a row for each step, and the totals below.

    >>> made = Summary("example", "batch", epochs=1, seconds=2.0, step_ids=("<in>",))
    >>> "&lt;in&gt;" in summary_html(made)
    True
    """
    steps = summary.steps_shown()
    head, *rows = table_rows(steps, summary)
    top = (f'<table style="{_TABLE}">', f"<thead>{_row(head, 'th')}</thead>", "<tbody>")
    below = (f"<div>{escape(line)}</div>" for line in lines_below(steps, summary.inputs, summary))
    return "\n".join([*top, *(_row(row, "td") for row in rows), "</tbody></table>", *below])


def _row(cells: tuple[str, ...], tag: str) -> str:
    sides = ["left", *["right"] * (len(cells) - 1)]
    made = (
        f'<{tag} style="{_CELL}{side}">{escape(printable(cell))}</{tag}>'
        for side, cell in zip(sides, cells, strict=True)
    )
    return f"<tr>{''.join(made)}</tr>"


print_as(Summary, summary_text)
display_as(Summary, lambda summary: {"text/html": summary_html(summary)})
