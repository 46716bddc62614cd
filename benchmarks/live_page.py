"""The cost of the live page: whole runs with a page and one reader, beside runs without a page.

Run with ``python benchmarks/live_page.py [--epochs N] [--pairs N]``. A run reads Parquet
files in epochs of one file, counts rows in windows by key over columns, and keeps a checkpoint. The
reader takes server-sent events as a browser does, in a process of its own. Runs with and without
the page alternate in one session after a warm-up, and each pair swaps its order, so that a machine
that slows down slows both. Two times are compared: elapsed seconds, and seconds of processor time
of the driver, the JVM and the Python workers, without the reader. Other programs of the machine
hardly disturb the processor time; the elapsed time has the waits too. A ratio is the median over
pairs of the time with a page by the time without; the spread beside it is that of the pairs, and
a ratio within it shows nothing.
"""

from __future__ import annotations

import argparse
import math
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import flow.operators as op
import flow_windowing as win
from benchmarks.nexmark.processor_time import processor_seconds
from flow import Dataflow, run
from flow.connectors.files import ParquetSink, ParquetSource
from flow.engine.spark.session.session import SparkSettings, make_session
from recovery import RecoveryConfig

KEYS = 1_000
ROWS_PER_EPOCH = 200_000
AIM = 1.02
"""The greatest ratio that the page should cost."""

READER = """
import sys, time, urllib.request
while True:
    try:
        with urllib.request.urlopen(sys.argv[1] + "events") as events:
            for line in events:
                pass
    except OSError:
        time.sleep(0.05)
"""
"""A program that follows the page of each run at an address."""


def write_rows(folder: Path, epochs: int) -> None:
    """Write a file for each epoch: columns `key` (text) and `at` (seconds)."""
    folder.mkdir(parents=True)
    chances = np.random.default_rng(1)
    for number in range(epochs):
        keys = chances.integers(0, KEYS, ROWS_PER_EPOCH)
        at = np.arange(number * ROWS_PER_EPOCH, (number + 1) * ROWS_PER_EPOCH) / 1_000
        table = pa.table({"key": np.char.mod("k%d", keys), "at": at})
        pq.write_table(table, folder / f"{number:05}.parquet")


class Spent(NamedTuple):
    """Elapsed seconds, and seconds of processor time."""

    elapsed: float
    processor: float

    @classmethod
    def now(cls, reader: int) -> Spent:
        """Return the times so far of this process and its descendants, without the reader's."""
        processor = (processor_seconds() or 0.0) - (processor_seconds(reader) or 0.0)
        return cls(time.monotonic(), processor)

    def since(self, before: Spent) -> Spent:
        """Return the times between two moments."""
        return Spent(self.elapsed - before.elapsed, self.processor - before.processor)

    def ratio_to(self, other: Spent) -> Spent:
        """Return the ratio of each time to that of another run."""
        return Spent(
            self.elapsed / other.elapsed,
            self.processor / other.processor if other.processor else math.nan,
        )


def spent_on(spark: SparkSession, source: Path, address: str | None, reader: int) -> Spent:
    """Return the times of a run, with a page at an address or without a page."""
    with tempfile.TemporaryDirectory() as folder:
        graph = Dataflow("live_page")
        rows = op.input("in", graph, ParquetSource(str(source), rows_per_epoch=ROWS_PER_EPOCH))
        keyed = op.key_on("by_key", rows, "key")
        minutes = win.TumblingWindower("1m")
        clock = win.EventClock("at", "10s")
        counts = win.aggregate_window("minutes", keyed, clock, minutes, n=win.Count())
        op.output("out", counts.down, ParquetSink(f"{folder}/out"))
        recovery = RecoveryConfig(f"{folder}/checkpoint")
        start = Spent.now(reader)
        run(graph, spark=spark, recovery=recovery, web=address)
        return Spent.now(reader).since(start)


def free_address() -> str:
    """Return a free address of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def ratios(spark: SparkSession, source: Path, address: str, pairs: int, reader: int) -> list[Spent]:
    """Return the ratios of each pair of runs, and print their times."""
    found = []
    for number in range(pairs + 1):  # The first pair warms up.
        times: dict[str | None, Spent] = {}
        for one in (address, None) if number % 2 else (None, address):
            times[one] = spent_on(spark, source, one, reader)
        if number:
            without, with_page = times[None], times[address]
            found.append(with_page.ratio_to(without))
            print(
                f"pair {number}: {without.elapsed:.2f} s elapsed and {without.processor:.2f} s of "
                f"processors without, {with_page.elapsed:.2f} s and {with_page.processor:.2f} s "
                "with a page"
            )
    return found


def show(what: str, found: list[float]) -> None:
    """Print the median of ratios, and their spread."""
    spread = f"{min(found):.3f} to {max(found):.3f}"
    print(
        f"with a page and one reader: {statistics.median(found):.3f} of the {what} without "
        f"({spread}; aim {AIM})"
    )


def main() -> None:
    """Print the ratios of the times with a page and a reader to the times without a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=6)
    options = parser.parse_args()
    spark = make_session("live_page", SparkSettings("local[2]"))
    address = free_address()
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder, "rows"), options.epochs)
        reader = subprocess.Popen([sys.executable, "-c", READER, f"http://{address}/"])
        try:
            rows = Path(folder, "rows")
            found = ratios(spark, rows, address, options.pairs, reader.pid)
        finally:
            reader.kill()
            reader.wait()
    spark.stop()
    show("processor time", [one.processor for one in found])
    show("elapsed time", [one.elapsed for one in found])


if __name__ == "__main__":
    main()
