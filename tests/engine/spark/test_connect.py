"""Streams over Spark Connect, on a server whose Python has neither this project nor the program."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flow.connectors.source import Json
from tests.support.cluster import make_bare_python
from tests.support.connect import ConnectServer, connect_server
from tests.support.programs import ROOT, printed_by

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.extended, pytest.mark.timeout(290)]

PROGRAM = """
import json, logging, sys, threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, FlowError, StopFlag, attach, run
from flow.connectors.dataframe import DataFrameSink, DataFrameSource
from flow.connectors.files import JsonLinesSink
from flow.testing import ABORT, TestingSink, TestingSource
from recovery import RecoveryConfig

import helping

url, home = sys.argv[1], Path(sys.argv[2])
spark = SparkSession.builder.remote(url).getOrCreate()
START = datetime(2024, 1, 1, tzinfo=UTC)
ROWS = [{"key": "ab"[n % 2], "at": START + timedelta(minutes=n), "n": n} for n in range(120)]


def hourly(name, items, out, function=lambda row: row):
    flow = Dataflow(name)
    rows = op.map("rows", op.input("in", flow, TestingSource(items, 30)), function)
    keyed = op.key_on("by", rows, "key")
    sums = win.aggregate_window(
        "sums", keyed, clock=win.EventClock("at", "0s"), windower=win.TumblingWindower("1h"),
        total=win.Sum("n"),
    )
    totals = op.map("totals", sums.down, lambda item: item[1][1]["total"])
    op.output("out", totals, TestingSink(out))
    return flow


def kept(name, **options):
    return RecoveryConfig(home / name, **options)


def show(name, value):
    print(json.dumps([name, value]), flush=True)


def attempt(name, call):
    try:
        show(name, repr(call()))
    except FlowError as error:
        show(name, [type(error).__name__, str(error)])


out, epochs = [], []
flow = hourly("hourly", ROWS, out, helping.doubled)
summary = run(flow, recovery=kept("hourly"), on_epoch=epochs.append, py_files=[home / "helping.py"])
show("totals", sorted(out))
show("epochs", [len(epochs) == summary.epochs, summary.engine, summary.count("in", "out")])
show("phases", sorted(epochs[-1].phases))
attempt("attached", lambda: attach(flow, kept("hourly")).epochs == summary.epochs)
run(flow, recovery=kept("hourly"))
show("again", sorted(out))

def no_letters(row):
    return {**row, "n": row["n"] // (row["n"] - 70)}

attempt("step", lambda: run(hourly("step", ROWS, [], no_letters), recovery=kept("step")))
other = hourly("other", ROWS, [])
attempt("other", lambda: run(other, recovery=kept("hourly")))
attempt("none", lambda: attach(other, kept("none")))

shown = Dataflow("shown")
stream = op.inspect("see", op.input("in", shown, TestingSource([1, 2, 3])))
op.output("frame", stream, DataFrameSink(
    lambda frame, epoch: frame.write.mode("append").parquet(str(home / "frame")), "value long"
))
op.output("lines", stream, JsonLinesSink(home / "lines"))
run(shown, recovery=kept("shown"))
show("frame", sorted(row.value for row in spark.read.parquet(str(home / "frame")).collect()))
files = (home / "lines").rglob("*.jsonl")
show("lines", sorted(line for file in files for line in file.read_text().splitlines()))

aborted = []
torn = hourly("torn", [*ROWS[:60], ABORT(), *ROWS[60:]], aborted)
show("aborted", [run(torn, recovery=kept("torn")).aborted for _ in range(2)])
show("mended", sorted(2 * total for total in aborted) == sorted(out))

forever = Dataflow("forever")
ticks = op.input("ticks", forever, helping.Ticks())
op.output("out", ticks, TestingSink([]))
flag = StopFlag()
started = run(forever, recovery=kept("forever"), stop=flag, background=True, trigger="200ms",
              on_epoch=lambda report: report.epoch == 2 and locked.set())
locked = threading.Event()
locked.wait(60)
attempt("locked", lambda: run(forever, recovery=kept("forever")))
flag.ask()
show("stopped", started.wait(60).stopped)

def failing(report):
    raise ValueError(f"epoch {report.epoch > 2}")

try:
    run(forever, recovery=kept("forever"), on_epoch=failing)
except FlowError as error:
    show("failed", [str(error), run(forever, recovery=kept("forever"), stop=flag).stopped])

foreign = Dataflow("foreign")
rate = DataFrameSource(spark.readStream.format("rate").load())
op.output("out", op.input("in", foreign, rate), TestingSink([]))
attempt("foreign", lambda: run(foreign, recovery=kept("foreign")))
"""

HELPING = """
from flow.connectors.source import PartitionedSource

def doubled(row):
    return {**row, "n": 2 * row["n"]}

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
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Json]]:
    """The lines of a program whose runs stand on the server, by name."""
    home = tmp_path_factory.mktemp("home")
    bare = make_bare_python(home / "bare")
    (home / "program.py").write_text(PROGRAM)
    (home / "helping.py").write_text(HELPING)
    with connect_server(home / "server", "", python=bare) as server:
        yield printed_of(server, home)


def printed_of(server: ConnectServer, home: Path) -> dict[str, Json]:
    variables = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    lines = printed_by(home / "program.py", server.url, home, **variables).splitlines()
    found = dict(json.loads(line) for line in lines if line.startswith("["))
    return {**found, "all": lines}


def test_a_stream_sends_its_code_and_brings_results_and_reports_to_the_program(
    printed: dict[str, Json],
) -> None:
    hours = [2 * sum(range(60)), 2 * sum(range(60, 120))]
    even = [2 * sum(range(start, start + 60, 2)) for start in (0, 60)]
    odd = [hour - half for hour, half in zip(hours, even, strict=True)]
    assert printed["totals"] == sorted([*even, *odd])
    assert printed["again"] == printed["totals"]
    assert printed["epochs"] == [True, "streaming", 120]
    assert {"planning", "starting", "steps", "spark", "commit", "waiting"} <= {*printed["phases"]}
    assert printed["attached"] == "True"


def test_errors_name_what_went_wrong_on_the_server(
    printed: dict[str, Json], tmp_path: Path
) -> None:
    kind, text = printed["step"]
    assert kind == "StepError"
    assert text.startswith("step 'rows': the mapper raised ZeroDivisionError")
    kind, text = printed["other"]
    assert (kind, "checkpoint of flow 'hourly', not of 'other'" in text) == (
        "CheckpointError",
        True,
    )
    assert printed["none"][0] == "CheckpointError"
    assert printed["foreign"][0] == "FlowBuildError"
    assert "read the data with a source of this library" in printed["foreign"][1]
    kind, text = printed["locked"]
    assert (kind, "is in use by another run" in text) == ("CheckpointError", True)


def test_an_error_of_on_epoch_ends_the_run_on_the_server(printed: dict[str, Json]) -> None:
    assert printed["failed"] == ["on_epoch raised ValueError: epoch True", True]


def test_sinks_of_frames_and_files_write_on_the_server(printed: dict[str, Json]) -> None:
    assert printed["frame"] == [1, 2, 3]
    assert len(printed["lines"]) == 3
    assert [line for line in printed["all"] if line.startswith("see: ")] == [
        "see: 1",
        "see: 2",
        "see: 3",
    ]


def test_a_run_stops_when_its_program_asks_and_when_a_test_aborts_it(
    printed: dict[str, Json],
) -> None:
    assert printed["stopped"] is True
    assert printed["aborted"] == [True, False]
    assert printed["mended"] is True
