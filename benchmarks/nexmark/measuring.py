"""One run of one query, timed.

The measured time is from the end of the first epoch to the end of the last. It covers the events of
all epochs except the first, and the windows that the first epoch left open, up to the last result.
It excludes the start of the query and of the workers, which the first epoch contains. The time of a
run of one epoch, such as that of the batch engine, is the time of the whole run.
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
    """The rows that a run has read by some moment, and the clocks at that moment, in seconds."""

    rows: int
    seconds: float
    processor_seconds: float | None


@dataclass(frozen=True)
class Measured:
    """The times of a run.

    Attributes:
        events: the number of Nexmark's events in the measured time.
        rows: the number of these events that the query read, as rows of its tables.
        seconds: the measured time.
        core_seconds: the processor time in the measured time; if it is not known, the measured
            time multiplied by the number of cores.
        whole_seconds: the time of the whole run, with the start of the query.
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
    """Settings of the runs.

    Attributes:
        tables: the tables that queries read.
        engine: the engine; the streaming engine keeps a checkpoint.
        cores: the number of Spark's cores.
        epoch_events: the number of events in an epoch.
    """

    tables: Tables
    engine: EngineName
    cores: int
    epoch_events: int


def measure(
    query: Query, settings: Settings, say: Callable[[str], None], check: Callable[[Path], Any]
) -> Measured:
    """Run a query in the current Spark session, and return its times.

    Args:
        query: the query.
        settings: the settings of the run.
        say: called once an epoch, with the progress as text.
        check: called with the directory of the result, before the directory is removed.
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
    """Return the times of a run, from the marks at its start, after each epoch, and at its end."""
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
