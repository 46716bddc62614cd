"""Windows of many keys on Spark, with local copies of state, over several runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import ParquetSink, ParquetSource
from flow.engine.spark.spark_store import worker_folder
from flow.errors import SourceError
from flow_windowing import Count, EventClock, Sum, TumblingWindower
from recovery import RecoveryConfig

pytestmark = pytest.mark.spark

START = datetime(2023, 12, 14, 10, 30, tzinfo=UTC)
START_US = int(START.timestamp() * 1e6)
KEYS, ROWS, SHARDS = 10_000, 60_000, 4
MINUTE_US = 60_000_000


def write_rows(folder: Path, number: int) -> None:
    """A file of a minute's rows, keys and numbers at random."""
    rng = np.random.default_rng(number)
    ts = np.sort(rng.integers(0, MINUTE_US, ROWS)) + START_US + number * MINUTE_US
    table = pa.table(
        {
            "user": [f"user-{one}" for one in rng.integers(0, KEYS, ROWS).tolist()],
            "ts": pa.array(ts, pa.timestamp("us", tz="UTC")),
            "n": rng.integers(0, 100, ROWS),
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / f"{number}.parquet")


def sums_flow(home: Path) -> Dataflow:
    flow = Dataflow("sums")
    rows = op.input("rows", flow, ParquetSource(home / "in", rows_per_epoch=ROWS))
    by_user = op.key_on("by_user", rows, "user")
    clock = EventClock("ts", "10s", on_idle="hold")
    windows = TumblingWindower("90s", START)
    sums = win.aggregate_window("sums", by_user, clock, windows, n=Count(), total=Sum("n"))
    op.output("out", sums.down, ParquetSink(home / "out"))
    return flow


def read_sums(home: Path) -> list[tuple[Any, ...]]:
    files = (pq.ParquetFile(one).read() for one in sorted((home / "out").rglob("*.parquet")))
    columns = ("key", "open_time", "n", "total")
    return sorted(
        row
        for table in files
        for row in zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    )


@pytest.fixture
def copies(spark: SparkSession) -> Path:
    """Return the folder of the workers' local copies of state."""
    (found,) = spark.sparkContext.parallelize([""], 1).map(worker_folder).collect()
    assert found is not None
    return found


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.extended
def test_windows_of_many_keys_agree_with_and_without_local_copies(
    spark: SparkSession, tmp_path: Path, copies: Path
) -> None:
    home = tmp_path / "copied"
    recovery = RecoveryConfig(tmp_path / "checkpoint")
    before = files(copies)
    for number in range(6):
        write_rows(home / "in", number)
    broken = home / "in" / "3.parquet"
    sound = broken.read_bytes()
    broken.write_bytes(bytes(len(sound)))  # the fourth of six epochs fails
    with pytest.raises(SourceError):
        run(sums_flow(home), spark=spark, recovery=recovery, shards=SHARDS)
    assert len(files(copies) - before) == SHARDS
    broken.write_bytes(sound)
    run(sums_flow(home), spark=spark, recovery=recovery)
    assert len(files(copies) - before) == SHARDS  # each has taken the place of the one before

    whole = tmp_path / "whole"
    for number in range(6):
        write_rows(whole / "in", number)
    run(sums_flow(whole), spark=spark, engine="batch")
    assert len(read_sums(home)) > 3 * KEYS
    assert read_sums(home) == read_sums(whole)
