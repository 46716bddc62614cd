"""Reading of a large backlog in bounded epochs and bounded memory."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EpochReport, run
from flow.connectors.kafka import KafkaSource
from flow.connectors.kafka.reading.weighing import MOST_RECORDS
from flow.testing import TestingSink
from recovery import RecoveryConfig
from tests.support.kafka import Broker

pytestmark = pytest.mark.spark

PARTITIONS = 4
USERS = 1_000
HOUR = 3_600_000
MOST_MEGABYTES = 700
"""What a Python worker may take: the libraries, and a part of an epoch."""


def orders(count: int) -> Iterator[dict[str, Any]]:
    """Orders 10 ms apart, distributed over partitions."""
    for number in range(count):
        order = {"user": f"u{number % USERS}", "amount": number % 7}
        yield {
            "value": json.dumps(order),
            "timestamp": HOUR * 24 * 365 + number * 10,
            "partition": number % PARTITIONS,
        }


def workers_megabytes() -> float:
    """Return the megabytes of the largest Python process below this one."""
    pages = os.sysconf("SC_PAGE_SIZE")
    most = 0
    for pid in descendants(os.getpid()):
        try:
            name = Path(f"/proc/{pid}/comm").read_text()
            resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:  # it has ended
            continue
        most = max(most, resident * pages if "python" in name else 0)
    return most / 2**20


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            yield child
            try:
                yield from descendants(child)
            except OSError:
                continue


LARGE = [pytest.mark.extended, pytest.mark.slow, pytest.mark.timeout(1_500)]


@pytest.mark.parametrize(
    ("count", "per_epoch"),
    [
        (60_000, 20_000),
        pytest.param(5_000_000, 500_000, marks=LARGE),
        pytest.param(5_000_000, None, marks=LARGE),
    ],
)
def test_a_backlog_is_read_in_bounded_epochs_and_memory(
    broker: Broker, spark: SparkSession, tmp_path: Path, count: int, per_epoch: int | None
) -> None:
    topic = broker.topic(partitions=PARTITIONS)
    broker.produce(topic, orders(count))
    found: list[Any] = []
    flow = Dataflow("backlog")
    source = KafkaSource(
        broker.servers,
        topic,
        value="json",
        schema={"user": pa.string(), "amount": pa.int64()},
        max_records_per_epoch=per_epoch,
    )
    keyed = op.key_on("by_user", op.input("orders", flow, source), "user")
    hourly = win.aggregate_window(
        "hourly",
        keyed,
        win.EventClock("timestamp", "1m"),
        win.TumblingWindower("1h"),
        total=win.Sum("amount"),
        n=win.Count(),
    )
    op.output("out", op.map("totals", hourly.down, lambda one: one[1][1]), TestingSink(found))
    sizes: list[int] = []
    memory: list[float] = []

    def on_epoch(report: EpochReport) -> None:
        sizes.append(report.count("orders", "out"))
        memory.append(workers_megabytes())

    recovery: Any = RecoveryConfig(tmp_path / "checkpoint")
    summary = run(
        flow, spark=spark, recovery=recovery, trigger="available", drain=True, on_epoch=on_epoch
    )
    assert summary.count("hourly", "late") == 0
    assert sum(sizes) == count
    most = per_epoch or MOST_RECORDS  # these are so small that they come as many as can
    assert max(sizes) == most
    assert len([size for size in sizes if size]) == -(-count // most)
    assert sum(one["n"] for one in found) == count
    assert sum(one["total"] for one in found) == sum(
        itertools.islice(itertools.cycle(range(7)), count)
    )
    assert max(memory) < MOST_MEGABYTES
