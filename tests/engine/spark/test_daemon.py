"""The daemon from which workers are forked: its early start and its imports."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typing_extensions import override

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.sink import Sink, SinkBatch, WriteContext
from flow.engine.spark.daemon import PRELOAD
from flow.engine.spark.session import fork_server
from flow.engine.spark.session.session import (
    JOB_GROUP,
    SparkSettings,
    make_session,
    start_workers_early,
)
from flow.testing import TestingSource
from tests.support.programs import printed_by

pytestmark = pytest.mark.spark

PACKAGES = ("flow", "flow_windowing", "recovery", "pyspark", "google")


def note_modules(path: str) -> None:
    """Write down where this worker comes from, and what it has imported."""
    names = [name for name in sys.modules if name.split(".")[0] in PACKAGES]
    Path(path).write_text("\n".join([str(os.getppid()), *names]))


@dataclass(frozen=True)
class ModuleNotingSink(Sink[Any]):
    path: str

    @override
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> None:
        if sum(map(len, batches)):
            note_modules(self.path)


def count(counted: int, _value: object) -> int:
    return counted + 1


def noting_flow(reader: str, writer: str) -> Dataflow:
    def note(item: Any) -> Any:
        note_modules(reader)
        return item

    items = [("key", (datetime(2024, 1, 1, 0, minute, tzinfo=UTC), 1)) for minute in range(3)]
    flow = Dataflow("noting")
    read = op.map("note", op.input("in", flow, TestingSource(items)), note)
    clock: win.EventClock[Any] = win.EventClock(itemgetter(0), wait_for_system_duration="0s")
    windower = win.TumblingWindower("1m")
    counted = win.fold_window("windows", read, clock, windower, int, count, int.__add__)
    op.output("out", op.key_rm("values", counted.down), ModuleNotingSink(writer))
    return flow


def worker_modules(flow: Dataflow, spark: SparkSession, *paths: Path) -> list[tuple[int, set[str]]]:
    """Run a flow; the process that each worker comes from, and what it has imported."""
    run(flow, spark=spark, engine="streaming")
    lines = [path.read_text().split() for path in paths]
    return [(int(parent), set(names)) for parent, *names in lines]


def say_what_is_imported(folder: str) -> None:
    """Run a flow in workers that nobody else has used; print what is preloaded, and what is not."""
    spark = make_session("daemon", SparkSettings("local[2]"))
    preloaded = str(spark.sparkContext.getConf().get(f"spark.executorEnv.{PRELOAD}"))
    code = "import sys, flow.engine.spark.daemon as d; d.prepare(); print(*sys.modules)"
    # A daemon that the fork server was ready for has the modules of that server too.
    beforehand = {*printed_by("-c", code, **{PRELOAD: preloaded}).split(), *fork_server.MODULES}
    reader, writer = Path(folder) / "reader", Path(folder) / "writer"
    found = worker_modules(noting_flow(str(reader), str(writer)), spark, reader, writer)
    used = set.union(*(names for _, names in found))
    later = sorted(name for name in used - beforehand if not name.startswith("flow.testing"))
    sys.stdout.write(json.dumps({"beforehand": sorted(used & beforehand), "later": later}))


@pytest.mark.slow
@pytest.mark.extended
def test_the_first_task_of_a_worker_imports_no_module(tmp_path: Path) -> None:
    modules = json.loads(printed_by("-m", "tests.engine.spark.test_daemon", tmp_path))
    assert modules["later"] == []
    wanted = {"flow.engine.steps.reading", "flow_windowing.columnar.step.window_shard"}
    assert wanted <= set(modules["beforehand"])


@pytest.mark.extended
def test_all_workers_are_forked_from_one_process(spark: SparkSession, tmp_path: Path) -> None:
    paths = tmp_path / "reader", tmp_path / "writer"
    (reading, _), (writing, _) = worker_modules(noting_flow(*map(str, paths)), spark, *paths)
    assert reading == writing


def test_a_session_starts_its_workers_early(spark: SparkSession) -> None:
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(JOB_GROUP))
    start_workers_early(spark).join(60)
    (job,) = set(tracker.getJobIdsForGroup(JOB_GROUP)) - before
    found = tracker.getJobInfo(job)
    assert found is not None
    assert found.status == "SUCCEEDED"


def test_a_failed_early_start_of_workers_is_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    nothing: Any = None
    start_workers_early(nothing).join(60)
    assert capsys.readouterr() == ("", "")


if __name__ == "__main__":
    say_what_is_imported(sys.argv[1])
