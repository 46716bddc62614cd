"""Items a second through ``map -> key_on -> stateful_map``: streaming, batch and in process.

Run with ``python benchmarks/stateful_map.py [--items N] [--runs N]``. Each rate is the median of
the runs, in one session after a warm-up. *Whole* counts from the call of `run` to its end, so
it includes the start of the query; *running* counts from the end of the first epoch to the end of
the last. The streaming engine cuts the input into epochs of 500 000 items, with its state in a
checkpoint.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

import flow.operators as op
from flow import Dataflow, run
from flow.connectors.sink import Sink, SinkBatch, WriteContext
from flow.connectors.source import PartitionedSource
from flow.engine.spark.session.session import SparkSettings, make_session
from flow.testing import TestDriver

EPOCH_ITEMS = 500_000
PARTITIONS = 2


@dataclass(frozen=True)
class Numbers(PartitionedSource[int]):
    """The whole numbers below `count`, in partitions of equal size."""

    count: int

    @override
    def partitions(self) -> Sequence[str]:
        return [str(number) for number in range(PARTITIONS)]

    @override
    def first_offset(self, partition: str) -> int:
        return int(partition) * self.count // PARTITIONS

    @override
    def next_offset(self, partition: str, start: int) -> int | None:
        end = (int(partition) + 1) * self.count // PARTITIONS
        return None if start >= end else min(end, start + EPOCH_ITEMS // PARTITIONS)

    @override
    def read_partition(self, partition: str, start: int, end: int) -> Iterator[list[int]]:
        for first in range(start, end, 65_536):
            yield list(range(first, min(end, first + 65_536)))


class CountingSink(Sink[Any]):
    """Sink that counts its items."""

    def __init__(self) -> None:
        self.items = 0

    @override
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> int:
        return sum(len(batch) for batch in batches)

    @override
    def commit(self, epoch: int, messages: Sequence[int]) -> None:
        self.items += sum(messages)


def make_flow(count: int, keys: int, sink: CountingSink) -> Dataflow:
    """Return a flow with running totals of each key."""
    flow = Dataflow("stateful_map")
    numbers = op.input("numbers", flow, Numbers(count))
    doubled = op.map("double", numbers, lambda number: (number, number * 2))
    keyed = op.key_on("key", doubled, lambda pair: f"key-{pair[0] % keys}")
    totals = op.stateful_map("total", keyed, _add)
    op.output("out", totals, sink)
    return flow


def _add(total: int | None, pair: tuple[int, int]) -> tuple[int, int]:
    new = (total or 0) + pair[1]
    return new, new


def streaming(count: int, keys: int) -> dict[str, float]:
    """Return the items a second of the streaming engine."""
    sink, ends = CountingSink(), []
    flow = make_flow(count, keys, sink)

    def on_epoch(*_: object) -> None:
        ends.append((time.perf_counter(), sink.items))

    started = time.perf_counter()
    run(flow, engine="streaming", on_epoch=on_epoch)
    whole = check(sink.items, count) / (time.perf_counter() - started)
    (first, before), (last, after) = ends[0], next(end for end in ends if end[1] == count)
    return {"whole": whole, "running": (after - before) / (last - first) if after > before else 0}


def batch(count: int, keys: int) -> dict[str, float]:
    """Return the items a second of the batch engine."""
    sink = CountingSink()
    started = time.perf_counter()
    run(make_flow(count, keys, sink), engine="batch")
    return {"batch": check(sink.items, count) / (time.perf_counter() - started)}


def in_process(count: int, keys: int) -> dict[str, float]:
    """Return the items a second of the in-process driver."""
    started = time.perf_counter()
    with TestDriver(make_flow(count, keys, CountingSink())) as driver:
        for first in range(0, count, EPOCH_ITEMS):
            driver.send("numbers", range(first, min(count, first + EPOCH_ITEMS)))
        driver.end()
        received = len(driver.received("out"))
    return {"driver": check(received, count) / (time.perf_counter() - started)}


def check(received: int, sent: int) -> int:
    """Check that no item was lost, and return the number of items."""
    if received != sent:
        raise SystemExit(f"{received} items came out, {sent} went in")
    return received


ENGINES: tuple[Callable[[int, int], dict[str, float]], ...] = (streaming, batch, in_process)
COLUMNS = {
    "whole": "streaming, whole",
    "running": "streaming, running",
    "batch": "batch, whole",
    "driver": "in process",
}


def measure(count: int, keys: int, runs: int) -> dict[str, float]:
    """Return the median rates of several runs of each engine."""
    all_rates: dict[str, list[float]] = {name: [] for name in COLUMNS}
    for engine in ENGINES:
        for _ in range(runs):
            for name, rate in engine(count, keys).items():
                all_rates[name].append(rate)
    return {name: statistics.median(rates) for name, rates in all_rates.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    make_session("benchmark", SparkSettings("local[2]"))
    for engine in ENGINES:
        engine(EPOCH_ITEMS, 10)
    print(f"items/s, {arguments.items:,} items, median of {arguments.runs} runs")
    print(f"{'keys':>8}" + "".join(f"{title:>20}" for title in COLUMNS.values()))
    for keys in (10, 1_000, 100_000):
        rates = measure(arguments.items, keys, arguments.runs)
        print(f"{keys:>8,}" + "".join(f"{rates[name]:>20,.0f}" for name in COLUMNS), flush=True)


if __name__ == "__main__":
    main()
