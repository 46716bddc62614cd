"""Limits of an epoch by the size of its messages."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from flow.connectors.kafka import KafkaSource
from flow.connectors.kafka.client import as_properties
from flow.connectors.kafka.cluster import TopicPartition
from flow.connectors.kafka.ranges import MOST_RECORDS, OBJECT_BYTES, RECORD_BYTES, Access, Scales
from tests.support.kafka import Broker

MILLION = 1_000_000


class FixedScales(Scales):
    """Scales with message sizes that a test gives."""

    def __init__(self, weights: dict[str, float]) -> None:
        self._weights = weights

    def _mean_bytes(self, partition: TopicPartition, start: int) -> float:
        return self._weights[partition.topic]


def most_messages(weights: dict[str, float], **waiting: int) -> int:
    """Return how many messages an epoch may read of topics with these backlogs."""
    backlog = {TopicPartition(name, 0): count for name, count in waiting.items()}
    return FixedScales(weights).most(dict.fromkeys(backlog, 0), backlog)


@pytest.mark.parametrize(
    ("weight", "records"),
    [(20, 4 * MILLION), (200, 4 * MILLION), (800, MILLION), (10_000, 80_000), (1e12, 1)],
)
def test_the_limit_of_an_epoch_follows_the_message_size(weight: float, records: int) -> None:
    assert most_messages({"t": weight}, t=10 * MILLION) == records


def test_topics_are_weighted_by_their_lag() -> None:
    weights = {"small": 100.0, "large": 1700.0}
    assert most_messages(weights, small=7 * MILLION, large=MILLION) == int(8e8 / 300)


def test_small_backlogs_are_not_weighed() -> None:
    assert most_messages({}, t=100_000) == MOST_RECORDS


@pytest.mark.parametrize(
    ("options", "overhead"),
    [
        ({}, OBJECT_BYTES),
        ({"value": "json", "schema": {"n": pa.int64()}}, RECORD_BYTES),
        ({"value": "json", "schema": {"n": pa.int64()}, "max_records_per_epoch": 9}, None),
    ],
)
def test_messages_weigh_without_a_count(options: dict[str, Any], overhead: int | None) -> None:
    made: Any = KafkaSource("localhost:1", "t", **options).planner(None, 1)  # type: ignore[arg-type]
    scales = made._scales
    assert (None if scales is None else scales._overhead) == overhead
    assert made._reach.per_epoch == options.get("max_records_per_epoch", MOST_RECORDS)


def scales_on(broker: Broker) -> Scales:
    properties = as_properties({"queued.min.messages": 5_000}, {})
    return Scales(Access(broker.servers, properties, "fail", 60.0), records=True)


def test_messages_weigh_their_keys_values_and_headers(broker: Broker) -> None:
    topic = broker.topic()
    message = {"key": "k" * 10, "value": "v" * 940, "headers": [("trace", b"h" * 10)]}
    broker.produce(topic, [message] * 300)
    waiting = {TopicPartition(topic, 0): 10 * MILLION}
    assert scales_on(broker).most({TopicPartition(topic, 0): 50}, waiting) == 800_000


def test_messages_that_cannot_be_sampled_do_not_stop_a_flow(broker: Broker) -> None:
    gone = TopicPartition("nowhere", 3)
    began = time.monotonic()
    assert scales_on(broker).most({gone: 0}, {gone: 10 * MILLION}) == MILLION
    assert time.monotonic() - began < 20
