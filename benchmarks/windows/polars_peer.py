"""Polars' group-by over the Parquet files, to a Parquet file: the limit of a batch."""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.windows.job import Figure, Job


def batch(job: Job) -> Figure:
    """Return the seconds of the query, after a small query as a warm-up."""
    # Polars reads the variable when it is imported, so `_query` imports Polars after this line.
    os.environ["POLARS_MAX_THREADS"] = str(job.cores)
    Path(job.out).mkdir()
    _query(job.warm, f"{job.scratch}/warm.parquet")
    started = time.perf_counter()
    _query(job.data, f"{job.out}/all.parquet")
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
