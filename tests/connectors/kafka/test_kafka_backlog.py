"""Reading of a large backlog in bounded epochs and bounded memory."""

from __future__ import annotations

import contextlib
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
from flow.connectors.kafka.ranges import MOST_RECORDS
from flow.testing import TestingSink
from recovery import RecoveryConfig
from tests.support.kafka import Broker

pytestmark = pytest.mark.spark

COUNT = 5_000_000
PARTITIONS = 4
START = 365 * 24 * 3_600_000
MOST_MEGABYTES = 700
"""What a Python worker may take: the libraries, and a part of an epoch."""


def orders() -> Iterator[dict[str, Any]]:
    """Orders 10 ms apart, distributed over partitions."""
    for number in range(COUNT):
        value = json.dumps({"user": f"u{number % 1_000}", "amount": number % 7})
        yield {"value": value, "timestamp": START + 10 * number, "partition": number % PARTITIONS}


def workers_megabytes() -> float:
    """Return the megabytes of the largest Python process of this session."""
    most = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            is_python = "python" in (process / "comm").read_text()
            if is_python and os.getsid(int(process.name)) == os.getsid(0):
                most = max(most, int((process / "statm").read_text().split()[1]))
    return most * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("per_epoch", [500_000, None])
def test_a_backlog_is_read_in_bounded_epochs_and_memory(
    broker: Broker, spark: SparkSession, tmp_path: Path, per_epoch: int | None
) -> None:
    topic = broker.topic(partitions=PARTITIONS)
    broker.produce(topic, orders())
    found: list[Any] = []
    flow = Dataflow("backlog")
    schema = {"user": pa.string(), "amount": pa.int64()}
    options: Any = {"value": "json", "schema": schema, "max_records_per_epoch": per_epoch}
    read = op.input("orders", flow, KafkaSource(broker.servers, topic, **options))
    clock, hours = win.EventClock("timestamp", "1m"), win.TumblingWindower("1h")
    keyed = op.key_on("by_user", read, "user")
    hourly = win.aggregate_window("hourly", keyed, clock, hours, n=win.Count())
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
    assert sum(sizes) == COUNT
    most = per_epoch or MOST_RECORDS  # these are so small that they come as many as can
    assert max(sizes) == most
    assert len([size for size in sizes if size]) == -(-COUNT // most)
    assert sum(one["n"] for one in found) == COUNT
    assert max(memory) < MOST_MEGABYTES
