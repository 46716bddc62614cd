"""SQL sinks in a flow on Spark that fails after their commit and runs again."""

from __future__ import annotations

import contextlib
from csv import DictReader
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, StepError, run, to_dataframe
from flow.connectors.files import CsvSink, ParquetSink, ParquetSource
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
    totals = op.stateful_map("total", values, running_total)
    lasts = op.map("last", totals, lambda item: {"k": item[0], "total": item[1]})
    schema, of_pairs = "k text PRIMARY KEY, total bigint", "key text, value bigint"
    for n, db in enumerate(dbs):
        op.output(f"values {n}", values, db.sink("every_value", schema=of_pairs))
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


def test_results_of_windows_are_the_same_rows_in_each_kind_of_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    orders = [
        {"shop": shop, "till": 1, "at": at, "n": at % 7} for at in range(9) for shop in ("a", "b")
    ]
    pq.write_table(pa.Table.from_pylist(orders), tmp_path / "orders.parquet")
    flow = Dataflow("orders")
    keyed = op.key_on(
        "key", op.input("in", flow, ParquetSource(tmp_path / "orders.parquet")), ["shop", "till"]
    )
    clock, windower = win.EventClock("at", "0s"), win.TumblingWindower("3s")
    down = win.aggregate_window("sums", keyed, clock, windower, n=win.Sum("n"), m=win.Max("n")).down
    columns = [
        ("key", pa.string()),
        ("window_id", pa.int64()),
        ("n", pa.int64()),
        ("m", pa.int64()),
    ]
    columns += [(name, pa.timestamp("us", "UTC")) for name in ("open_time", "close_time")]
    columns += [("merged_ids", pa.list_(pa.int64())), ("is_retraction", pa.bool_())]
    db = Sqlite(tmp_path / "out.db")
    op.output("table", down, db.sink(schema=pa.schema(columns)))
    op.output("csv", down, CsvSink(tmp_path / "csv"))
    op.output("parquet", down, ParquetSink(tmp_path / "parquet"))
    frame = to_dataframe(down, spark=spark, shards=2)
    run(flow, spark=spark, shards=2)
    names = ["key", "window_id", "open_time", "close_time", "merged_ids", "is_retraction", "n", "m"]
    assert frame.columns == names
    sums = [(0, 3, 2), (1, 12, 5), (2, 7, 6)]
    expected = [(key, *figures) for key in ('["a",1]', '["b",1]') for figures in sums]
    written = pq.read_table(tmp_path / "parquet", partitioning=None).to_pylist()
    texts = [path.read_text().splitlines() for path in tmp_path.rglob("*.csv")]
    in_text = [row for lines in texts for row in DictReader(lines)]
    in_frame = [row.asDict() for row in frame.collect()]
    in_table = [dict(zip(names, row, strict=True)) for row in db.rows(columns=", ".join(names))]
    for rows in (written, in_text, in_frame, in_table):
        assert all(list(row) == names for row in rows)
        figures = [
            (row["key"], *(int(row[one]) for one in ("window_id", "n", "m"))) for row in rows
        ]
        assert sorted(figures) == expected
        assert {str(row["merged_ids"]) for row in rows} == {"[]"}
        assert {str(row["is_retraction"]).lower() for row in rows} <= {"false", "0"}
