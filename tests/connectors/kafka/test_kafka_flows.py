"""Flows on Spark that read a real broker: epochs, restarts, faults and bad messages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EpochReport, StepError, StopFlag, run
from flow.connectors.kafka import BadMessage, KafkaSource
from flow.errors import SourceError
from flow.testing import TestingSink
from recovery import RecoveryConfig, status
from tests.support.kafka import Broker
from tests.support.one_stream import a_flow, step

pytestmark = pytest.mark.spark

ONCE: dict[str, Any] = {"shards": 2, "partitions": 1}


def orders(numbers: Sequence[int], partitions: int = 1) -> list[dict[str, Any]]:
    """Orders of three users, distributed over partitions."""
    return [
        {"value": json.dumps({"user": f"u{n % 3}", "number": n}), "partition": n % partitions}
        for n in numbers
    ]


def json_source(broker: Broker, topic: str, **arguments: Any) -> KafkaSource:
    schema = {"user": pa.string(), "number": pa.int64()}
    defaults = {"value": "json", "schema": schema, "patience": "60s", "discover_every": "200ms"}
    return KafkaSource(broker.servers, topic, **{**defaults, **arguments})


class Case:
    """A flow that counts orders by user, for several runs on one checkpoint."""

    def __init__(self, spark: SparkSession, tmp_path: Path, source: KafkaSource) -> None:
        self.spark = spark
        self.fails_at = tmp_path / "fails"
        self.recovery = RecoveryConfig(tmp_path / "checkpoint")
        self.counts: list[tuple[str, int]] = []
        self.received: list[int] = []
        self.flow = Dataflow("orders")
        read = op.input("orders", self.flow, source)
        fails_at = self.fails_at

        def number_of(record: dict[str, Any]) -> int:
            if fails_at.exists() and record["number"] == int(fails_at.read_text()):
                raise ValueError("struck")
            return int(record["number"])

        op.output("seen", op.map("number", read, number_of), TestingSink(self.received))
        counted = op.stateful_map("count", op.key_on("by_user", read, "user"), counting)
        op.output("counts", counted, TestingSink(self.counts))

    def run(self, **options: Any) -> Any:
        defaults = {"trigger": "available", "drain": False, "system_time": 0, **ONCE}
        return run(self.flow, spark=self.spark, recovery=self.recovery, **{**defaults, **options})

    def check(self, numbers: Sequence[int]) -> None:
        """Each number was read once, and each user's count went up one by one."""
        assert sorted(self.received) == sorted(numbers)
        by_user = Counter(f"u{number % 3}" for number in numbers)
        for user, count in by_user.items():
            assert [n for key, n in self.counts if key == user] == list(range(1, count + 1))


def counting(before: int | None, _record: dict[str, Any]) -> tuple[int, int]:
    return (before or 0) + 1, (before or 0) + 1


#  run 1    0 ▒▒▒ 99 stopped                      of 250 in two partitions
#  run 2              ▒▒▒▒▒▒▒▒ 249 ▒✗ 260         of 350, the last hundred in three partitions
#  run 3                           ▒▒▒▒▒▒▒▒ 349
#  run 4                                   ✗      the broker has deleted what follows
def test_a_topic_is_read_once_in_bounded_epochs_over_a_stop_a_failure_and_a_new_partition(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = broker.topic(partitions=2)
    broker.produce(topic, orders(range(250), 2))
    case = Case(spark, tmp_path, json_source(broker, topic, max_records_per_epoch=100))
    stop, sizes = StopFlag(), list[int]()

    def on_epoch(report: EpochReport) -> None:
        sizes.append(report.count("orders", "out"))
        stop.ask()

    stopped = case.run(trigger=None, stop=stop, on_epoch=on_epoch)
    assert stopped.behind == {"orders": {f"{topic}/0": 75, f"{topic}/1": 75}}
    last_line = str(stopped).splitlines()[-1]
    assert last_line == f"orders: 150 behind ({topic}/0 75, {topic}/1 75)"
    broker.add_partitions(topic, 3)
    broker.produce(topic, orders(range(250, 350), 3))
    case.fails_at.write_text("260")
    with pytest.raises(StepError, match="struck"):
        case.run(on_epoch=on_epoch)
    case.fails_at.unlink()
    assert case.run(on_epoch=on_epoch).behind == {
        "orders": {f"{topic}/0": 0, f"{topic}/1": 0, f"{topic}/2": 0}
    }
    case.check(range(350))
    assert max(sizes) == 100
    (source,) = status(str(tmp_path / "checkpoint"), spark=spark).sources
    assert source.step == "orders"
    assert source.offset == {f"{topic}/0": 158, f"{topic}/1": 159, f"{topic}/2": 33}
    broker.produce(topic, orders(range(350, 360)))
    broker.delete_records(topic, 163)
    with pytest.raises(SourceError) as raised:
        case.run()
    assert str(raised.value).startswith(
        f"step 'orders': messages 158 to 162 of {topic}/0 were deleted on the broker before the "
        "flow read them (on_data_loss='warn' continues with what is left;"
    )


#  offsets    0 good   1 no JSON   2 good   3 without a value
def test_a_batch_has_bad_messages_as_a_stream(broker: Broker, spark: SparkSession) -> None:
    topic = broker.topic()
    good = orders(range(2))
    broker.produce(topic, [good[0], {"value": "{", "key": "k"}, good[1], {"value": None}])
    totals, bad = list[Any](), list[Any]()
    flow = Dataflow("batch")
    source = json_source(broker, topic, on_invalid="errors", end="latest")
    read = op.try_input("orders", flow, source)
    century = win.CalendarWindower("year", "UTC", every=100)
    total = win.aggregate_window(
        "total",
        op.key_on("by_user", read.ok, "user"),
        win.EventClock("timestamp", "1h"),
        century,
        total=win.Sum("number"),
    )
    op.output("out", total.down, TestingSink(totals))
    op.output("bad", read.errors, TestingSink(bad))
    summary = run(flow, spark=spark, **ONCE)
    assert (summary.engine, summary.count("orders", "invalid")) == ("batch", 2)
    assert sorted((key, sums) for key, (_, sums) in totals) == [
        ("u0", {"total": 0}),
        ("u1", {"total": 1}),
    ]
    assert all(isinstance(one, BadMessage) for one in bad)
    assert [(one.where, one.message.key, one.message.value) for one in bad] == [
        (f"topic '{topic}', partition 0, offset 1", b"k", b"{"),
        (f"topic '{topic}', partition 0, offset 3", None, None),
    ]
    dropping, strict = list[int](), list[int]()
    summary = run(numbers(broker, topic, dropping, on_invalid="drop"), spark=spark, **ONCE)
    assert (dropping, summary.count("orders", "invalid")) == ([0, 1], 2)
    with pytest.raises(SourceError) as raised:
        run(numbers(broker, topic, strict), spark=spark, **ONCE)
    assert str(raised.value).startswith(
        f"step 'orders': topic '{topic}', partition 0, offset 1: its value: not JSON: "
    )
    assert strict == []


def numbers(broker: Broker, topic: str, out: list[int], **arguments: Any) -> Dataflow:
    """A batch of the numbers of orders."""
    source = json_source(broker, topic, end="latest", **arguments)
    number = step(op.map, lambda order: order["number"])
    return a_flow(number, "orders", source=source, sink=TestingSink(out))
