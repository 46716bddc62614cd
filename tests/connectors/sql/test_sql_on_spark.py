"""SQL sinks in a flow on Spark that fails after their commit and runs again."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, StepError, run
from flow.connectors.sql.table_sink import TableSink
from flow.testing import TestingSource
from recovery import RecoveryConfig
from tests.support.databases import Postgres, Sqlite, TestDatabase
from tests.support.one_stream import running_total
from tests.support.postgres import TELLTALE

pytestmark = pytest.mark.spark


def flow_over(*dbs: TestDatabase) -> Dataflow:
    """Every value goes to one table of each database, and the running total to another."""
    flow = Dataflow("sums")
    items = [("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5)]
    values = op.input("in", flow, TestingSource(items, batch_size=2))
    rows = op.map("row", values, lambda item: {"k": item[0], "n": item[1]})
    totals = op.stateful_map("total", values, running_total)
    lasts = op.map("last", totals, lambda item: {"k": item[0], "total": item[1]})
    schema = "k text PRIMARY KEY, total bigint"
    for n, db in enumerate(dbs):
        op.output(f"values {n}", rows, db.sink("every_value", schema="k text, n bigint"))
    for n, db in enumerate(dbs):
        op.output(f"totals {n}", lasts, db.sink("total", schema=schema, mode="upsert", key="k"))
    return flow


#  epoch           0      1      2
#  items          a1 b2  a3 b4  a5
#  every_value     x      x died
#  total           x
def test_a_flow_killed_after_a_commit_resumes_with_nothing_lost_or_doubled(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dbs: list[TestDatabase] = [Sqlite(tmp_path / "out.db")]
    with contextlib.suppress(pytest.skip.Exception):  # where no PostgreSQL is installed
        dbs.append(Postgres())
    recovery = RecoveryConfig(str(tmp_path / "checkpoint"))
    options: dict[str, Any] = {"recovery": recovery, "spark": spark, "shards": 2, "partitions": 1}
    commit, commits = TableSink.commit, list[int]()

    def dying(sink: TableSink, epoch: int, messages: Any) -> None:
        commit(sink, epoch, messages)
        commits.append(epoch)
        if commits.count(1) == len(dbs):
            raise RuntimeError("died")

    with monkeypatch.context() as patch:
        patch.setattr(TableSink, "commit", dying)
        with pytest.raises(StepError, match="died"):
            run(flow_over(*dbs), **options)
    for db in dbs:
        assert db.rows("every_value") == [("a", 1), ("a", 3), ("b", 2), ("b", 4)]
        assert db.rows("total") == [("a", 1), ("b", 2)]
    run(flow_over(*dbs), **options)
    for db in dbs:
        assert db.rows("every_value") == [("a", 1), ("a", 3), ("a", 5), ("b", 2), ("b", 4)]
        assert db.rows("total") == [("a", 9), ("b", 6)]
        numbers = db.rows("_flow_epochs", "sink, epoch")
        assert {name.split(".")[-1]: n for name, n in numbers} == {"every_value": 2, "total": 2}
    kept = [path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert kept
    assert not any(TELLTALE.encode() in content for content in kept)
