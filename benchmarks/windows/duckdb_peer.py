"""DuckDB's group-by over the Parquet files, to a Parquet file: the limit of a batch."""

from __future__ import annotations

import time
from pathlib import Path

import duckdb

from benchmarks.windows.job import Figure, Job

_QUERY = """
COPY (
    SELECT key,
           time_bucket(INTERVAL 1 MINUTE, ts) AS open_time,
           time_bucket(INTERVAL 1 MINUTE, ts) + INTERVAL 1 MINUTE AS close_time,
           sum(amount) AS total
    FROM read_parquet('{data}/*.parquet')
    GROUP BY ALL
) TO '{out}' (FORMAT parquet)
"""


def batch(job: Job) -> Figure:
    """Return the seconds of the query, after a small query as a warm-up."""
    Path(job.out).mkdir()
    connection = duckdb.connect(config={"threads": job.cores})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(_QUERY.format(data=job.warm, out=f"{job.scratch}/warm.parquet"))
    started = time.perf_counter()
    connection.execute(_QUERY.format(data=job.data, out=f"{job.out}/all.parquet"))
    return Figure(time.perf_counter() - started)
