"""As-of joins on Spark: a crash, a stop, and the state in the checkpoint."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import CheckpointError, Dataflow, run
from flow.testing import Advance, TestDriver, TestingSink, TestingSource
from flow_windowing import EventClock
from recovery import RecoveryConfig, export, inspect
from tests.support.interrupted import START, Results, by_key, run_both_ways

pytestmark = pytest.mark.spark

LEFT = [("k", 60), ("k", 66), Advance("3s"), ("j", 61), ("k", 75), Advance("30s"), ("k", 90)]
RIGHT = [("k", 62), ("k", 55), Advance("3s"), ("j", 67), ("k", 80), Advance("30s"), ("k", 91)]


def make_flow(
    left: list[Any], right: list[Any], results: Results, tolerance: str = "5s", **options: Any
) -> Dataflow:
    """Join two inputs, whose values are their own timestamps."""
    flow = Dataflow("joined")
    sides = [
        op.input(name, flow, TestingSource(items, batch_size=1))
        for name, items in (("left", left), ("right", right))
    ]
    clock = EventClock(lambda at: at, "4s")
    out = win.join_asof("w", *sides, clock, tolerance, direction="nearest", **options)
    for name in out._fields:
        op.output(name, getattr(out, name), TestingSink(results.setdefault(name, [])))
    return flow


@pytest.mark.parametrize("emit", ["complete", pytest.param("now", marks=pytest.mark.extended)])
def test_a_join_outlives_a_crash_and_a_stop(spark: SparkSession, tmp_path: Path, emit: str) -> None:
    make = partial(make_flow, emit=emit)
    interrupted, undisturbed = run_both_ways(make, (LEFT, RIGHT), (4, 6), spark, tmp_path)
    assert len(undisturbed["down"]) == 4
    assert by_key(interrupted) == by_key(undisturbed)


def test_the_state_can_be_inspected_and_exported_and_another_tolerance_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    recovery = RecoveryConfig(tmp_path / "checkpoint")
    run(
        make_flow(LEFT[:2], RIGHT[:1], {}),
        spark=spark,
        recovery=recovery,
        system_time=START,
        drain=False,
    )
    (only,) = inspect(recovery.path, "w", spark=spark).keys
    assert only.key == "k"
    assert only.state["left"] == [
        {"timestamp": "1970-01-01T00:01:00Z", "value": 60},
        {"timestamp": "1970-01-01T00:01:06Z", "value": 66},
    ]
    assert only.state["right"] == [{"timestamp": "1970-01-01T00:01:02Z", "value": 62}]
    export(recovery.path, "w", tmp_path / "state.parquet", spark=spark)
    assert (tmp_path / "state.parquet").exists()
    with pytest.raises(CheckpointError, match="tolerance was '5s' and is '6s'"):
        run(make_flow(LEFT, RIGHT, {}, "6s"), spark=spark, recovery=recovery)


def test_a_batch_joins_as_the_driver_does(spark: SparkSession) -> None:
    left, right = [("k", at) for at in (60, 66, 75)], [("k", at) for at in (62, 64, 90)]
    results: Results = {}
    summary = run(make_flow(left, right, results), spark=spark, system_time=START)
    assert summary.engine == "batch"
    with TestDriver(make_flow([], [], {}), now=START) as t:
        for one, other in zip(left, right, strict=True):
            t.send_all({"left": [one], "right": [other]}, behind=True)
        t.end()
        assert {name: t.received(name) for name in results} == results
