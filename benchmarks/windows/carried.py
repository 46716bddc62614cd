"""A query of Spark that carries the bytes of the events through Python, and does nothing else.

It has the stages of this library's query: Python tasks turn events into rows of bytes, a shuffle
moves these to tasks with state, which yield them again. The session is that of this library. So its
time shows what a query in Python costs that does no windowing. It is no lower limit: Spark reads
the events and sends them to Python, where tasks of this library read the files themselves.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessor

from benchmarks.windows.epochs import EpochTimes, span
from benchmarks.windows.job import Figure, Job
from benchmarks.windows.ours import session
from benchmarks.windows.small_epochs import SKIPPED
from benchmarks.windows.spark_peer import CONF, read_stream, single_events

SCHEMA = "shard int, payload binary"


class Pass(StatefulProcessor):
    """A processor without state that yields its rows."""

    def init(self, handle: Any) -> None:
        """Make no state."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ARG002
        """Yield the rows."""
        yield from rows

    def close(self) -> None:
        """Do nothing."""


def streaming(job: Job) -> Figure:
    """Return the seconds from the start of the first epoch to the end of the last."""
    spark = _session(job)
    _run(read_stream(spark, job.warm, job.files_per_epoch), job, 1, "first")
    times = EpochTimes(spark)
    times.taken()
    _run(read_stream(spark, job.data, job.files_per_epoch), job, 1, "second")
    epochs = [one for one in times.taken() if one.rows]
    return Figure(span(epochs[job.skipped :], epochs[-1].number))


def one_item(job: Job) -> Figure:
    """Return the median milliseconds of an epoch with one event."""
    spark = _session(job)
    times = EpochTimes(spark)
    _run(single_events(spark, job), job, int(job.settings["levels"]), "checkpoint")
    epochs = [one for one in times.taken() if one.rows][SKIPPED:]
    return Figure(statistics.median(1000 * one.seconds for one in epochs))


def _session(job: Job) -> SparkSession:
    spark = session(job)
    settings = {name: value for name, value in CONF.items() if ".streaming." in name}
    for name, value in {**settings, "spark.sql.shuffle.partitions": str(job.cores)}.items():
        spark.conf.set(name, value)
    return spark


def _run(events: DataFrame, job: Job, levels: int, checkpoint: str) -> None:
    shards = job.cores

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            shard, payload = pa.array([number % shards], pa.int32()), [sink.getvalue().to_pybytes()]
            yield pa.RecordBatch.from_pydict({"shard": shard, "payload": payload})

    rows = events.mapInArrow(pack, SCHEMA)
    for _ in range(levels):
        rows = rows.groupBy("shard").transformWithState(Pass(), SCHEMA, "Append", "None")
    writer = rows.writeStream.foreachBatch(_drop).trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{job.scratch}/{checkpoint}").start()
    query.awaitTermination()


def _drop(epoch: DataFrame, number: int) -> None:  # noqa: ARG001
    epoch.write.format("noop").mode("overwrite").save()
