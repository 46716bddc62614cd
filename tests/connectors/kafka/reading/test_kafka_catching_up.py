"""Lateness in a backlog of partitions of unequal density, and after an outage."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EpochReport, StopFlag, run
from flow.connectors.kafka import KafkaSource
from flow.testing import TestingSink
from recovery import RecoveryConfig
from tests.support.kafka import Broker

pytestmark = pytest.mark.spark

HOUR = 3_600.0
DENSITIES = (2_000, 200, 20)
"""How many messages an hour each partition has."""
PER_EPOCH = 500

Row = dict[str, Any]


def hours(first: float, last: float, disorder: float) -> list[list[Row]]:
    """The messages of each partition in order of arrival, `disorder` seconds late at the most."""
    r = random.Random(first)
    found = []
    for density in DENSITIES:
        count = int(density * (last - first))
        arrivals = sorted(r.uniform(first * HOUR, last * HOUR) for _ in range(count))
        found.append(
            [{"user": f"u{r.randrange(5)}", "at": at - r.uniform(0, disorder)} for at in arrivals]
        )
    return found


def produce(broker: Broker, topic: str, partitions: list[list[Row]]) -> None:
    """Write partition after partition, the densest first, as a backlog of unequal age."""
    for number, rows in enumerate(partitions):
        broker.values(topic, [json.dumps(row) for row in rows], number)


#  partition 0   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓ │ stopped in mid-backlog │ ▓▓▓▓▓▓▓▓▓▓▓▓▓ │ outage │ ▓▓▓▓▓▓▓▓
#  partition 1   ▓  ▓  ▓  ▓  ▓  ▓  ▓   │                        │ ▓  ▓  ▓  ▓  ▓ │        │ ▓  ▓  ▓
#  partition 2   ▓           ▓         │                        │ ▓           ▓ │        │ ▓
@pytest.mark.parametrize("disorder", [0, 60])
def test_a_backlog_of_skewed_partitions_has_nothing_late(
    broker: Broker, spark: SparkSession, tmp_path: Path, disorder: int
) -> None:
    topic = broker.topic(partitions=len(DENSITIES))
    schema = {"user": pa.string(), "at": pa.float64()}
    source = KafkaSource(
        broker.servers, topic, value="json", schema=schema, max_records_per_epoch=PER_EPOCH
    )
    counted: list[Any] = []
    flow = Dataflow("skewed")
    keyed = op.key_on("by_user", op.input("orders", flow, source), "user")
    clock, minutes = win.EventClock("at", f"{disorder}s"), win.TumblingWindower("1m")
    by_minute = win.aggregate_window("by_minute", keyed, clock, minutes, n=win.Count())
    op.output("out", by_minute.down, TestingSink(counted))
    sizes: list[int] = []
    apart_us: list[int] = []
    recovery: Any = RecoveryConfig(tmp_path / "checkpoint")

    def run_on(stop_after: int | None = None, drain: bool = False) -> None:
        stop = StopFlag()

        def on_epoch(report: EpochReport) -> None:
            sizes.append(report.count("orders", "out"))
            apart_us.append(report.gauges["by_minute", "apart_us"])
            if stop_after is not None and report.epoch >= stop_after:
                stop.ask()

        summary = run(
            flow,
            spark=spark,
            recovery=recovery,
            trigger="available",
            drain=drain,
            stop=stop,
            on_epoch=on_epoch,
            shards=2,
            partitions=1,
        )
        assert summary.count("by_minute", "late") == 0

    backlog, outage = hours(0, 1, disorder), hours(1.1, 2, disorder)
    produce(broker, topic, backlog)
    run_on(stop_after=1)
    assert sum(sizes) < sum(map(len, backlog))
    run_on()
    produce(broker, topic, outage)
    run_on(drain=True)

    rows = [row for one in (*backlog, *outage) for row in one]
    totals = {(key, meta.window_id): figures["n"] for key, (meta, figures) in counted}
    assert len(totals) == len(counted), "a window came twice"
    assert totals == Counter((row["user"], int(row["at"] // 60)) for row in rows)
    assert max(sizes) <= PER_EPOCH
    assert max(apart_us[2:-1]) < 0.5 * HOUR * 1_000_000, "the one furthest behind is read first"
