"""Views of flows on Spark: both engines, failed and repeated epochs, and a rewind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, SinkError, StepError, run
from flow.testing import TestDriver, TestingSource
from flow.views import Page, ViewSink, open
from recovery import RecoveryConfig, rewind

pytestmark = pytest.mark.spark

KEYS = ("ann", 'b"o\0b', "😀")
ITEMS = [(key, {"at": 10 * n, "n": n}) for n in range(6) for key in KEYS]


def windowed_flow(path: Path | None = None, items: list[Any] = ITEMS) -> Dataflow:
    """The last value of each key, and the count of each half minute."""
    flow = Dataflow("visits")
    visits = op.input("in", flow, TestingSource(items, batch_size=9))
    counts = win.count_window(
        "count",
        visits,
        win.EventClock(lambda visit: visit[1]["at"], wait_for_system_duration="0s"),
        win.TumblingWindower(length="30s"),
        key=lambda visit: visit[0],
    )
    last = op.stateful_map("last", visits, lambda state, value: (None, value))
    op.output("last_view", last, ViewSink(path=path))
    op.output("count_view", counts.down, ViewSink(by="window", keep=5, path=path))
    return flow


def content(page: Page) -> list[Any]:
    return [(entry.key, entry.value, entry.window) for entry in page.entries]


def test_all_engines_make_the_same_views(spark: SparkSession, tmp_path: Path) -> None:
    driver = TestDriver(windowed_flow())
    driver.send("in", ITEMS)
    driver.end()
    run(windowed_flow(tmp_path / "batch.sqlite"), spark=spark, engine="batch")
    recovery = RecoveryConfig(tmp_path / "checkpoint")
    run(windowed_flow(), spark=spark, recovery=recovery, shards=2, partitions=1)
    batch, streaming = open(tmp_path / "batch.sqlite"), open(tmp_path / "checkpoint")
    last = content(driver.view("last_view").range())
    assert [(key, value["n"]) for key, value, _ in last] == [("ann", 5), ('b"o\0b', 5), ("😀", 5)]
    counts = content(driver.view("count_view").windows())
    assert [(key, value) for key, value, _ in counts] == [
        (key, 3) for _ in range(2) for key in KEYS
    ]
    for views in (batch, streaming):
        assert content(views["last_view"].range()) == last
        assert content(views["count_view"].windows()) == counts
    assert batch["last_view"].get("ann").epoch == 0


def failing_flow(fails: bool) -> Dataflow:
    flow = Dataflow("numbers")
    numbers = op.input("in", flow, TestingSource([("a", n) for n in range(6)], batch_size=2))

    def fail(value: int) -> int:
        if fails and value == 5:
            raise ValueError("five")
        return value

    op.output("view", op.map_value("mapped", numbers, fail), ViewSink())
    return flow


@pytest.mark.extended
def test_a_view_is_set_back_with_its_checkpoint_and_shows_nothing_of_a_failed_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    recovery, checkpoint = RecoveryConfig(tmp_path), str(tmp_path)
    run(failing_flow(False), spark=spark, recovery=recovery, shards=2, partitions=1)
    rewind(checkpoint, 1, yes=True, spark=spark)
    with pytest.raises(StepError, match="five"):
        run(failing_flow(True), spark=spark, recovery=recovery)
    answer = open(tmp_path)["view"].get("a")
    assert (answer.epoch, answer.value) == (1, 3)
    run(failing_flow(False), spark=spark, recovery=recovery)
    assert open(tmp_path)["view"].get("a").value == 5


def test_a_batch_without_a_path_is_refused(spark: SparkSession) -> None:
    with pytest.raises(SinkError, match="step 'view': a view is beside the checkpoint"):
        run(failing_flow(False), spark=spark, engine="batch")
