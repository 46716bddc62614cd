"""A history, then live data, on Spark: both engines, stops and crashes at the switch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, FlowBuildError, run
from flow.connectors.files import JsonLinesSource
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
    path.write_text("".join(f"{json.dumps(one)}\n" for one in rows(seconds)))


@pytest.mark.extended
#  history  ▒▒▒▒▒▒▒▒▒▒▒▒ ✗                killed in the last epoch of the history,
#  live                   ▒▒ ✗ ▒▒▒▒▒▒▒▒   and in the first of the live source
@pytest.mark.extended
def test_a_run_killed_at_the_switch_counts_rows_once(spark: SparkSession, tmp_path: Path) -> None:
    history = TestingSource([*rows(range(130)), ABORT(), *rows(range(130, 200))], 100)
    live = TestingSource([*rows(range(200, 230)), ABORT(), *rows(range(230, 300))], 100)
    counts = Counts(Then(history, live))
    recovery = RecoveryConfig(tmp_path / "checkpoint")
    runs = [run(counts.flow, spark=spark, recovery=recovery, **OPTIONS) for _ in range(3)]
    assert [one.aborted for one in runs] == [True, True, False]
    counts.check(range(300))


def test_a_history_and_a_bounded_source_are_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    path, late = tmp_path / "old.jsonl", {"k": "k0", "at": 0}
    write(path, range(300))
    # The live source, which the batch has not reached, does not hold the watermark back from it.
    path.write_text(f"{path.read_text()}{json.dumps(late)}\n")
    history = JsonLinesSource(path, bytes_per_epoch=2_000)
    counts = Counts(Then(history, TestingSource(rows(range(300, 400)), 30)))
    assert run(counts.flow, spark=spark, **OPTIONS).engine == "batch"
    assert [counts.late.pop()[1].value] == [late]
    counts.check(range(400))


def test_a_batch_of_a_source_without_an_end_is_refused(spark: SparkSession) -> None:
    live = JsonLinesSource("new/", follow=True)
    counts = Counts(Then(TestingSource([]), live))
    with pytest.raises(FlowBuildError, match=r"step 'in': Then\(.* has no end"):
        run(counts.flow, spark=spark, engine="batch", **OPTIONS)
