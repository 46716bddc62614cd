"""Runs over Spark Connect whose program does not reach the checkpoint, and follows by tasks.

As on another machine, the program of these tests can open no directory of the server.
"""

from __future__ import annotations

import json

import pytest

from flow.connectors.source import Json
from tests.support.connect import connect_server
from tests.support.programs import printed_by

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.extended, pytest.mark.timeout(290)]

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

import flow.operators as op
from flow import CheckpointError, Dataflow, FlowError, StopFlag, attach, run
from flow.connectors.dataframe import DataFrameSource
from flow.connectors.source import PartitionedSource
from flow.engine.checkpoint.storage import LocalStorage
from flow.testing import TestingSink, TestingSource
from recovery import RecoveryConfig

def unreachable(self, root):
    raise CheckpointError(f"{root} is on another machine")


LocalStorage.__init__ = unreachable
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()


class Ticks(PartitionedSource):
    bounded = False

    def partitions(self):
        return ["clock"]

    def first_offset(self, partition):
        return 0

    def next_offset(self, partition, start):
        return start + 1

    def read_partition(self, partition, start, end):
        yield list(range(start, end))


def inverses(name, source, out):
    flow = Dataflow(name)
    numbers = op.inspect("see", op.input("in", flow, source))
    inverse = op.map("inverse", numbers, lambda number: 12 // (number + 1))
    op.output("out", inverse, TestingSink(out))
    return flow


def kept(name):
    return RecoveryConfig(f"{sys.argv[2]}/{name}")


def show(name, value):
    print(json.dumps([name, value]), flush=True)


def attempt(name, call):
    try:
        show(name, call())
    except FlowError as error:
        show(name, [type(error).__name__, str(error)])


out, epochs = [], []
whole = inverses("whole", TestingSource([0, 1, 2, 3], 2), out)
summary = run(whole, recovery=kept("whole"), on_epoch=lambda report: epochs.append(report.epoch))
show("out", sorted(out))
show("epochs", [epochs, summary.epochs, summary.count("in", "out")])
show("attached", attach(whole, kept("whole")).epochs)
attempt("none", lambda: attach(whole, kept("none")))

rows, framed = [], Dataflow("framed")
frame = DataFrameSource(spark.createDataFrame([("a", 1), ("b", 2)], "key string, n int"))
op.output("out", op.input("in", framed, frame), TestingSink(rows))
run(framed, recovery=kept("framed"))
show("framed", sorted(row["n"] for row in rows))

failing = inverses("failed", TestingSource([0, -1]), [])
attempt("failed", lambda: run(failing, recovery=kept("failed")))

flag, endless = StopFlag(), inverses("endless", Ticks(), [])
stopped = run(endless, recovery=kept("endless"), stop=flag, trigger="300ms",
              on_epoch=lambda report: report.epoch == 2 and flag.ask())
show("stopped", [stopped.stopped, stopped.epochs > 2])
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Json]:
    """The lines of a program that follows its runs by tasks, by name."""
    home = tmp_path_factory.mktemp("home")
    (home / "program.py").write_text(PROGRAM)
    with connect_server(home / "server") as server:
        lines = printed_by(home / "program.py", server.url, home).splitlines()
    found = dict(json.loads(line) for line in lines if line.startswith("["))
    return {**found, "seen": [line for line in lines if line.startswith("see: ")]}


def test_results_and_reports_of_a_run_reach_its_program_by_tasks(printed: dict[str, Json]) -> None:
    assert printed["out"] == [3, 4, 6, 12]
    assert printed["seen"][:4] == ["see: 0", "see: 1", "see: 2", "see: 3"]
    numbers, epochs, count = printed["epochs"]
    assert (numbers, count) == ([*range(epochs)], 4)
    assert printed["attached"] == epochs
    assert printed["framed"] == [1, 2]


def test_the_error_of_a_run_reaches_its_program_by_tasks(printed: dict[str, Json]) -> None:
    kind, text = printed["failed"]
    assert kind == "StepError"
    assert text.startswith("step 'inverse': the mapper raised ZeroDivisionError")
    assert printed["none"][0] == "CheckpointError"
    assert "none is not a flow's checkpoint" in printed["none"][1]


def test_a_program_stops_its_run_by_tasks(printed: dict[str, Json]) -> None:
    assert printed["stopped"] == [True, True]
