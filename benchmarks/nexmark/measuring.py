"""One run of one query, timed.

The clock starts when the first epoch has ended, and stops when the last has: what is timed is the
flow at work on the events of all epochs but the first, with the windows of the first that are still
open, up to the last result. Starting the query, and the workers, falls into the first epoch. A run
of one epoch, as of the batch engine, is timed whole.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.nexmark.processor_time import processor_seconds
from benchmarks.nexmark.queries import Query
from benchmarks.nexmark.tables import Tables
from flow import EpochReport, run
from flow.connectors.files import ParquetSink
from recovery import RecoveryConfig

EngineName = Literal["streaming", "batch"]


class Mark(NamedTuple):
    """How far a run was at some moment: rows read, and seconds since whenever."""

    rows: int
    seconds: float
    processor_seconds: float | None


@dataclass(frozen=True)
class Measured:
    """What a run took.

    Attributes:
        events: how many of Nexmark's events went by while it was timed.
        rows: how many rows of its tables it read of these.
        seconds: for how long it was timed.
        core_seconds: how long processors worked for it in that time; where that is not known, how
            long the cores that it was given were there.
        whole_seconds: how long the whole run took, with the start of the query.
    """

    events: float
    rows: int
    seconds: float
    core_seconds: float
    whole_seconds: float

    @property
    def per_core(self) -> float:
        """Events a second and core."""
        return self.events / self.core_seconds


@dataclass(frozen=True)
class Settings:
    """How to run the queries.

    Attributes:
        tables: what they read.
        engine: the engine; the streaming one keeps a checkpoint.
        cores: how many cores Spark was given.
        epoch_events: how many events an epoch covers.
    """

    tables: Tables
    engine: EngineName
    cores: int
    epoch_events: int


def measure(
    query: Query, settings: Settings, say: Callable[[str], None], check: Callable[[Path], Any]
) -> Measured:
    """Run a query in the Spark session there is.

    Args:
        query: which one.
        settings: how to run it.
        say: told how far it is, once an epoch.
        check: called with the directory of the result before that is removed.
    """
    scratch = Path(tempfile.mkdtemp(prefix="nexmark-"))
    marks: list[Mark] = []

    def on_epoch(report: EpochReport) -> None:
        rows = sum(report.count(table, "out") for table in query.reads)
        marks.append(_mark(rows + (marks[-1].rows if marks else 0)))
        say(f"epoch {report.epoch}: {marks[-1].rows:,} rows read")

    def source(table: str, columns: Any) -> Any:
        return settings.tables.source(table, columns, settings.epoch_events)

    flow = query.flow(source, ParquetSink(scratch / "result"))
    recovery = RecoveryConfig(scratch / "state") if settings.engine == "streaming" else None
    began = _mark(0)
    try:
        run(flow, engine=settings.engine, recovery=recovery, on_epoch=on_epoch)
        ended = _mark(0)
        check(scratch / "result")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return measured(began, marks, ended, settings)


def measured(began: Mark, marks: list[Mark], ended: Mark, settings: Settings) -> Measured:
    """What a run took, by the marks made as it began, after each epoch, and as it ended."""
    last = marks[-1]
    if marks[0].rows == last.rows:
        first, last = began, ended._replace(rows=last.rows)
    else:
        first = marks[0]
    seconds = last.seconds - first.seconds
    known = first.processor_seconds is not None and last.processor_seconds is not None
    used = (last.processor_seconds or 0) - (first.processor_seconds or 0)
    rows = last.rows - first.rows
    return Measured(
        events=settings.tables.events * rows / last.rows,
        rows=rows,
        seconds=seconds,
        core_seconds=used if known else settings.cores * seconds,
        whole_seconds=ended.seconds - began.seconds,
    )


def _mark(rows: int) -> Mark:
    return Mark(rows, time.perf_counter(), processor_seconds())
