"""The table of results, beside the published results of Flink."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.nexmark.measuring import Measured
from benchmarks.nexmark.queries import Query

FLINK_PER_CORE = {"q5": 22_140, "q7": 12_330, "q8": 146_140, "q11": 39_700, "q12": 75_670}
"""Events a second and core of Apache Flink: Throughput/Cores in GUIDE_V1.md of the Nexmark suite at
commit 6b3646c3, which ``docs/explanation/nexmark.md`` links (100 million events; RocksDB, exactly
once)."""

HEADS = ("query", "", "rows", "s", "cores", "s, whole", "events/s/core", "Flink's", "ratio")
NOTES = (
    "rows: what the query reads of the events that were timed, from the tables it is about.",
    "events/s/core: events of all three tables over the seconds of processors used.",
)


def table(results: Mapping[str, Sequence[Measured]], queries: Mapping[str, Query]) -> str:
    """Return the table as text; a query's row is its median run by events/s/core."""
    rows = [HEADS, *(_row(queries[name], runs) for name, runs in results.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_line(row, widths) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], *NOTES])


def median(runs: Sequence[Measured]) -> Measured:
    """Return the median run by events/s/core; of two the slower."""
    middle = statistics.median_low(one.per_core for one in runs)
    return next(one for one in runs if one.per_core == middle)


def _row(query: Query, runs: Sequence[Measured]) -> tuple[str, ...]:
    run, flink = median(runs), FLINK_PER_CORE[query.name]
    return (
        query.name,
        query.title,
        f"{run.rows:,}",
        f"{run.seconds:.1f}",
        f"{run.core_seconds / run.seconds:.2f}",
        f"{run.whole_seconds:.1f}",
        f"{run.per_core:,.0f}",
        f"{flink:,}",
        f"{run.per_core / flink:.1f}x",
    )


def _line(cells: Iterable[str], widths: Sequence[int]) -> str:
    name, title, *figures = zip(cells, widths, strict=True)
    texts = [f"{cell:<{width}}" for cell, width in (name, title)]
    return "  ".join([*texts, *(f"{cell:>{width}}" for cell, width in figures)])
