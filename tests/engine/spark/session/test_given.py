"""Sessions that the program has made: checks, workers, settings, and flows over Spark Connect."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pyspark
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, FlowBuildError, run
from flow.engine.spark.session import session
from flow.engine.spark.session.fork_server import forked_python
from flow.engine.spark.session.session import check_session, python_set, ready_for_a_run
from flow.engine.spark.session.session_settings import QUERY_CONF, cores_of
from flow.engine.spark.session.spark_failures import disks_of
from flow.errors import FlowTypeError
from flow.testing import TestingSink, TestingSource
from recovery import RecoveryConfig
from tests.support.java import QUICK_SUBMIT
from tests.support.programs import ROOT, printed_by

VALUES = [("key", {"at": f"2026-03-01T10:{minute:02d}:00Z", "n": minute}) for minute in range(60)]


class Remote:
    """A session of Spark Connect with a configuration, as far as it is looked at."""

    version = pyspark.__version__
    is_stopped = False

    def __init__(self, **conf: str) -> None:
        settings = {name.replace("_", "."): value for name, value in conf.items()}
        self.conf = SimpleNamespace(get=settings.get)


Remote.__module__ = "pyspark.sql.connect.session"


def test_something_else_than_a_session_is_refused() -> None:
    with pytest.raises(FlowTypeError, match=r"spark= must be a SparkSession, got str 'local\[2\]'"):
        check_session("local[2]")


def test_a_session_of_spark_connect_is_accepted() -> None:
    check_session(Remote())


def test_a_stopped_session_is_refused() -> None:
    stopped = Remote()
    stopped.is_stopped = True
    with pytest.raises(FlowBuildError, match="spark= names a session that was stopped: make a new"):
        check_session(stopped)


def session_with(**context: Any) -> SparkSession:
    """Return what `ready_for_a_run` reads of a session; its JVM accepts every call."""
    of_session = SimpleNamespace(sparkContext=SimpleNamespace(**context), _jvm=MagicMock())
    return cast("SparkSession", of_session)


def test_local_workers_run_in_this_python_during_a_run() -> None:
    session = session_with(master="local[2]", pythonExec="python3")
    used = []
    with contextlib.suppress(KeyError), ready_for_a_run(session):
        used.append(session.sparkContext.pythonExec)
        raise KeyError
    assert used == [forked_python()]
    assert session.sparkContext.pythonExec == "python3"


def test_the_last_of_runs_that_overlap_restores_the_python_of_a_session() -> None:
    context = session_with(master="local[2]", pythonExec="python3").sparkContext
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    for run_of, python in ((first, "a"), (second, "a"), (second, "quiet"), (first, "b")):
        run_of.enter_context(python_set(context, python))
    first.close()
    assert context.pythonExec == "quiet"
    second.close()
    assert context.pythonExec == "python3"


def test_workers_of_a_cluster_get_the_packages_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_sent", set())
    sent: list[str] = []
    of_cluster: dict[str, Any] = {"master": "spark://host:7077", "pythonExec": "python3"}
    for name in ("app-1", "app-1", "app-2"):
        cluster = session_with(**of_cluster, applicationId=name, addPyFile=sent.append)
        with ready_for_a_run(cluster):
            assert cluster.sparkContext.pythonExec == "python3", "a path on another machine"
    assert [Path(path).name for path in sent] == ["flow_packages.zip"] * 2


FAILING = """
import sys
sys.path.insert(0, sys.argv[1])
import flow.operators as op
from flow import Dataflow, StepError
from flow.engine.epoch.failures import user_trace
from flow.testing import TestDriver, TestingSink, TestingSource
flow = Dataflow("failing")
inverse = op.map("inverse", op.input("in", flow, TestingSource([])), lambda n: 1 / n)
op.output("out", inverse, TestingSink([]))
try:
    TestDriver(flow).send("in", [0])
except StepError as error:
    print(op.__file__.removeprefix(sys.argv[1]), user_trace(error.__cause__), sep="\\n")
"""


@pytest.mark.parametrize(
    ("magic", "suffix"),
    [(MAGIC_NUMBER, ".pyc"), (b"none", ".py")],
    ids=["this Python", "another Python"],
)
def test_workers_compile_the_packages_only_if_their_python_is_another(
    magic: bytes, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace of the user's frames has none of the compiled modules either."""
    monkeypatch.setattr(session, "MAGIC_NUMBER", magic)
    assert printed_by("-c", FAILING, session._zipped()).splitlines() == [
        f"/flow/operators/__init__{suffix}",
        '  File "<string>", line 9, in <lambda>',
    ]


def hourly() -> tuple[Dataflow, list[Any]]:
    out: list[Any] = []
    flow = Dataflow("given")
    stream = op.input("in", flow, TestingSource(VALUES, batch_size=20))
    clock, windower = win.EventClock("at", "0s"), win.TumblingWindower("10m")
    windows = win.aggregate_window("sums", stream, clock, windower, total=win.Sum("n"))
    op.output("out", windows.down, TestingSink(out))
    return flow, out


SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.shuffle.partitions": "7",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}


@pytest.mark.extended
@pytest.mark.spark
def test_settings_change_no_result_and_are_put_back(spark: SparkSession, tmp_path: Path) -> None:
    """All at once."""
    before = {name: spark.conf.get(name, None) for name in {*SETTINGS, *QUERY_CONF}}
    try:
        for name, value in SETTINGS.items():
            spark.conf.set(name, value)
        given = {name: spark.conf.get(name, None) for name in before}
        expected = [sum(range(start, start + 10)) for start in range(0, 60, 10)]
        for recovery in (None, RecoveryConfig(tmp_path / "checkpoint")):
            flow, out = hourly()
            run(flow, spark=spark, recovery=recovery, drain=True)
            assert [value["total"] for _, (_, value) in out] == expected
            assert {name: spark.conf.get(name, None) for name in before} == given
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


OTHER_PYTHON = """
import json, sys
from pyspark.sql import SparkSession
from flow import FlowError, run
from recovery import RecoveryConfig
from tests.engine.spark.session.test_given import hourly

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
for recovery in (None, RecoveryConfig(sys.argv[1])):
    flow, out = hourly()
    run(flow, spark=spark, recovery=recovery, drain=True)
    print(json.dumps([value["total"] for _, (_, value) in out]))
print(json.dumps(spark.sparkContext.pythonExec))
spark.stop()
try:
    run(flow, spark=spark)
except FlowError as error:
    print(json.dumps(str(error)))
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("workers", ["missing", "bare"])
@pytest.mark.extended
def test_a_session_with_another_python_runs_flows_until_it_is_stopped(
    workers: str, bare_python: str, tmp_path: Path
) -> None:
    """One without the packages, and one that is not there."""
    other = bare_python if workers == "bare" else str(tmp_path / "missing/python")
    expected = [sum(range(start, start + 10)) for start in range(0, 60, 10)]
    stopped = "spark= names a session that was stopped: make a new one, or leave out spark="
    variables = {**QUICK_SUBMIT, "PYSPARK_PYTHON": other}
    lines = printed_by("-c", OTHER_PYTHON, tmp_path / "checkpoint", **variables).splitlines()
    printed = [json.loads(line) for line in lines if line.startswith(("[", '"'))]
    assert printed == [expected, expected, other, stopped]


OWN_SESSION = """
import os, signal, sys, time
from pyspark import SparkContext
from pyspark.sql import SparkSession
from flow import FlowError, run
from recovery import RecoveryConfig
from tests.engine.spark.session.test_given import hourly

spark = SparkSession.builder.master("local[2]").getOrCreate()
log4j = spark._jvm.org.apache.logging.log4j
loggers = lambda: sorted(log4j.LogManager.getContext(False).getConfiguration().getLoggers())
before = loggers(), spark.sparkContext.pythonExec
print("the session's own lines end here", file=sys.stderr, flush=True)
recoveries = {"stream": [RecoveryConfig(sys.argv[1])], "both": [None, RecoveryConfig(sys.argv[1])]}
for recovery in recoveries[sys.argv[2]]:
    flow, out = hourly()
    run(flow, spark=spark, recovery=recovery, drain=True, shards=2, partitions=1)
time.sleep(0.5)  # The JVM forwards the output of workers in threads of its own.
print("the run's lines end here", file=sys.stderr, flush=True)
print(before == (loggers(), spark.sparkContext.pythonExec))
os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
for options in ({"spark": spark}, {}):
    try:
        run(hourly()[0], **options)
    except FlowError as error:
        print(error)
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("runs", ["stream", pytest.param("both", marks=pytest.mark.extended)])
def test_a_session_of_the_users_prints_no_line_that_they_cannot_act_on(
    runs: str, tmp_path: Path
) -> None:
    """Runs leave its loggers and its Python as they were; without its JVM they name the remedy."""
    command = [sys.executable, "-c", OWN_SESSION, str(tmp_path / "checkpoint"), runs]
    environment = {**os.environ, **QUICK_SUBMIT}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    without_bars = re.sub(r"\[Stage .*?\]", "", done.stderr)  # Spark's progress, which may stay.
    lines = [line for line in without_bars.splitlines() if line.strip()]
    assert done.returncode == 0, lines
    start = lines.index("the session's own lines end here")
    assert lines[start + 1 : lines.index("the run's lines end here")] == []
    ended = (
        "Spark's JVM has ended; was it killed, or out of memory? Start the program, or the "
        "notebook's kernel, again"
    )
    given = f"{ended} (Spark's log: that of the session that the run was given)"
    assert done.stdout.splitlines() == ["True", given, ended]


# --- Spark Connect ---

OVER_CONNECT = """
import json, sys
from collections import Counter
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote("local[2]").getOrCreate()
SparkContext._active_spark_context = None  # as in a program whose server is elsewhere
import flow.operators as op
from flow import Dataflow, FlowError, run, to_dataframe
from flow.connectors.dataframe import DataFrameSource
from flow.testing import TestingSink
from recovery import RecoveryConfig, status
from tests.engine.spark.session.test_given import hourly

def attempt(call):
    try:
        call()
    except FlowError as error:
        print(json.dumps([type(error).__name__, str(error)]))

flow, out = hourly()
run(flow, spark=spark)
print(json.dumps([value["total"] for _, (_, value) in out]))

def ratio_of_frame(less):
    frame = spark.createDataFrame([("a", 1), ("b", 2)], "name string, n int")
    flow = Dataflow("frame")
    stream = op.input("in", flow, DataFrameSource(frame))
    return flow, op.map("ratio", stream, lambda row: row["n"] // (row["n"] - less))

def of_frame(less):
    flow, ratio = ratio_of_frame(less)
    numbers = []
    op.output("out", ratio, TestingSink(numbers))
    return flow, numbers

flow, numbers = of_frame(0)
run(flow, spark=spark)
print(json.dumps(numbers))
flow, out = hourly()
run(flow, master="local[2]")
print(json.dumps([value["total"] for _, (_, value) in out]))
attempt(lambda: run(flow, conf={"spark.some.name": "x"}))

flow, stream = ratio_of_frame(0)
frame = to_dataframe(stream, schema="value long")
print(json.dumps([type(frame).__module__, sorted(row.value for row in frame.collect())]))
attempt(lambda: to_dataframe(stream, schema="value long", counts=Counter()))
flow, stream = ratio_of_frame(1)
try:
    to_dataframe(stream, schema="value long").collect()
except PySparkException as error:
    print(json.dumps([line for line in str(error).splitlines() if "StepError" in line]))
flow, numbers = of_frame(1)
attempt(lambda: run(flow, spark=spark))
flow, out = hourly()
run(flow, recovery=RecoveryConfig(sys.argv[1]))
print(json.dumps([value["total"] for _, (_, value) in out]))
attempt(lambda: status(sys.argv[1] + "/none", spark=spark))
spark.stop()
attempt(lambda: run(flow, spark=spark))
"""


NO_VALUE = (
    "cannot change the active Spark session, in which spark.some.name has no value: set it where "
    "that session is made, stop the session before the run, or leave the setting out"
)
ERROR = "flow.errors.StepError: step 'ratio'"


@pytest.mark.extended
@pytest.mark.spark
@pytest.mark.slow
def test_flows_run_over_spark_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program.py").write_text(OVER_CONNECT)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    variables = {**QUICK_SUBMIT, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    lines = printed_by(tmp_path / "program.py", tmp_path, **variables).splitlines()
    printed = [json.loads(line) for line in lines if line.startswith("[")]
    no_jvm = (
        "needs Spark's JVM, which a session of Spark Connect does not reach: run the program with "
        "spark-submit, or on a session without remote()"
    )
    totals = [sum(range(start, start + 10)) for start in range(0, 60, 10)]
    step_error, stopped = printed[7][1], printed[-1][1]
    assert printed == [
        totals,
        [1, 1],
        totals,
        ["FlowBuildError", f"run: conf spark.some.name='x' {NO_VALUE}"],
        ["pyspark.sql.connect.dataframe", [1, 1]],
        ["EnvironmentProblem", f"the counter of counts= {no_jvm}"],
        [f"{ERROR}: the mapper raised ZeroDivisionError: integer division or modulo by zero"],
        ["StepError", step_error],
        totals,
        ["CheckpointError", f"there is no directory {tmp_path}/none"],
        ["FlowBuildError", stopped],
    ]
    assert "'ratio'" in step_error
    assert "ZeroDivisionError" in step_error
    assert stopped.startswith("spark= names a session that was stopped")


@pytest.mark.parametrize(
    ("conf", "cores"),
    [
        ({"spark_default_parallelism": "5", "spark_master": "local[2]"}, 5),
        ({"spark_master": "local[3]"}, 3),
        ({"spark_master": "local[3,4]"}, 3),
        ({"spark_master": "local[*]"}, os.cpu_count()),
        ({"spark_master": "spark://host:7077"}, 8),
        ({}, 8),
    ],
)
def test_cores_of_a_remote_session_come_from_its_conf(conf: dict[str, Any], cores: int) -> None:
    assert cores_of(Remote(**conf)) == cores


def test_disks_of_a_remote_session_are_unknown() -> None:
    assert disks_of(Remote()).local == ()
