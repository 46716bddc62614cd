"""Events a second through `dedup`, beside ``dropDuplicatesWithinWatermark`` of Spark.

Run with ``python benchmarks/dedup.py [--events N] [--runs N]``. Every event is in the files twice,
the second time about four seconds later, in event time and in the order of the files. Both engines
read the same Parquet files in epochs of the same size, drop the repeats of ten seconds by event
time, keep their state in RocksDB with a checkpoint, and write Parquet files. Each rate is the
median of the runs of a whole call, in one session after a warm-up; an engine that lets another
number of events pass ends the program.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import ParquetSink, ParquetSource
from flow.engine.spark.session.session import SparkSettings, make_session
from recovery import RecoveryConfig

FILES_PER_EPOCH = 2
FILE_ROWS = 250_000
EVENTS_A_SECOND = 10_000
REPEATED_AFTER = 4 * EVENTS_A_SECOND
TTL = 10
START = datetime(2024, 1, 1, tzinfo=UTC)
CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}

Contestant = Callable[[SparkSession, Path, Path], None]
"""A function of a session, the folder of events, and a folder to write in."""


def write_events(folder: Path, events: int) -> None:
    """Write the events: columns `id` (text), `ts` (a time) and `amount`."""
    folder.mkdir(parents=True)
    first = np.arange(events)
    numbers = np.concatenate([first, first])
    order = np.concatenate([first, first + REPEATED_AFTER]).argsort(kind="stable")
    ticks = np.sort(np.concatenate([first, first + REPEATED_AFTER]))
    start_us = int(START.timestamp() * 1e6)
    times = pa.array(start_us + ticks * (1_000_000 // EVENTS_A_SECOND), pa.timestamp("us", "UTC"))
    ids = pa.array([f"event-{number}" for number in numbers[order]])
    table = pa.table({"id": ids, "ts": times, "amount": pa.array(numbers[order] * 0.5)})
    for number, begin in enumerate(range(0, table.num_rows, FILE_ROWS)):
        pq.write_table(table.slice(begin, FILE_ROWS), folder / f"{number:05d}.parquet")


def ours(_: SparkSession, events: Path, place: Path) -> None:
    """Deduplicate with this library."""
    flow = Dataflow("dedup")
    source = ParquetSource(str(events), rows_per_epoch=FILES_PER_EPOCH * FILE_ROWS)
    keyed = op.key_on("by_id", op.input("events", flow, source), "id")
    clock = win.EventClock[dict[str, object]]("ts", "0s", scope="stream")
    out = win.dedup("once", keyed, clock, "id", ttl=f"{TTL}s")
    op.output("out", out.down, ParquetSink(str(place / "out")))
    run(flow, recovery=RecoveryConfig(str(place / "checkpoint")), system_time=START)


def spark_own(spark: SparkSession, events: Path, place: Path) -> None:
    """Deduplicate with Spark's operator."""
    frame = spark.readStream.schema(spark.read.parquet(str(events)).schema)
    frame = frame.option("maxFilesPerTrigger", FILES_PER_EPOCH)
    once = frame.parquet(str(events)).withWatermark("ts", f"{TTL} seconds")

    def write(epoch: DataFrame, number: int) -> None:
        epoch.write.mode("overwrite").parquet(str(place / "out" / f"{number:06d}"))

    writer = once.dropDuplicatesWithinWatermark(["id"]).writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(place / "checkpoint"))
    writer.outputMode("append").trigger(availableNow=True).start().awaitTermination()


CONTESTANTS: dict[str, Contestant] = {"win.dedup": ours, "Spark's own": spark_own}


def rate(contestant: Contestant, spark: SparkSession, events: Path, count: int) -> float:
    """Return the events a second of one run, after a check of what passed."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        started = time.perf_counter()
        contestant(spark, events, place)
        seconds = time.perf_counter() - started
        files = [str(path) for path in sorted((place / "out").rglob("*.parquet")) if path.is_file()]
        passed = ds.dataset(files, format="parquet").count_rows()
    if passed != count:
        raise SystemExit(f"{contestant.__name__} let {passed:,} of {count:,} events pass")
    return 2 * count / seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    spark = make_session("benchmark", SparkSettings("local[2]", CONF))
    with tempfile.TemporaryDirectory() as scratch:
        events, warm = Path(scratch) / "events", Path(scratch) / "warm"
        write_events(events, arguments.events)
        write_events(warm, 1_000)
        print(f"events/s, {2 * arguments.events:,} events, median of {arguments.runs} runs")
        for name, contestant in CONTESTANTS.items():
            rate(contestant, spark, warm, 1_000)
            rates = [
                rate(contestant, spark, events, arguments.events) for _ in range(arguments.runs)
            ]
            print(f"{name:>12} {statistics.median(rates):>12,.0f}", flush=True)


if __name__ == "__main__":
    main()
