"""Sessions that the program has made: checks, workers, and contradicting settings."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyspark
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EnvironmentProblem, FlowBuildError, run
from flow.engine.spark.session import code
from flow.engine.spark.session.given import check_session, ready_for_a_run
from flow.engine.spark.session.query_conf import QUERY_CONF
from flow.errors import FlowTypeError
from flow.testing import TestingSink, TestingSource
from recovery import RecoveryConfig
from tests.support.java import QUICK_SUBMIT

ROOT = Path(__file__).resolve().parents[4]
VALUES = [("key", {"at": f"2026-03-01T10:{minute:02d}:00Z", "n": minute}) for minute in range(60)]


class Remote:
    """A session of Spark Connect, as far as it is looked at."""

    version = pyspark.__version__
    is_stopped = False


Remote.__module__ = "pyspark.sql.connect.session"


def test_something_else_than_a_session_is_refused() -> None:
    with pytest.raises(FlowTypeError, match=r"spark= must be a SparkSession, got str 'local\[2\]'"):
        check_session("local[2]", is_batch=True)


def test_a_session_of_spark_connect_runs_batches_only() -> None:
    check_session(Remote(), is_batch=True)
    with pytest.raises(EnvironmentProblem) as caught:
        check_session(Remote(), is_batch=False)
    assert str(caught.value) == (
        "a streaming flow needs Spark's JVM, which a session of Spark Connect does not reach: run "
        "the program with spark-submit, or on a session without remote()"
    )


def test_a_stopped_session_is_refused() -> None:
    stopped = Remote()
    stopped.is_stopped = True
    with pytest.raises(FlowBuildError, match="spark= names a session that was stopped: make a new"):
        check_session(stopped, is_batch=True)


def session_with(**context: Any) -> SparkSession:
    return cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(**context)))


def test_local_workers_run_in_this_python_during_a_run() -> None:
    session = session_with(master="local[2]", pythonExec="python3")
    used = []
    with contextlib.suppress(KeyError), ready_for_a_run(session):
        used.append(session.sparkContext.pythonExec)
        raise KeyError
    assert used == [sys.executable]
    assert session.sparkContext.pythonExec == "python3"


def test_workers_of_a_cluster_get_the_packages_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_sent", set())
    sent: list[str] = []
    of_cluster: dict[str, Any] = {"master": "spark://host:7077", "pythonExec": "python3"}
    for name in ("app-1", "app-1", "app-2"):
        session = session_with(**of_cluster, applicationId=name, addPyFile=sent.append)
        with ready_for_a_run(session):
            assert session.sparkContext.pythonExec == "python3", "a path on another machine"
    assert [Path(path).name for path in sent] == ["flow_packages.zip"] * 2


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
def test_contradicting_settings_change_no_result_and_are_put_back(
    spark: SparkSession, tmp_path: Path
) -> None:
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


PROGRAM = """
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


def printed_by_program(checkpoint: Path, workers: str) -> list[Any]:
    """Run `PROGRAM` with a session whose workers would run in another Python."""
    env = {**os.environ, **QUICK_SUBMIT, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": workers}
    command = [sys.executable, "-c", PROGRAM, str(checkpoint)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("[", '"'))]


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
    assert printed_by_program(tmp_path / "checkpoint", other) == [
        *(expected, expected),
        other,
        stopped,
    ]
