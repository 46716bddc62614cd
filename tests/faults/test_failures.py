"""User functions and sinks that fail now and then or always, and a source that stalls."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EpochReport, FlowError, StepError, run
from flow.connectors.files import JsonLinesSink
from flow.testing import TestingSink, TestingSource
from flow_windowing import SystemClock, TumblingWindower
from recovery import RecoveryConfig
from tests.faults.striking import Fault, Struck, Whom
from tests.support.faults import Shop
from tests.support.stalling import PlannerCalls, StallingSource

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
EPOCH = 4


@pytest.mark.extended
@pytest.mark.parametrize(
    ("point", "at", "step", "committed"),
    [
        ("plan", EPOCH, "clicks", set()),
        ("read", EPOCH, "clicks", set()),
        ("level 1", 680, "visits", set()),
        ("level 2", 140, "numbered", set()),
        ("before write log", EPOCH, "write_log", set()),
        ("amid write log", EPOCH, "write_log", set()),
        ("amid write hours", EPOCH, "write_hours", set()),
        ("after write log", EPOCH, "write_log", set()),
        ("before commit hours", EPOCH, "write_hours", set()),
        ("before commit log", EPOCH, "write_log", {"hours"}),
        ("after commit log", EPOCH, "write_log", {"hours", "log"}),
    ],
)
def test_a_fault_that_strikes_twice_stops_runs_and_changes_no_result(
    point: str,
    at: int,
    step: str,
    committed: set[str],
    shop: Shop,
    spark: SparkSession,
    assert_unharmed: Callable[..., None],
) -> None:
    fault, failures = Fault(point, at, Whom.RAISE, shop.home, times=2), 0
    while (error := error_of(shop, spark, fault)) is not None:
        failures += 1
        assert isinstance(error, StepError)
        assert error.step_id == step
        assert isinstance(error.__cause__, Struck)
        # What one sink has committed of the epoch shows until the epoch is done again.
        shown = {path.parent.name for path in shop.home.glob(f"out/*/epoch={EPOCH:08d}-*")}
        assert shown == committed
        assert shop.logged("commits") == EPOCH - 1
    assert 1 <= failures <= 2, "twice in one run, where two tasks reach the same place"
    assert_unharmed(is_over=True)


def error_of(shop: Shop, spark: SparkSession, fault: Fault) -> FlowError | None:
    try:
        shop.run_here(spark, fault)
    except FlowError as error:
        return error
    return None


@dataclass(frozen=True)
class Inverse:
    """Cannot take zero, unless told what to make of it."""

    of_zero: float | None = None

    def __call__(self, number: int) -> float:
        return self.of_zero if number == 0 and self.of_zero is not None else 1 / number


def count(number: int | None, value: float) -> tuple[int, dict[str, float]]:
    return (number or 0) + 1, {"n": (number or 0) + 1, "value": value}


@pytest.mark.extended
def test_a_permanent_failure_stops_every_run_at_the_same_epoch_until_it_is_fixed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """
    epochs    0: 1 2   1: 4 0 5     2: 8
    run 1     written  not written
    run 2              not written
    run 3              written      written
    """

    def attempt(inverse: Inverse) -> None:
        flow = Dataflow("inverses")
        s = op.input("in", flow, TestingSource([1, 2, 4, 0, 8, 10], batch_size=2))
        inverses = op.map("inverse", s, inverse)
        counted = op.stateful_map("count", op.key_on("key", inverses, lambda _: "all"), count)
        op.output("out", op.map("plain", counted, lambda pair: pair[1]), JsonLinesSink(out))
        recovery = RecoveryConfig(tmp_path / "checkpoint")
        run(flow, spark=spark, recovery=recovery, system_time=0, shards=2, partitions=1)

    def written() -> list[str]:
        return [file.read_text() for file in sorted(out.glob("epoch=*/*"))]

    out = tmp_path / "out"
    first = '{"n": 1, "value": 1.0}\n{"n": 2, "value": 0.5}\n'
    for _ in range(2):
        with pytest.raises(StepError, match="'inverse'") as caught:
            attempt(Inverse())
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert written() == [first]
    attempt(Inverse(of_zero=0.0))
    assert written() == [
        first,
        '{"n": 3, "value": 0.25}\n{"n": 4, "value": 0.0}\n',
        '{"n": 5, "value": 0.125}\n{"n": 6, "value": 0.1}\n',
    ]


def test_windows_close_by_system_time_without_busy_waiting_while_a_source_stalls(
    spark: SparkSession, tmp_path: Path
) -> None:
    seconds, calls = 4.0, PlannerCalls()
    closed: list[Any] = []
    flow = Dataflow("stalled")
    s = op.input("in", flow, StallingSource(seconds, calls))
    windows = win.collect_window("windows", s, SystemClock(), TumblingWindower("1s"))
    op.output("closed", windows.closed, TestingSink(closed))
    before: list[int] = []

    def report(epoch: EpochReport) -> None:
        if not epoch.end_of_input:
            before.append(len(closed))

    started = time.process_time()
    recovery = RecoveryConfig(tmp_path / "checkpoint")
    options: dict[str, Any] = {"spark": spark, "recovery": recovery, "shards": 2, "partitions": 1}
    summary = run(flow, on_epoch=report, drain=True, **options)
    busy = time.process_time() - started
    assert before[-1] == 1, "the window closed before the input ended"
    assert len(closed) == 1
    # The item, the close, and the end; a window that closes late by a heartbeat makes one more.
    assert summary.epochs <= 4
    assert calls.next_calls <= seconds / 0.04
    assert busy < seconds / 2
