"""SQL sinks in a flow on Spark that fails after their commit and runs again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typing_extensions import override

import flow.operators as op
from flow import Dataflow, StepError, run
from flow.connectors.sink import Sink, WriteContext, Written
from flow.testing import TestingSource
from recovery import RecoveryConfig
from tests.support.databases import Postgres, Sqlite, TestDatabase
from tests.support.postgres import TELLTALE

pytestmark = pytest.mark.spark


class DiesAfter(Sink[Any]):
    """Hands all on to another sink, and fails once that one has committed a certain epoch."""

    def __init__(self, sink: Sink[Any], epoch: int | None) -> None:
        self._sink = sink
        self._epoch = epoch

    @override
    def open(self, run_id: str, resuming: bool) -> None:
        self._sink.open(run_id, resuming)

    @override
    def write(self, context: WriteContext, batches: Iterator[Written]) -> Any:
        return self._sink.write(context, batches)

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        self._sink.commit(epoch, messages)
        if epoch == self._epoch:
            raise RuntimeError("died")

    @override
    def close(self) -> None:
        self._sink.close()


def running(total: int | None, value: int) -> tuple[int, int]:
    return (total or 0) + value, (total or 0) + value


def flow_over(db: TestDatabase, dies_after: int | None) -> Dataflow:
    """Every value goes to one table, and the running total of its key to another."""
    flow = Dataflow("sums")
    items = [("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5)]
    values = op.input("in", flow, TestingSource(items, batch_size=2))
    rows = op.map("row", values, lambda item: {"k": item[0], "n": item[1]})
    sink = db.sink("every_value", schema="k text, n bigint")
    op.output("values", rows, DiesAfter(sink, dies_after))
    totals = op.stateful_map("total", values, running)
    lasts = op.map("last", totals, lambda item: {"k": item[0], "total": item[1]})
    schema = "k text PRIMARY KEY, total bigint"
    op.output("totals", lasts, db.sink("total", schema=schema, mode="upsert", key="k"))
    return flow


#  epoch           0      1      2
#  items          a1 b2  a3 b4  a5
#  every_value     x      x died
#  total           x
@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_a_flow_killed_after_a_commit_resumes_with_nothing_lost_or_doubled(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    db = Sqlite(tmp_path / "out.db") if name == "sqlite" else Postgres()
    recovery = RecoveryConfig(str(tmp_path / "checkpoint"))
    options: dict[str, Any] = {"recovery": recovery, "spark": spark, "shards": 4, "partitions": 2}
    with pytest.raises(StepError, match="died"):
        run(flow_over(db, dies_after=1), **options)
    assert db.rows("every_value") == [("a", 1), ("a", 3), ("b", 2), ("b", 4)]
    assert db.rows("total") == [("a", 1), ("b", 2)]

    run(flow_over(db, dies_after=None), **options)
    assert db.rows("every_value") == [("a", 1), ("a", 3), ("a", 5), ("b", 2), ("b", 4)]
    assert db.rows("total") == [("a", 9), ("b", 6)]
    numbers = {sink.split(".")[-1]: epoch for sink, epoch in db.rows("_flow_epochs", "sink, epoch")}
    assert numbers == {"every_value": 2, "total": 2}
    kept = [path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert kept
    assert not any(TELLTALE.encode() in content for content in kept)
