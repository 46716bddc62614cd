"""A history of files, then a topic on a real broker: offsets and times of the history."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flow import SourceError
from flow.connectors.files import ParquetSource
from flow.connectors.kafka import KafkaSource
from flow.connectors.then import AfterOffsets, FromTime, StartRule, Then
from flow.testing import run_source
from tests.support.kafka import Broker

START = datetime(2024, 5, 1, tzinfo=UTC).timestamp()


def then_of(broker: Broker, topic: str, folder: Path, start: StartRule) -> Then[Any]:
    """Orders 0 to 119 as a flow from `KafkaSource` to `ParquetSink` writes them, then the topic.

    The topic has two partitions and orders 0 to 199, one a second; its messages have their times.
    """
    orders = [{"id": n, "at": START + n} for n in range(200)]
    messages = [
        {"value": json.dumps(one), "partition": n % 2, "timestamp": int(one["at"] * 1_000)}
        for n, one in enumerate(orders)
    ]
    broker.produce(topic, messages)
    rows = [
        {**one, "topic": topic, "partition": n % 2, "offset": n // 2}
        for n, one in enumerate(orders[:120])
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "part.parquet", row_group_size=50)
    schema = {"id": pa.int64(), "at": pa.float64()}
    live = KafkaSource(broker.servers, topic, value="json", schema=schema, end="latest")
    return Then(ParquetSource(folder, rows_per_epoch=50), live, start=start)


#  history  0 ▒▒▒▒▒▒▒▒▒ 119
#  topic                120 ▒▒▒▒▒▒▒▒▒▒▒▒▒▒ 199     after the offsets of the history
#  topic             99 ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒ 199     from 20 s before its last time
@pytest.mark.parametrize(
    ("start", "first"), [(AfterOffsets(), 120), (FromTime("at", overlap="20s"), 99)]
)
def test_a_topic_goes_on_after_the_offsets_or_the_times_of_the_history(
    broker: Broker, tmp_path: Path, start: StartRule, first: int
) -> None:
    source = then_of(broker, broker.topic(partitions=2), tmp_path, start)
    ids = [order["id"] for order in run_source(source)]
    assert ids[:120] == list(range(120))
    assert sorted(ids[120:]) == list(range(first, 200))


def test_the_loss_of_what_follows_the_history_is_an_error(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(partitions=2)
    source = then_of(broker, topic, tmp_path, AfterOffsets())
    broker.delete_records(topic, 70)
    with pytest.raises(SourceError, match=rf"messages 60 to 69 of {topic}/0"):
        run_source(source)
