"""A `KafkaSink` at the end of flows on Spark that are killed at any point and run again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typing_extensions import override

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, StepError, run
from flow.connectors.files import ParquetSource
from flow.connectors.kafka import KafkaSink
from flow.connectors.kafka.writing.sending import Sender
from flow.connectors.sink import Sink
from flow.testing import TestingSource
from recovery import RecoveryConfig
from tests.support import kafka_child
from tests.support.kafka import Broker

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[4]
START = datetime(2024, 5, 1, tzinfo=UTC)
SECRET = "s3cr3t-s3cr3t"
SEED = int(os.environ.get("FAULTS_SEED", "1"))
"""Where the kills fall, as far as that can be repeated."""


class Dies(RuntimeError):
    """As if the run had been killed."""


class DyingSink(KafkaSink):
    """Dies after it has committed epoch 1; class-wide, as the sink is compared by its arguments."""

    dies = False

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        super().commit(epoch, messages)
        if self.dies and epoch == 1:
            raise Dies("died")


def totals(sink: Sink[Any]) -> Dataflow:
    flow = Dataflow("totals")
    items = [("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5)]
    values = op.input("in", flow, TestingSource(items, batch_size=2))
    op.output("out", op.stateful_map("total", values, kafka_child.running_total), sink)
    return flow


TOTALS = {b"a": [1, 4, 9], b"b": [2, 6]}


def by_key(broker: Broker, topic: str) -> dict[bytes, list[Any]]:
    """The committed values of each key, in order."""
    found: dict[bytes, list[Any]] = defaultdict(list)
    for message in broker.consume(topic):
        found[message.key()].append(json.loads(message.value())["value"])
    return dict(found)


def small(spark: SparkSession, tmp_path: Path) -> dict[str, Any]:
    recovery = RecoveryConfig(str(tmp_path / "checkpoint"))
    return {"recovery": recovery, "spark": spark, "shards": 4, "partitions": 2}


#  epoch    0       1       2
#  items  a1 b2   a3 b4    a5
#                    died once its transaction was committed, and once while it was open
@pytest.mark.parametrize("committed", [True, False], ids=["committed", "open"])
def test_a_killed_flow_resumes_with_nothing_lost_or_doubled(
    broker: Broker,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    committed: bool,
) -> None:
    topic = broker.topic(partitions=2)
    sink = DyingSink(broker.servers, topic, properties={"sasl.password": SECRET})
    flush = Sender.flush
    sent: list[Sender] = []

    def dying(sender: Sender, seconds: float) -> None:
        flush(sender, seconds)
        sent.append(sender)
        if len(sent) == 2:
            raise Dies("died")

    with monkeypatch.context() as patch:
        if committed:
            patch.setattr(DyingSink, "dies", True)
        else:
            patch.setattr(Sender, "flush", dying)
        with pytest.raises(StepError, match="died"):
            run(totals(sink), **small(spark, tmp_path))
    before = {b"a": [1, 4], b"b": [2, 6]} if committed else {b"a": [1], b"b": [2]}
    assert by_key(broker, topic) == before
    run(totals(sink), **small(spark, tmp_path))
    assert by_key(broker, topic) == TOTALS
    kept = [path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert kept
    assert not any(SECRET.encode() in content for content in kept)


def test_windows_of_columns_arrive_once_with_their_close_as_time(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = broker.topic(partitions=3)
    count, shops = 20_000, 50
    at = [START + timedelta(seconds=number / 10) for number in range(count)]
    table = pa.table(
        {
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "shop": [f"s{number % shops}" for number in range(count)],
            "amount": list(range(count)),
        }
    )
    pq.write_table(table, tmp_path / "sales.parquet", row_group_size=5_000)
    flow = Dataflow("sums")
    sales = op.input("sales", flow, ParquetSource(tmp_path / "sales.parquet", rows_per_epoch=5_000))
    sums = win.aggregate_window(
        "sums",
        op.key_on("by_shop", sales, "shop"),
        clock=win.EventClock("at", wait_for_system_duration="0s"),
        windower=win.TumblingWindower(length="1m"),
        timestamp="close",
        sum=win.Sum("amount"),
    )
    op.output("out", sums.down, KafkaSink(broker.servers, topic))
    run(flow, **small(spark, tmp_path))
    expected: dict[tuple[str, int], int] = defaultdict(int)
    for number in range(count):
        expected[f"s{number % shops}", number // 600] += number
    messages = broker.consume(topic)
    found: dict[tuple[str, int], int] = {}
    for message in messages:
        value = json.loads(message.value())
        minute = (datetime.fromisoformat(value["open_time"]) - START) // timedelta(minutes=1)
        found[message.key().decode(), minute] = value["sum"]
        close = datetime.fromisoformat(value["close_time"])
        assert message.timestamp()[1] == close.timestamp() * 1000
    assert len(messages) == len(found)
    assert found == expected


def test_at_least_once_loses_nothing_in_a_batch(broker: Broker, spark: SparkSession) -> None:
    topic = broker.topic(partitions=2)
    run(totals(KafkaSink(broker.servers, topic, guarantee="at least once")), spark=spark)
    assert by_key(broker, topic) == TOTALS


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    ("kills", "epochs"),
    [pytest.param(2, 9, id="a few"), pytest.param(20, 40, id="many", marks=pytest.mark.extended)],
)
def test_results_are_written_once_over_random_kills(
    kills: int, epochs: int, broker: Broker, tmp_path: Path
) -> None:
    print(f"FAULTS_SEED={SEED}")  # noqa: T201  (shown when the test fails)
    topic, rng = broker.topic(partitions=3), random.Random(SEED)
    kills_by_phase: Counter[str] = Counter()
    most = 2 * (epochs * kafka_child.LINES // (kills + 1)) - 1

    def start(lines: int | None) -> str:
        return killed_after(lines, [broker.servers, topic, str(tmp_path / "c"), str(epochs)])

    for _ in range(kills):
        kills_by_phase[start(rng.randint(1, most))] += 1
    assert start(None) == "done"
    print(f"killed at: {dict(kills_by_phase)}")  # noqa: T201
    assert by_key(broker, topic) == kafka_child.expected(epochs)


def killed_after(lines: int | None, arguments: list[str]) -> str:
    """Start a run, and kill it, Spark too, after so many lines; returns what it was at."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.kafka_child", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        at = "starting"
        try:
            for number, line in enumerate(process.stdout or (), 1):
                at = line.split()[0] if line.strip() else at
                if number == lines:
                    break
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    return at
