"""A history of files, then a topic on a real broker: offsets and times of the history."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, SourceError, StepError, run
from flow.connectors.files import ParquetSource
from flow.connectors.kafka import KafkaSource
from flow.connectors.source import MemoryLog
from flow.connectors.then import AfterOffsets, FromTime, StartRule, Then
from flow.testing import TestingSink
from recovery import RecoveryConfig
from tests.support.kafka import Broker

pytestmark = pytest.mark.spark

SCHEMA = {"id": pa.int64(), "at": pa.float64()}
START = datetime(2024, 5, 1, tzinfo=UTC).timestamp()


def at(number: int) -> float:
    """The time of an order: one a second."""
    return START + number


def produce(broker: Broker, topic: str, numbers: range) -> None:
    """Write orders to two partitions; each message has the time of its order."""
    broker.produce(
        topic,
        (
            {
                "value": json.dumps({"id": n, "at": at(n)}),
                "partition": n % 2,
                "timestamp": int(at(n) * 1_000),
            }
            for n in numbers
        ),
    )


def archive(folder: Path, topic: str, numbers: range) -> None:
    """Write orders as a flow from `KafkaSource` to `ParquetSink` would."""
    folder.mkdir()
    columns = [
        {"id": n, "at": at(n), "topic": topic, "partition": n % 2, "offset": n // 2}
        for n in numbers
    ]
    pq.write_table(pa.Table.from_pylist(columns), folder / "part.parquet", row_group_size=50)


class Orders:
    """A flow that reads orders, drops repeated ones, and counts them by minute."""

    def __init__(self, tmp_path: Path, source: Then[Any], spark: SparkSession) -> None:
        self.ids: list[int] = []
        self.late: list[Any] = []
        self.counts: dict[int, int] = {}
        self.fails_at = tmp_path / "fails"
        self._out: list[Any] = []
        self._options: dict[str, Any] = {
            "spark": spark,
            "recovery": RecoveryConfig(tmp_path / "checkpoint"),
            "trigger": "available",
            "system_time": 0,
            "shards": 2,
            "partitions": 1,
        }
        fails = self.fails_at

        def check(row: dict[str, Any]) -> int:
            if fails.exists() and row["id"] == int(fails.read_text()):
                raise ValueError("struck")
            return int(row["id"])

        self.flow = Dataflow("orders")
        read = op.input("orders", self.flow, source)
        op.output("ids", op.map("check", read, check), TestingSink(self.ids))
        keyed = op.key_on("by_kind", read, lambda row: f"kind {row['id'] % 2}")
        clock = win.EventClock("at", "30s")
        once = win.dedup("once", keyed, clock, id="id", ttl="5m")
        minutes = win.TumblingWindower("1m")
        counted = win.aggregate_window("count", once.down, clock, minutes, n=win.Count())
        op.output("out", counted.down, TestingSink(self._out))
        op.output("late", counted.late, TestingSink(self.late))

    def run(self, **options: Any) -> None:
        run(self.flow, **{**self._options, **options})

    def total(self) -> int:
        return sum(figures["n"] for _, (_, figures) in self._out)


def source_of(broker: Broker, topic: str, history: Path, start: StartRule) -> Then[Any]:
    live = KafkaSource(broker.servers, topic, value="json", schema=SCHEMA, max_records_per_epoch=60)
    return Then(ParquetSource(history, rows_per_epoch=50), live, start=start)


#  history  0 ▒▒▒▒▒▒▒▒▒ 120
#  topic    0 ░░░░░░░░░░░░░░▒▒✗▒▒▒▒▒▒ 300 ▒▒▒ 340     fails in the first epoch of the topic
def test_a_topic_goes_on_after_the_offsets_of_the_history(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = broker.topic(partitions=2)
    produce(broker, topic, range(300))
    archive(tmp_path / "history", topic, range(120))
    orders = Orders(tmp_path, source_of(broker, topic, tmp_path / "history", AfterOffsets()), spark)
    orders.fails_at.write_text("125")
    with pytest.raises(StepError, match="struck"):
        orders.run(drain=False)
    assert sorted(orders.ids) == list(range(120))
    orders.fails_at.unlink()
    orders.run(drain=False)
    produce(broker, topic, range(300, 340))
    orders.run(drain=True)
    assert sorted(orders.ids) == list(range(340))
    assert (orders.late, orders.total()) == ([], 340)


#  history  0 ▒▒▒▒▒▒▒▒▒ 120
#  topic            100 ▒▒▒▒▒▒▒▒▒▒▒▒▒▒ 200     the overlap of 20 s comes twice
def test_the_overlap_of_a_start_by_time_is_dropped_by_id(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = broker.topic(partitions=2)
    produce(broker, topic, range(200))
    archive(tmp_path / "history", topic, range(120))
    rule = FromTime("at", overlap="20s")
    orders = Orders(tmp_path, source_of(broker, topic, tmp_path / "history", rule), spark)
    orders.run(drain=True)
    assert sorted(orders.ids) == sorted([*range(120), *range(99, 200)])
    assert (orders.late, orders.total()) == ([], 200)


def test_a_topic_that_has_lost_what_follows_the_history_is_an_error(
    broker: Broker, tmp_path: Path
) -> None:
    topic = broker.topic(partitions=2)
    produce(broker, topic, range(200))
    broker.delete_records(topic, 70)
    archive(tmp_path / "history", topic, range(120))
    source = source_of(broker, topic, tmp_path / "history", AfterOffsets())
    with pytest.raises(SourceError, match=rf"messages 60 to 69 of {topic}/0"):
        plan_until(source, 120)


def plan_until(source: Then[Any], slices: int) -> None:
    """Plan slices of a source, one after another."""
    planner = source.planner(MemoryLog(), 1)
    offset: Any = None
    try:
        for _ in range(slices):
            planned = planner.next(offset)
            offset = offset if planned is None else planned.end
    finally:
        planner.close()
