"""Flows on Spark that read a real broker: epochs, restarts, faults and reports."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
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
from flow.reports.summary_table import summary_table
from flow.testing import TestingSink
from recovery import RecoveryConfig, rescale, rewind, status
from tests.support.kafka import Broker, own_broker

pytestmark = pytest.mark.spark

SCHEMA = {"user": pa.string(), "number": pa.int64()}
ONCE = {"shards": 2, "partitions": 1}


def orders(numbers: Sequence[int], partitions: int = 1) -> list[dict[str, Any]]:
    """Orders of three users, distributed over partitions."""
    return [
        {
            "value": json.dumps({"user": f"u{number % 3}", "number": number}),
            "partition": number % partitions,
        }
        for number in numbers
    ]


def collect_numbers(
    numbers_before: list[int] | None, record: dict[str, Any]
) -> tuple[list[int], int]:
    """Collect all numbers of a user, so that a doubled or lost number shows."""
    numbers = [*(numbers_before or []), record["number"]]
    return numbers, len(numbers)


class Case:
    """A flow that counts orders by user, for several runs on one checkpoint."""

    def __init__(
        self,
        spark: SparkSession,
        tmp_path: Path,
        source: KafkaSource,
        number: Callable[[dict[str, Any]], int] = lambda record: record["number"],
    ) -> None:
        self.spark = spark
        self.recovery: Any = RecoveryConfig(tmp_path / "checkpoint")
        self.counts: list[tuple[str, int]] = []
        self.received: list[int] = []
        self.flow = Dataflow("orders")
        read = op.input("orders", self.flow, source)
        op.output("seen", op.map("number", read, number), TestingSink(self.received))
        keyed = op.key_on("by_user", read, "user")
        counted = op.stateful_map("count", keyed, collect_numbers)
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


def json_source(broker: Broker, topic: str | None, **arguments: Any) -> KafkaSource:
    defaults = {"value": "json", "schema": SCHEMA, "patience": "60s", "discover_every": "200ms"}
    return KafkaSource(broker.servers, topic, **{**defaults, **arguments})


# --- epochs and restarts ---


#  run 1: 250 orders in epochs of 100 at most     run 2: fails on 260     run 3: 250 .. 349
def test_a_backlog_is_read_once_in_bounded_epochs_over_a_restart(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = broker.topic(partitions=2)
    broker.produce(topic, orders(range(250), 2))
    mended = tmp_path / "mended"

    def check(record: dict[str, Any]) -> int:
        if record["number"] == 260 and not mended.exists():
            raise ValueError("not yet")
        return int(record["number"])

    source = json_source(broker, topic, max_records_per_epoch=100)
    case = Case(spark, tmp_path, source, check)

    sizes: list[int] = []
    lags: list[Any] = []

    def on_epoch(report: EpochReport) -> None:
        sizes.append(report.count("orders", "out"))
        lags.append((report.lag.get("orders"), report.behind.get("orders")))

    summary = case.run(on_epoch=on_epoch)
    case.check(range(250))
    assert sizes == [100, 100, 50]
    assert lags[0] == (
        f"150 behind ({topic}/0 75, {topic}/1 75)",
        {f"{topic}/0": 75, f"{topic}/1": 75},
    )
    assert summary.behind == {"orders": {f"{topic}/0": 0, f"{topic}/1": 0}}

    broker.produce(topic, orders(range(250, 350), 2))
    with pytest.raises(StepError, match="not yet"):
        case.run()
    case.check(range(250))
    mended.touch()
    case.run()
    case.check(range(350))

    kept = status(case.recovery.path, spark=spark)
    assert [(one.step, one.offset) for one in kept.sources] == [
        ("orders", {f"{topic}/0": 175, f"{topic}/1": 175})
    ]


def test_a_checkpoint_can_be_rewound_and_rescaled(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = broker.topic()
    broker.produce(topic, orders(range(90)))
    case = Case(spark, tmp_path, json_source(broker, topic, max_records_per_epoch=30))
    case.run()
    case.check(range(90))
    first = list(case.counts)
    rewind(case.recovery.path, 1, yes=True, spark=spark)
    case.counts.clear()
    case.run()
    # The sink has had epoch 2 already, and takes it no second time.
    assert case.counts == []
    rescale(case.recovery.path, shards=5, spark=spark)
    broker.produce(topic, orders(range(90, 120)))
    case.run(shards=None, partitions=None)
    case.counts[:0] = first
    case.check(range(120))


def test_a_stopped_run_reports_the_remaining_lag(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = broker.topic(partitions=2)
    broker.produce(topic, orders(range(100), 2))
    case = Case(spark, tmp_path, json_source(broker, topic, max_records_per_epoch=20))
    stop = StopFlag()
    summary = case.run(trigger=None, stop=stop, on_epoch=lambda *_: stop.ask())
    assert summary.epochs == 1
    assert summary.behind == {"orders": {f"{topic}/0": 40, f"{topic}/1": 40}}
    last = summary_table(case.flow, summary).splitlines()[-1]
    assert last == f"orders: 80 behind ({topic}/0 40, {topic}/1 40)"


def test_a_source_with_an_end_is_one_batch(broker: Broker, spark: SparkSession) -> None:
    topic = broker.topic(partitions=3)
    broker.produce(topic, orders(range(300), 3))
    flow, found = Dataflow("batch"), []
    read = op.input("orders", flow, json_source(broker, topic, end="latest"))
    keyed = op.key_on("by_user", read, "user")
    totals = win.aggregate_window(
        "total",
        keyed,
        win.EventClock("timestamp", "1h"),
        win.CalendarWindower("year", "UTC", every=100),
        total=win.Sum("number"),
        n=win.Count(),
    )
    op.output("out", totals.down, TestingSink(found))
    summary = run(flow, spark=spark, **ONCE)  # type: ignore[arg-type]
    assert summary.engine == "batch"
    assert sorted((key, value) for key, (_, value) in found) == [
        (f"u{user}", {"total": sum(range(user, 300, 3)), "n": 100}) for user in range(3)
    ]


# --- faults, and what changes while a flow runs ---


@pytest.fixture
def lone_broker() -> Iterator[Broker]:
    broker = own_broker()
    yield broker
    broker.remove()


def test_a_restarted_broker_is_waited_for(
    lone_broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = lone_broker.topic(partitions=2)
    lone_broker.produce(topic, orders(range(1_000), 2))
    case = Case(spark, tmp_path, json_source(lone_broker, topic, max_records_per_epoch=300))
    # While it is planned that the second epoch reads them, its messages are out of reach.
    killed = threading.Event()

    def on_epoch(report: EpochReport) -> None:
        if not killed.is_set():
            killed.set()
            lone_broker.kill()
            threading.Timer(1.0, lone_broker.start).start()

    case.run(on_epoch=on_epoch)
    case.check(range(1_000))


def test_a_partition_added_during_a_run_is_read_from_its_beginning(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = broker.topic()
    broker.produce(topic, orders(range(10)))
    case = Case(spark, tmp_path, json_source(broker, topic, start="earliest"))
    stop, added = StopFlag(), threading.Event()

    def on_epoch(report: EpochReport) -> None:
        if len(case.received) == 10 and not added.is_set():
            added.set()
            broker.add_partitions(topic, 2)
            new = [{**order, "partition": 1} for order in orders(range(10, 20))]
            broker.produce(topic, new)
        if len(case.received) >= 20:
            stop.ask()

    case.run(trigger=None, stop=stop, on_epoch=on_epoch)
    case.check(range(20))
    assert status(case.recovery.path, spark=spark).sources[0].offset == {
        f"{topic}/0": 10,
        f"{topic}/1": 10,
    }


def test_messages_deleted_between_runs_stop_the_flow(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = broker.topic()
    broker.produce(topic, orders(range(10)))
    case = Case(spark, tmp_path, json_source(broker, topic))
    case.run()
    broker.produce(topic, orders(range(10, 20)))
    broker.delete_records(topic, 15)
    with pytest.raises(SourceError) as raised:
        case.run()
    assert str(raised.value).startswith(
        f"step 'orders': messages 10 to 14 of {topic}/0 were deleted on the broker before the flow "
        "read them "
        "(on_data_loss='warn' goes on with what is left;"
    )


# --- time ---


def at(minute: int, partition: int) -> dict[str, Any]:
    """Return an order at some minutes past 10."""
    millis = int(datetime(2026, 1, 1, 10, minute, tzinfo=UTC).timestamp() * 1000)
    order = json.dumps({"user": f"p{partition}", "number": minute})
    return {"value": order, "timestamp": millis, "partition": partition}


#  minutes past 10          0    5    10   15   20   25   30
#  partition 0              x    x    x    x    x    x    x
#  partition 1              x         x                       then silent
#  partition 2                                                never a message
#  closed: those of both that end at 10 or before, the watermark of partition 1
def test_a_silent_partition_holds_the_watermark_and_an_empty_one_does_not(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = broker.topic(partitions=3)
    broker.produce(topic, [at(minute, 0) for minute in range(0, 35, 5)] + [at(0, 1), at(10, 1)])
    flow, closed = Dataflow("stream"), []
    read = op.input("orders", flow, json_source(broker, topic))
    clock = win.EventClock("timestamp", "0s", scope="stream")
    counts = win.aggregate_window(
        "counts",
        op.key_on("by_user", read, "user"),
        clock,
        win.TumblingWindower("5m"),
        n=win.Count(),
    )
    shown = op.map("shown", counts.down, lambda pair: (pair[0], pair[1][0].open_time.minute))
    op.output("out", shown, TestingSink(closed))

    def go_on() -> Any:
        recovery: Any = RecoveryConfig(tmp_path / "checkpoint")
        options: Any = {"trigger": "available", "drain": False, "system_time": 0, **ONCE}
        return run(flow, spark=spark, recovery=recovery, **options)

    go_on()
    assert sorted(closed) == [("p0", 0), ("p0", 5), ("p1", 0)]
    closed.clear()
    broker.produce(topic, [at(26, 1)])
    assert go_on().count("counts", "late") == 0
    assert sorted(closed) == [("p0", 10), ("p0", 15), ("p0", 20), ("p1", 10)]


# --- bad messages ---


@pytest.fixture
def poisoned(broker: Broker) -> str:
    topic = broker.topic()
    good = orders(range(2))
    broker.produce(topic, [good[0], {"value": "{", "key": "k"}, good[1], {"value": None}])
    return topic


def test_bad_messages_are_a_stream_of_their_own(
    broker: Broker, poisoned: str, spark: SparkSession, tmp_path: Path
) -> None:
    flow, good, bad = Dataflow("poison"), [], []
    source = json_source(broker, poisoned, on_invalid="errors", end="latest")
    read = op.try_input("orders", flow, source)
    op.output("good", op.map("number", read.ok, lambda one: one["number"]), TestingSink(good))
    op.output("bad", read.errors, TestingSink(bad))
    summary = run(flow, spark=spark, **ONCE)  # type: ignore[arg-type]
    assert good == [0, 1]
    assert all(isinstance(one, BadMessage) for one in bad)
    assert [(one.where, one.message.key, one.message.value) for one in bad] == [
        (f"topic '{poisoned}', partition 0, offset 1", b"k", b"{"),
        (f"topic '{poisoned}', partition 0, offset 3", None, None),
    ]
    assert summary.count("orders", "invalid") == 2


def test_bad_messages_are_dropped_and_counted(
    broker: Broker, poisoned: str, spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(spark, tmp_path, json_source(broker, poisoned, on_invalid="drop", end="latest"))
    summary = run(case.flow, spark=spark, **ONCE)  # type: ignore[arg-type]
    case.check(range(2))
    assert summary.count("orders", "invalid") == 2


def test_a_bad_message_stops_the_flow_by_default(
    broker: Broker, poisoned: str, spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(spark, tmp_path, json_source(broker, poisoned, end="latest"))
    with pytest.raises(SourceError) as raised:
        run(case.flow, spark=spark, **ONCE)  # type: ignore[arg-type]
    assert str(raised.value).startswith(
        f"step 'orders': topic '{poisoned}', partition 0, offset 1: its value: not JSON: "
    )
    assert case.received == []
