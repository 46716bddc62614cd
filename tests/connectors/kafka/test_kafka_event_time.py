"""Event time of partitions of a real broker: skewed backlogs, outages and silent partitions.

The feed, the planner and the local engine run in this process.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.connectors.kafka import KafkaSource
from flow.testing import TestingSink
from tests.support.feeding import FedRun
from tests.support.kafka import Broker

HOUR = 3_600.0
DENSITIES = (600, 60, 20)
"""Messages an hour of each partition."""

Row = dict[str, Any]


def counting_run(broker: Broker, topic: str, clock: win.EventClock[Any], minutes: int) -> FedRun:
    """A run that counts the messages of each user in windows of some minutes."""
    schema = {"user": pa.string(), "at": pa.float64()}
    source = KafkaSource(
        broker.servers, topic, value="json", schema=schema, max_records_per_epoch=300
    )
    flow = Dataflow("counts")
    keyed = op.key_on("by_user", op.input("orders", flow, source), "user")
    windows = win.TumblingWindower(f"{minutes}m")
    counts = win.aggregate_window("counts", keyed, clock, windows, n=win.Count())
    op.output("out", counts.down, TestingSink([]))
    op.output("late", counts.late, TestingSink([]))
    return FedRun(flow)


def produce(broker: Broker, topic: str, partitions: list[list[Row]]) -> None:
    """Write partition after partition, as a backlog of unequal age."""
    for number, rows in enumerate(partitions):
        broker.values(topic, [json.dumps(row) for row in rows], number)


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


#  partition 0   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓ │ killed in mid-backlog │ ▓▓▓▓▓▓▓▓▓▓▓▓▓ │ outage │ ▓▓▓▓▓▓▓▓
#  partition 1   ▓  ▓  ▓  ▓  ▓  ▓  ▓   │                       │ ▓  ▓  ▓  ▓  ▓ │        │ ▓  ▓  ▓
#  partition 2   ▓           ▓         │                       │ ▓           ▓ │        │ ▓
@pytest.mark.parametrize("disorder", [pytest.param(0, marks=pytest.mark.extended), 60])
def test_a_backlog_of_skewed_partitions_has_nothing_late(broker: Broker, disorder: int) -> None:
    topic = broker.topic(partitions=len(DENSITIES))
    run = counting_run(broker, topic, win.EventClock("at", f"{disorder}s"), minutes=1)
    backlog, outage = hours(0, 1, disorder), hours(1.1, 2, disorder)
    produce(broker, topic, backlog)
    assert run.epoch()
    run.kill()
    run.run()
    produce(broker, topic, outage)
    run.run()
    produce(broker, topic, [[{"user": f"u{n}", "at": 9 * HOUR} for n in range(5)]] * 3)
    run.run()
    assert run.outputs.get("late", []) == []
    totals = {(key, meta.window_id): sums["n"] for key, (meta, sums) in run.outputs["out"]}
    assert len(totals) == len(run.outputs["out"]), "a window came twice"
    rows = [row for one in (*backlog, *outage) for row in one]
    assert totals == Counter((row["user"], int(row["at"] // 60)) for row in rows)


#  minutes                  0    5    10   15   20   25   30
#  partition 0              x    x    x    x    x    x    x
#  partition 1              x         x                       then silent
#  partition 2                                                never a message
#  closed: those of both that end at 10 or before, the watermark of partition 1
def test_a_silent_partition_holds_the_watermark_and_an_empty_one_does_not(broker: Broker) -> None:
    topic = broker.topic(partitions=3)
    run = counting_run(broker, topic, win.EventClock("at", "0s", scope="stream"), minutes=5)

    def closed() -> list[tuple[str, int]]:
        run.run()
        return sorted((key, meta.open_time.minute) for key, (meta, _) in run.outputs.pop("out"))

    def minutes(user: str, *found: int) -> list[Row]:
        return [{"user": user, "at": minute * 60.0} for minute in found]

    produce(broker, topic, [minutes("p0", *range(0, 35, 5)), minutes("p1", 0, 10)])
    assert closed() == [("p0", 0), ("p0", 5), ("p1", 0)]
    produce(broker, topic, [[], minutes("p1", 26)])
    assert closed() == [("p0", 10), ("p0", 15), ("p0", 20), ("p1", 10)]
    assert run.outputs.get("late", []) == []
