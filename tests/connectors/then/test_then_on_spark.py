"""A history, then live data, on Spark: both engines, stops, crashes and kills at the switch."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, FlowBuildError, StopFlag, run
from flow.connectors.files import JsonLinesSource, ParquetSink, ParquetSource
from flow.connectors.source import Source
from flow.connectors.then import Then
from flow.testing import ABORT, TestingSink, TestingSource
from recovery import RecoveryConfig

pytestmark = pytest.mark.spark

OPTIONS: dict[str, Any] = {"shards": 2, "partitions": 1, "system_time": 0}


class Counts:
    """A flow that counts rows by key and minute; the rows come once a second."""

    def __init__(self, source: Source[Any]) -> None:
        self.out: list[Any] = []
        self.late: list[Any] = []
        self.flow = Dataflow("counts")
        keyed = op.key_on("by_key", op.input("in", self.flow, source), "k")
        clock, minutes = win.EventClock("at", "5s"), win.TumblingWindower("1m")
        counted = win.aggregate_window("count", keyed, clock, minutes, n=win.Count())
        op.output("out", counted.down, TestingSink(self.out))
        op.output("late", counted.late, TestingSink(self.late))

    def check(self, seconds: range) -> None:
        """Check that each row was counted once and on time."""
        assert self.late == []
        found = {(key, meta.window_id): figures["n"] for key, (meta, figures) in self.out}
        assert len(found) == len(self.out), "a window came twice"
        assert found == Counter((one["k"], one["at"] // 60) for one in rows(seconds))


def rows(seconds: range) -> list[dict[str, Any]]:
    return [{"k": f"k{at % 3}", "at": at} for at in seconds]


def write(path: Path, seconds: range) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}")
    part.write_text("".join(f"{json.dumps(one)}\n" for one in rows(seconds)))
    part.rename(path)


#  history  ▒▒▒▒▒▒▒▒▒▒▒▒ ✗                killed in the last epoch of the history,
#  live                   ▒▒ ✗ ▒▒▒▒▒▒▒▒   and in the first of the live source
def test_a_run_killed_at_the_switch_gives_the_results_of_one_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = TestingSource([*rows(range(150)), ABORT(), *rows(range(150, 200))], 100)
    live = TestingSource([*rows(range(200, 230)), ABORT(), *rows(range(230, 400))], 100)
    counts = Counts(Then(history, live))
    recovery = RecoveryConfig(tmp_path / "checkpoint")
    runs = [run(counts.flow, spark=spark, recovery=recovery, **OPTIONS) for _ in range(3)]
    assert [one.aborted for one in runs] == [True, True, False]
    counts.check(range(400))


#  run 1    history ▒▒▒▒▒▒|live ▒▒▒     run 2    live ▒▒▒▒▒▒, of which half came meanwhile
def test_files_are_followed_after_a_history_of_parquet(spark: SparkSession, tmp_path: Path) -> None:
    archive, new = tmp_path / "archive", tmp_path / "new"
    flow = Dataflow("archive")
    written = op.input("in", flow, TestingSource(rows(range(300))))
    schema = pa.schema([("k", pa.string()), ("at", pa.int64())])
    op.output("out", written, ParquetSink(archive, schema=schema))
    run(flow, spark=spark, **OPTIONS)
    write(new / "1.jsonl", range(300, 400))
    history = ParquetSource(archive, rows_per_epoch=100)
    live = JsonLinesSource(new, schema=schema, follow=True, bytes_per_epoch=2_000)
    counts = Counts(Then(history, live))

    options = {**OPTIONS, "spark": spark, "recovery": RecoveryConfig(tmp_path / "checkpoint")}
    lags: list[str] = []
    run(
        counts.flow,
        trigger="available",
        drain=False,
        on_epoch=lambda report: lags.append(report.lag.get("in", "")),
        **options,
    )
    assert lags[0].startswith("history: ")
    assert lags[-1] == "1 of 1 files"
    write(new / "2.jsonl", range(400, 500))
    run(counts.flow, trigger="available", drain=True, **options)
    counts.check(range(500))


def test_a_stopped_run_goes_on_in_the_history(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "old.jsonl", range(300))
    write(tmp_path / "new/1.jsonl", range(300, 400))
    history = JsonLinesSource(tmp_path / "old.jsonl", bytes_per_epoch=2_000)
    counts = Counts(Then(history, JsonLinesSource(tmp_path / "new", follow=True)))
    options = {**OPTIONS, "spark": spark, "recovery": RecoveryConfig(tmp_path / "checkpoint")}
    stop = StopFlag()
    first = run(counts.flow, stop=stop, on_epoch=lambda *_: stop.ask(), drain=False, **options)
    assert first.epochs == 1
    run(counts.flow, trigger="available", drain=True, **options)
    counts.check(range(400))


@pytest.mark.parametrize("engine", ["batch", "streaming"])
def test_a_bounded_live_source_runs_in_both_engines(
    spark: SparkSession, tmp_path: Path, engine: Any
) -> None:
    write(tmp_path / "old.jsonl", range(300))
    history = JsonLinesSource(tmp_path / "old.jsonl", bytes_per_epoch=2_000)
    counts = Counts(Then(history, TestingSource(rows(range(300, 400)), 30)))
    run(counts.flow, spark=spark, engine=engine, **OPTIONS)
    counts.check(range(400))


def test_a_batch_of_a_source_without_an_end_is_refused(spark: SparkSession) -> None:
    live = JsonLinesSource("new/", follow=True)
    counts = Counts(Then(TestingSource([]), live))
    with pytest.raises(FlowBuildError, match=r"step 'in': Then\(.* has no end"):
        run(counts.flow, spark=spark, engine="batch", **OPTIONS)


KILLED = """
import os, signal, sys
from pathlib import Path
import flow.operators as op
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSink, JsonLinesSource
from flow.connectors.then import Then
from recovery import RecoveryConfig

home, epoch, moment = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def count(before, row):
    return (before or 0) + 1, {**row, "n": (before or 0) + 1}

class Sink(JsonLinesSink):
    def commit(self, number, messages):
        if number == epoch and moment == "before commit":
            die()
        super().commit(number, messages)
        if number == epoch and moment == "after commit":
            die()

flow = Dataflow("killed")
history = JsonLinesSource(home / "old.jsonl", bytes_per_epoch=1_000)
live = JsonLinesSource(home / "new", follow=True, bytes_per_epoch=1_000)
keyed = op.key_on("by_key", op.input("in", flow, Then(history, live)), "k")
counted = op.stateful_map("count", keyed, count)
op.output("out", op.map("row", counted, lambda pair: pair[1]), Sink(home / "out"))
run(flow, recovery=RecoveryConfig(home / "checkpoint"), trigger="available", drain=False,
    shards=2, partitions=1)
"""
"""Reads a history of three epochs and two files after it, and kills itself in an epoch."""


@pytest.mark.extended
@pytest.mark.parametrize("epoch", [2, 3])
@pytest.mark.parametrize("moment", ["before commit", "after commit"])
def test_a_process_killed_at_the_switch_writes_each_row_once(
    tmp_path: Path, epoch: int, moment: str
) -> None:
    write(tmp_path / "old.jsonl", range(120))
    write(tmp_path / "new/1.jsonl", range(120, 160))
    write(tmp_path / "new/2.jsonl", range(160, 200))
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    killed = subprocess.run([*command, str(epoch), moment], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2_000:]
    subprocess.run([*command, "-1", "never"], capture_output=True, check=True)
    lines = [
        json.loads(line)
        for file in (tmp_path / "out").rglob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    found = sorted(lines, key=lambda one: one["at"])
    assert [(one["at"], one["n"]) for one in found] == [(at, at // 3 + 1) for at in range(200)]
