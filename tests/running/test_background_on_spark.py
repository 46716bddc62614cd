"""Runs in the background on Spark: streams and batches, stops and errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, FlowBuildError, RunState, StepError, StopFlag, run
from flow.testing import TestingSink, TestingSource

pytestmark = pytest.mark.spark


def doubled(
    double: Callable[[int], int], out: list[int], items: tuple[int, ...] = (1, 2, 3)
) -> Dataflow:
    flow = Dataflow("double")
    numbers = op.input("in", flow, TestingSource(items, batch_size=1))
    op.output("out", op.map("double", numbers, double), TestingSink(out))
    return flow


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("engine", ["batch", "streaming"])
def test_a_run_in_the_background_has_the_results_of_any_other(
    engine: Literal["batch", "streaming"], spark: SparkSession
) -> None:
    out: list[int] = []
    flow = doubled(lambda n: 2 * n, out)
    started = run(flow, spark=spark, engine=engine, background=True)
    summary = started.wait(200)
    assert out == [2, 4, 6]
    assert started.status is RunState.FINISHED
    assert (summary.engine, summary.count("double", "out")) == (engine, 3)
    assert (summary.step_ids, summary.inputs) == (("in", "double", "out"), ("in",))


def test_the_error_of_a_step_is_raised_by_wait(spark: SparkSession) -> None:
    started = run(doubled(lambda n: n // 0, []), spark=spark, background=True)
    with pytest.raises(StepError, match="step 'double'") as caught:
        started.wait(200)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert started.status is RunState.FAILED


def slow(number: int) -> int:
    time.sleep(100)
    return number


def test_a_batch_that_is_stopped_ends_soon_or_does_not_start_and_writes_nothing(
    spark: SparkSession,
) -> None:
    out: list[int] = []
    flag = StopFlag()
    began = time.monotonic()
    started = run(doubled(slow, out), spark=spark, engine="batch", stop=flag, background=True)
    wait_for(lambda: bool(spark.sparkContext.statusTracker().getActiveJobsIds()))
    flag.ask()
    summary = started.wait(90)
    assert time.monotonic() - began < 90
    assert (summary.stopped, summary.epochs, out) == (True, 0, [])
    assert started.status is RunState.STOPPED
    assert run(doubled(lambda n: n, out), spark=spark, engine="batch", stop=flag).stopped
    assert out == [], "a batch that is stopped before it starts"
    run(doubled(lambda n: n, out), spark=spark, engine="batch")
    assert out == [1, 2, 3]


def test_background_is_true_or_false() -> None:
    with pytest.raises(FlowBuildError, match="background must be True or False, got int 1"):
        run(doubled(lambda n: n, []), background=1)  # type: ignore[call-overload]
