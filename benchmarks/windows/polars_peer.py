"""Polars over the Parquet files, to a Parquet file: the limit of a batch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.windows.data import LEAST_TRADE
from benchmarks.windows.job import Figure, Job


def batch(job: Job) -> Figure:
    """Return the seconds of a group-by, after a small query as a warm-up."""
    return _measured(job, _query)


def asof(job: Job) -> Figure:
    """Return the seconds of an as-of join, after a small query as a warm-up."""
    return _measured(job, _quoted)


def _measured(job: Job, query: Callable[[str, str], None]) -> Figure:
    # Polars reads the variable when it is imported, so a query imports Polars after this line.
    os.environ["POLARS_MAX_THREADS"] = str(job.cores)
    Path(job.out).mkdir()
    query(job.warm, f"{job.scratch}/warm.parquet")
    started = time.perf_counter()
    query(job.data, f"{job.out}/all.parquet")
    return Figure(time.perf_counter() - started)


def _query(data: str, out: str) -> None:
    import polars as pl

    opened = pl.col("ts").dt.truncate("1m").alias("open_time")
    totals = (
        pl.scan_parquet(f"{data}/*.parquet")
        .group_by("key", opened)
        .agg(pl.col("amount").sum().alias("total"))
        .with_columns((pl.col("open_time") + pl.duration(minutes=1)).alias("close_time"))
    )
    totals.sink_parquet(out, engine="streaming")


def _quoted(data: str, out: str) -> None:
    import polars as pl

    events = pl.scan_parquet(f"{data}/*.parquet").sort("ts", maintain_order=True)
    is_trade = pl.col("amount") >= LEAST_TRADE
    quotes = events.filter(~is_trade).with_columns(pl.col("ts").alias("open_time"))
    pairs = (
        events.filter(is_trade)
        .join_asof(quotes, on="ts", by="key", tolerance="1m", suffix="_of_quote")
        .filter(pl.col("open_time").is_not_null())
        .select(
            "key",
            "open_time",
            pl.col("ts").alias("close_time"),
            pl.col("amount").alias("left_amount"),
            pl.col("amount_of_quote").alias("right_amount"),
        )
    )
    pairs.sink_parquet(out)
