"""Sessions and count windows of records on Spark, from Parquet to Parquet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import ParquetSink, ParquetSource
from flow_windowing import Count, CountWindower, EventClock, SessionWindower, Sum
from recovery import RecoveryConfig

pytestmark = pytest.mark.spark

START = datetime(2023, 12, 14, 10, 30, tzinfo=UTC)
SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])


def write(folder: Path, *rows: tuple[str, int, int]) -> None:
    """A file of what users did, at which second, with which number."""
    values = [{"user": u, "ts": START + timedelta(seconds=s), "n": n} for u, s, n in rows]
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(values, schema=SCHEMA), folder / "1.parquet")


def windows_flow(home: Path) -> Dataflow:
    flow = Dataflow("sessions")
    rows = op.input("rows", flow, ParquetSource(home / "in", rows_per_epoch=3))
    by_user = op.key_on("by_user", rows, "user")
    for name, windower in (("sessions", SessionWindower("5s")), ("counts", CountWindower(2))):
        out = win.aggregate_window(
            name,
            by_user,
            EventClock("ts", "1m"),
            windower,
            ordered=False,
            n=Count(),
            total=Sum("n"),
        )
        op.output(f"write_{name}", out.down, ParquetSink(home / name))
    return flow


def read_windows(folder: Path) -> list[tuple[Any, ...]]:
    """User, first and last second, how many ids were merged, how many values, and their sum."""
    files = [pq.ParquetFile(one).read() for one in sorted(folder.rglob("*.parquet"))]
    rows = [row for table in files for row in table.to_pylist()]
    return sorted(
        (
            row["key"],
            (row["open_time"] - START).seconds,
            (row["close_time"] - START).seconds,
            len(row.get("merged_ids") or ()),
            row["n"],
            row["total"],
        )
        for row in rows
    )


@pytest.mark.extended
def test_windows_of_a_batch_and_of_two_epochs_are_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    # a: 0 . . . . . . . 8 | 4 makes them one.      b: 1 | 3, 90 is a session of its own
    rows = [("a", 8, 1), ("a", 0, 2), ("b", 1, 4), ("a", 4, 8), ("b", 3, 16), ("b", 90, 32)]
    sessions = [("a", 0, 8, 1, 3, 11), ("b", 1, 3, 0, 2, 20), ("b", 90, 90, 0, 1, 32)]
    counts = [("a", 0, 8, 0, 2, 3), ("b", 1, 3, 0, 2, 20)]

    for name in ("batch", "epochs"):
        home = tmp_path / name
        home.mkdir()
        write(home / "in", *rows)
        recovery = RecoveryConfig(str(home / "checkpoint")) if name == "epochs" else None
        summary = run(windows_flow(home), spark=spark, recovery=recovery)
        assert summary.engine == ("batch" if recovery is None else "streaming")
        assert (read_windows(home / "sessions"), read_windows(home / "counts")) == (
            sessions,
            counts,
        )
