"""Early start of Spark's Python workers.

Spark forks its Python workers from a daemon (`flow.engine.spark.daemon`), which it starts for the
first Python task. The daemon then imports modules for one or two seconds, and an epoch would wait
for it. A small task at the start of the session starts the daemon while the flow is prepared.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

JOB_GROUP = "flow-workers"
"""Name of the job in Spark."""


def start_workers_early(spark: SparkSession) -> threading.Thread:
    """Start Spark's Python workers in a daemon thread, and return the thread without waiting."""
    thread = threading.Thread(target=_run_task, args=(spark,), name="flow-workers", daemon=True)
    thread.start()
    return thread


def _run_task(spark: SparkSession) -> None:
    """Run a Spark job with one Python task that returns its rows."""
    # If the job fails, the flow's own tasks fail as well, and report the error.
    with contextlib.suppress(Exception):
        spark.sparkContext.setJobGroup(JOB_GROUP, "starting Python workers")
        spark.range(1, numPartitions=1).mapInArrow(_identity, "id long").collect()


def _identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches
