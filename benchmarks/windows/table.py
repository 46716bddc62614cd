"""The table of results, as text or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.windows.measuring import Measured, Standing
from benchmarks.windows.works import Work

BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
"""The markers before and after the table in a document."""

HEADS = ("work", "who", "median", "rows/s", "ratio", "to reach", "reached")
Line = tuple[str, ...]


def lines_of(measured: Measured) -> list[Line]:
    """Return a line for each contestant, those of this library first."""
    work, standings = measured.work, measured.standings
    best = _best([standings[contestant.name] for contestant in work.against])
    lines = [
        (contestant.name, *_figures(work, standings[contestant.name]))
        + (_verdict(work, standings[contestant.name], best) if contestant in work.ours else NONE)
        for contestant in work.contestants
    ]
    if measured.disagreement:
        lines = [(*line[:-1], "ANSWERS DIFFER") for line in lines]
    return [(work.title if not place else "", *line) for place, line in enumerate(lines)]


NONE: Line = ("", "", "")


def _best(standings: Sequence[Standing]) -> float | None:
    """Return the best median of the contestants that finished.

    A contestant that was stopped does not count, since the part of its time after the start and the
    warm-up is unknown.
    """
    return min((one.median for one in standings if one.median is not None), default=None)


def _figures(work: Work, standing: Standing) -> Line:
    median = standing.median
    if median is None:
        stopped = standing.stopped_after
        return ("failed" if stopped is None else f"over {stopped:,.0f} s"), ""
    shown = f"{median:,.2f} {work.unit}" if work.unit == "s" else f"{median:,.0f} {work.unit}"
    is_rate = work.events is not None and median > 0 and "skipped" not in work.settings
    return shown, f"{work.events.rows / median:,.0f}" if is_rate and work.events else ""


def _verdict(work: Work, standing: Standing, best: float | None) -> Line:
    median = standing.median
    if median is None:
        return "", "" if work.target is None else str(work.target), ""
    if work.target is None:
        return ("" if best is None else f"{best / median:.2f}x"), "", ""
    ratio, met = work.target.ratio(median, best), work.target.met(median, best)
    reached = {True: "yes", False: "no", None: ""}[met]
    return "" if ratio is None else f"{ratio:.2f}x", str(work.target), reached


def as_text(all_measured: Sequence[Measured]) -> str:
    """Return the table in columns, for a terminal."""
    groups = [lines_of(one) for one in all_measured]
    rows = [HEADS, *(line for group in groups for line in group)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEADS))]
    lines = [_aligned(HEADS, widths), _aligned(["-" * width for width in widths], widths)]
    for group in groups:
        lines += [_aligned(line, widths) for line in group]
    return "\n".join(lines)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return a line with names aligned to the left, and numbers to the right."""
    cut = [
        cell.rjust(width) if 2 <= place <= 4 else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(cut).rstrip()


def as_markdown(all_measured: Sequence[Measured], headline: str) -> str:
    """Return the table for a document, after a line about its origin."""
    rule = "|---|---|---:|---:|---:|---|---|"
    rows = [line for one in all_measured for line in lines_of(one)]
    cells = [HEADS, *rows]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([headline, "", lines[0], rule, *lines[1:], ""])


def put_into(document: str, table: str) -> str:
    """Return a document with its table replaced, or the table alone if there is none."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        return table
    return f"{before}{BEGIN}\n{table}{END}{after}"
