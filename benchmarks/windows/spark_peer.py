"""Spark's own streaming windows and joins, over the same files, in epochs of the same size.

The state store is RocksDB with changelog checkpointing, as in this library. ``foreachBatch`` writes
each epoch as plain Parquet files, in one pass; Spark's file sink, which also keeps a log of its
files, took a quarter longer. There are as many shuffle partitions as cores, and the JVM's compilers
are Spark's default; both settings are the fastest for Spark.
"""

from __future__ import annotations

import os
import statistics
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.windows.data import START, WAIT_SECONDS
from benchmarks.windows.epochs import EpochTimes, span
from benchmarks.windows.job import Figure, Job
from benchmarks.windows.small_epochs import SKIPPED, TIMED

CONF = {
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}


def streaming(job: Job) -> Figure:
    """Return the seconds from the start of the first epoch of data to the end of the last."""
    spark = make_session(job)
    _run(spark, job, job.warm, f"{job.scratch}/warm", f"{job.scratch}/first")
    times = EpochTimes(spark)
    times.taken()
    _run(spark, job, job.data, job.out, f"{job.scratch}/second")
    epochs = times.taken()
    read, rows = sum(one.rows for one in epochs), job.rows * (2 if job.windows == "join" else 1)
    if read != rows:
        raise SystemExit(f"Spark read {read} of {rows} rows")
    of_data = max(one.number for one in epochs if one.rows)
    return Figure(
        span(epochs[job.skipped :], of_data), {"epochs": [one.progress for one in epochs]}
    )


def one_item(job: Job) -> Figure:
    """Return the median milliseconds of an epoch with one event; see `small_epochs.one_item`."""
    spark = make_session(job)
    times = EpochTimes(spark)
    events = single_events(spark, job).withWatermark("ts", "0 seconds")
    chained = job.settings["levels"] > 1
    results = _of_windows(events, "1 minute") if chained else _windows(events, "tumbling")
    _start(results, job.out, f"{job.scratch}/checkpoint").awaitTermination()
    epochs = [one for one in times.taken() if one.rows][SKIPPED:]
    milliseconds = [1000 * one.seconds for one in epochs]
    return Figure(statistics.median(milliseconds), {"epochs": [one.progress for one in epochs]})


def single_events(spark: SparkSession, job: Job) -> DataFrame:
    """Write a file for each event of `small_epochs`, and return a stream of one file an epoch."""
    data = Path(job.scratch) / "events"
    data.mkdir()
    for number in range(SKIPPED + TIMED):
        path = data / f"{number:03d}.parquet"
        at = START + timedelta(minutes=number)
        pq.write_table(pa.table({"key": ["key"], "ts": [at], "amount": [1.0]}), path)
        os.utime(path, (number, number))  # Spark reads the files by the time of their change.
    return read_stream(spark, str(data), 1)


def read_stream(spark: SparkSession, data: str, files_per_epoch: int) -> DataFrame:
    """Return a stream of the files of a folder, some of them an epoch."""
    reader = spark.readStream.schema(spark.read.parquet(data).schema)
    reader = reader.option("pathGlobFilter", "*.parquet")
    return reader.option("maxFilesPerTrigger", files_per_epoch).parquet(data)


def make_session(job: Job) -> SparkSession:
    """Return a session with settings that are the fastest for Spark."""
    builder = SparkSession.builder.appName("peer").master(f"local[{job.cores}]")
    for name, value in {**CONF, "spark.sql.shuffle.partitions": str(job.cores)}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _run(spark: SparkSession, job: Job, data: str, out: str, checkpoint: str) -> None:
    def events() -> DataFrame:
        read = read_stream(spark, data, job.files_per_epoch)
        return read.withWatermark("ts", f"{WAIT_SECONDS} seconds")

    joins = job.windows == "join"
    results = _joined(events(), events()) if joins else _windows(events(), job.windows)
    _start(results, out, checkpoint).awaitTermination()


def _start(frame: DataFrame, out: str, checkpoint: str) -> StreamingQuery:
    def write(epoch: DataFrame, number: int) -> None:
        epoch.write.mode("overwrite").parquet(f"{out}/{number:06d}")

    Path(out).mkdir(parents=True, exist_ok=True)
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    return writer.outputMode("append").trigger(availableNow=True).start()


def _windows(events: DataFrame, windows: str) -> DataFrame:
    total = F.sum("amount").alias("total")
    match windows:
        case "tumbling":
            return _by(events, F.window("ts", "1 minute"), total)
        case "global":
            # The watermark is of the stream, as with all windows of Spark.
            of_all = events.withColumn("key", F.lit("all"))
            return _by(of_all, F.window("ts", "1 minute"), total, F.avg("amount").alias("mean"))
        case "levels":
            return _of_windows(events, "1 hour")
        case "sliding":
            window = F.window("ts", "1 minute", "15 seconds")
            return _by(events, window, total, F.avg("amount").alias("mean"))
        case "session":
            window = F.session_window("ts", "30 seconds")
            counted = _by(events, window, F.count("*").alias("n"))
            # Spark's sessions end a gap after their last event, those of this library at the event.
            last = F.col("close_time") - F.expr("INTERVAL 30 SECONDS")
            return counted.withColumn("close_time", last)
    raise ValueError(f"there are no windows called {windows!r}")


def _of_windows(events: DataFrame, length: str) -> DataFrame:
    """Return the sums of all keys in windows of a length, of the sums of each key and minute."""
    total = F.sum("amount").alias("total")
    minutes = events.groupBy("key", F.window("ts", "1 minute")).agg(total)
    later = F.window(F.window_time("window"), length)
    return _by(minutes.withColumn("key", F.lit("all")), later, F.sum("total").alias("total"))


def _joined(left: DataFrame, right: DataFrame) -> DataFrame:
    """Return the pairs of an event with those of its key up to a minute later.

    Spark reads the events once for each side.
    """
    first, second = left.alias("first"), right.alias("second")
    is_near = F.expr("second.ts >= first.ts AND second.ts <= first.ts + INTERVAL 1 MINUTE")
    pairs = first.join(second, (F.col("first.key") == F.col("second.key")) & is_near)
    return pairs.select(
        F.col("first.key").alias("key"),
        F.col("first.ts").alias("open_time"),
        F.col("second.ts").alias("close_time"),
        F.col("first.amount").alias("left_amount"),
        F.col("second.amount").alias("right_amount"),
    )


def _by(events: DataFrame, window: Column, *figures: Column) -> DataFrame:
    grouped = events.groupBy("key", window.alias("w")).agg(*figures)
    bounds = F.col("w.start").alias("open_time"), F.col("w.end").alias("close_time")
    return grouped.select("key", *bounds, *grouped.columns[2:])
