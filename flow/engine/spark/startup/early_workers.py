"""Python workers that are ready early.

Spark starts the process that its Python workers are forked from
(`flow.engine.spark.daemon`) when the first task needs one, and that process then
imports for a second or two, while an epoch waits. A small task that runs as soon as there is a
session has it start while the flow gets ready.
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
    """Have Spark start Python workers, in a thread that is returned, and that nobody waits for."""
    thread = threading.Thread(target=_run_a_task, args=(spark,), name="flow-workers", daemon=True)
    thread.start()
    return thread


def _run_a_task(spark: SparkSession) -> None:
    # Where it does not work, the flow's own tasks find out, and say so.
    with contextlib.suppress(Exception):
        spark.sparkContext.setJobGroup(JOB_GROUP, "starting Python workers")
        spark.range(1, numPartitions=1).mapInArrow(_as_they_come, "id long").collect()


def _as_they_come(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches
