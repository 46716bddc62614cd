"""Items a second through ``map -> key_on -> stateful_map``: streaming, batch and in-process.

Run with ``python benchmarks/stateful_map.py [--items N] [--runs N]``. Each figure is the median of
the runs, taken in one session after a warm-up, from the start of the run to its end; the streaming
engine keeps its state in a checkpoint and cuts the input into epochs of 250 000 items.
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
from flow.connectors.sink import Sink, WriteContext, Written
from flow.connectors.source import PartitionedSource
from flow.engine.session import SparkSettings, make_session
from flow.testing import TestDriver

EPOCH_ITEMS = 250_000
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
    """Counts what it gets."""

    def __init__(self) -> None:
        self.items = 0

    @override
    def write(self, context: WriteContext, batches: Iterator[Written]) -> int:
        return sum(len(batch) for batch in batches)

    @override
    def commit(self, epoch: int, messages: Sequence[int]) -> None:
        self.items += sum(messages)


def make_flow(count: int, keys: int, sink: CountingSink) -> Dataflow:
    """Number the items of each key."""
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


def on_spark(engine: Any) -> Callable[[int, int], int]:
    """Run on Spark; returns how many items came out."""

    def measured(count: int, keys: int) -> int:
        sink = CountingSink()
        run(make_flow(count, keys, sink), engine=engine)
        return sink.items

    return measured


def in_process(count: int, keys: int) -> int:
    """Run in the in-process driver; returns how many items came out."""
    with TestDriver(make_flow(count, keys, CountingSink())) as driver:
        for first in range(0, count, EPOCH_ITEMS):
            driver.send("numbers", range(first, min(count, first + EPOCH_ITEMS)))
        driver.end()
        return len(driver.received("out"))


def rate(measured: Callable[[int, int], int], count: int, keys: int, runs: int) -> float:
    """The median of items a second over several runs."""
    rates = []
    for _ in range(runs):
        started = time.perf_counter()
        came_out = measured(count, keys)
        if came_out != count:
            raise SystemExit(f"{came_out} items came out, {count} went in")
        rates.append(count / (time.perf_counter() - started))
    return statistics.median(rates)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    make_session("benchmark", SparkSettings("local[2]"))
    engines = {
        "streaming": on_spark("streaming"),
        "batch": on_spark("batch"),
        "driver": in_process,
    }
    for measured in engines.values():
        measured(10_000, 10)
    print(f"items/s, {arguments.items:,} items, median of {arguments.runs} runs")
    print(f"{'keys':>10}" + "".join(f"{name:>12}" for name in engines))
    for keys in (10, 1_000, 100_000):
        figures = [
            rate(measured, arguments.items, keys, arguments.runs) for measured in engines.values()
        ]
        print(f"{keys:>10,}" + "".join(f"{figure:>12,.0f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main()
