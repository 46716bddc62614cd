"""Tables of each kind in flows on Spark: runs that die, and a table from one flow to the next."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.testing import TestingSink, TestingSource
from flow.testing.connectors import check_sink, check_source
from recovery import RecoveryConfig
from tests.support import delta, iceberg

pytestmark = pytest.mark.spark


@pytest.fixture
def on_spark(spark: SparkSession) -> Any:
    def run_flow(flow: Dataflow, path: str) -> None:
        run(flow, recovery=RecoveryConfig(path), spark=spark, shards=2, partitions=1)

    return run_flow


@pytest.mark.parametrize(
    ("lake", "mode"),
    [
        (delta, "append"),
        pytest.param(delta, "upsert", marks=pytest.mark.extended),
        pytest.param(iceberg, "append", marks=pytest.mark.extended),
        pytest.param(iceberg, "upsert", marks=pytest.mark.extended),
    ],
    indirect=["lake"],
)
def test_the_sink_keeps_the_laws_on_spark(lake: ModuleType, on_spark: Any, mode: str) -> None:
    check_sink(
        lambda place: lake.sink_to(place / "t", mode=mode, key="key"),
        lambda place: [(row["key"], row["n"]) for row in lake.rows_of(place / "t")],
        run=on_spark,
    )


@pytest.mark.extended
def test_the_source_keeps_the_laws_on_spark(lake: ModuleType, on_spark: Any) -> None:
    def fill(place: Path, part: int) -> list[Any]:
        rows = [{"key": f"k{part}", "n": n} for n in range(9)]
        lake.append(place / "t", rows)
        return rows

    check_source(lambda place: lake.source_of(place / "t", rows_per_epoch=3), fill, run=on_spark)


#  visits     a@0 a@8 | a@4, which merges the sessions of both
#  table      [0] [8]   [0, 8]
@pytest.mark.parametrize(
    "lake", [pytest.param(delta, marks=pytest.mark.extended), iceberg], indirect=True
)
def test_windows_in_a_table_are_corrected_and_read_by_another_flow(
    lake: ModuleType, spark: SparkSession, tmp_path: Path
) -> None:
    visits = [{"at": at, "page": "a"} for at in (0, 8, 4, 100)]
    flow = Dataflow("visits")
    source = TestingSource(visits, batch_size=2)
    keyed = op.key_on("key", op.input("in", flow, source), "page")
    sessions = win.aggregate_window(
        "sessions",
        keyed,
        win.EventClock("at", "60s"),
        win.SessionWindower("5s"),
        emit="update",
        ordered=False,
        visits=win.Count(),
    )
    op.output("out", sessions.down, lake.sink_to(tmp_path / "t", mode="upsert"))
    recovery = RecoveryConfig(str(tmp_path / "checkpoint"))
    run(flow, recovery=recovery, spark=spark, shards=2, partitions=1)
    found = sorted((row["window_id"], row["visits"]) for row in lake.rows_of(tmp_path / "t"))
    assert found == [(0, 3), (100_000_000, 1)]

    received: list[Any] = []
    flow = Dataflow("reader")
    columns = ["window_id", "visits"]
    rows = op.input("in", flow, lake.source_of(tmp_path / "t", columns=columns))
    op.output("out", rows, TestingSink(received))
    run(flow, spark=spark, shards=2)
    assert sorted((row["window_id"], row["visits"]) for row in received) == found
