"""Runs whose checkpoint or Spark session is taken away."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flow import CheckpointError, EngineError, EpochReport, run
from flow.connectors.files import JsonLinesSink
from flow.engine.spark.session.spark_failures import SESSION_STOPPED
from flow.testing import TestingSource
from recovery import RecoveryConfig
from tests.support.counting import counting_flow
from tests.support.faults import PROJECT
from tests.support.stalling import StallingSource

pytestmark = pytest.mark.spark
EXTENDED = pytest.mark.extended
AT = 1
"""The epoch in which something is removed."""


def run_with(home: Path, spark: SparkSession, remove: Callable[[], None]) -> None:
    """Run with something removed once an epoch is done, and no epoch done after that."""
    done: list[int] = []

    def report(of_epoch: EpochReport) -> None:
        done.append(of_epoch.epoch)
        if of_epoch.epoch == AT:
            remove()

    source = TestingSource([("a", 0)] * 6, batch_size=2)
    recovery = RecoveryConfig(home / "checkpoint")
    options: dict[str, Any] = {"shards": 2, "partitions": 1, "on_epoch": report}
    try:
        run(
            counting_flow(source, JsonLinesSink(home / "out")),
            spark=spark,
            recovery=recovery,
            **options,
        )
    finally:
        assert done == [0, AT]


CHECKPOINT_GONE = r"^checkpoint .*/checkpoint was removed while the flow ran on it: put it back"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", CHECKPOINT_GONE),
        pytest.param("flow.json", CHECKPOINT_GONE, marks=EXTENDED),
        pytest.param(
            "spark",
            r"/checkpoint/spark/metadata was removed while the flow ran on the checkpoint",
            marks=EXTENDED,
        ),
        pytest.param(
            "spark/commits",
            r"/checkpoint/spark/commits/\d was removed while the flow ran on the",
            marks=EXTENDED,
        ),
        pytest.param(
            "lock.1.json",
            r"/checkpoint/lock\.1\.json was removed or damaged while this run held it: another run",
            marks=EXTENDED,
        ),
    ],
)
def test_a_removed_checkpoint_ends_the_run_before_the_next_commit(
    name: str, problem: str, tmp_path: Path, spark: SparkSession
) -> None:
    def remove() -> None:
        path = tmp_path / "checkpoint" / name
        if path.name == "commits":  # the log of the epoch in hand is still to be written
            (path / "0").unlink()
            threading.Thread(target=remove_when_there, args=(path / "1",)).start()
        else:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    with pytest.raises(CheckpointError, match=problem) as caught:
        run_with(tmp_path, spark, remove)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("checkpoint/lock-*.json")), "nothing is made anew"


def remove_when_there(path: Path) -> None:
    while not path.exists():
        time.sleep(0.001)
    path.unlink()


@pytest.mark.extended
def test_a_removed_checkpoint_ends_an_idle_run_within_seconds(
    tmp_path: Path, spark: SparkSession
) -> None:
    removed: list[float] = []

    def remove(*_: Any) -> None:
        if not removed:
            removed.append(time.monotonic())
            threading.Timer(0.5, shutil.rmtree, [tmp_path / "checkpoint"]).start()

    flow = counting_flow(StallingSource(60), JsonLinesSink(tmp_path / "out"))
    recovery = RecoveryConfig(tmp_path / "checkpoint")
    options: dict[str, Any] = {"shards": 2, "partitions": 1, "on_epoch": remove}
    with pytest.raises(CheckpointError, match=CHECKPOINT_GONE):
        run(flow, spark=spark, recovery=recovery, trigger="30s", **options)
    assert time.monotonic() - removed[0] < 10


def test_a_query_stopped_by_others_is_an_error(tmp_path: Path, spark: SparkSession) -> None:
    def stop() -> None:
        (query,) = spark.streams.active
        threading.Thread(target=query.stop).start()

    with pytest.raises(EngineError) as caught:
        run_with(tmp_path, spark, stop)
    assert "stop" in str(caught.value)


CHILD = """
import sys, threading, time
from pathlib import Path
from flow import FlowError, run
from flow.connectors.files import JsonLinesSink
from flow.engine.spark.session.session import SparkSettings, make_session
from flow.testing import TestingSource
from recovery import RecoveryConfig
from tests.support.counting import counting_flow
from tests.support.stalling import StallingSource

home, how, engine, when = Path(sys.argv[1]), *sys.argv[2:]
spark = make_session("stopped", SparkSettings("local[2]"))
stopped = []

def slow(pair):
    (home / "begun").touch()
    time.sleep(0.2 if when == "amid an epoch" else 0)
    return pair

def stop():
    while not (home / ("begun" if when == "amid an epoch" else "done")).exists():
        time.sleep(0.01)
    time.sleep(0.3)
    stopped.append(time.monotonic())
    spark.stop() if how == "session" else spark.sparkContext._jsc.sc().stop()

items = [("a", n) for n in range(60)]
source = StallingSource(60) if when == "idle" else TestingSource(items, batch_size=30)
flow = counting_flow(source, JsonLinesSink(home / "out"), slow)
threading.Thread(target=stop, daemon=True).start()
options = {} if engine == "batch" else {"recovery": RecoveryConfig(home / "checkpoint")}
options |= {"shards": 2, "partitions": 1, "on_epoch": lambda _: (home / "done").touch()}
try:
    run(flow, spark=spark, engine=engine, **options)
except FlowError as error:
    took = time.monotonic() - stopped[0]
    print(type(error).__name__, "in time" if took < 15 else took)
    print(error)
"""


@EXTENDED
@pytest.mark.parametrize(
    ("how", "engine", "when"),
    [
        ("session", "streaming", "amid an epoch"),
        ("session", "streaming", "idle"),
        ("context", "streaming", "amid an epoch"),
        ("session", "batch", "amid an epoch"),
    ],
)
def test_a_stopped_session_ends_the_run_soon_with_an_error_without_a_trace(
    how: str, engine: str, when: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path), how, engine, when]
    env = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout.splitlines() == ["EngineError in time", SESSION_STOPPED], done.stderr
    assert done.stderr == ""
    assert not (tmp_path / "checkpoint" / "lock.1.json").exists()
