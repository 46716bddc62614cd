"""Answers of brokers about the offsets of partitions, from a client of the test."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from flow.connectors.kafka.client import Properties
from flow.connectors.kafka.cluster import Cluster, TopicPartition, Unreachable
from flow.errors import SourceError

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def cluster_of(answers: Callable[[int], int | KafkaError], listed: int = 2) -> Cluster:
    """A cluster whose client answers calls for offsets as given, for partitions of one topic."""
    topic = SimpleNamespace(partitions=dict.fromkeys(range(listed)))
    topics = SimpleNamespace(topics={"t": topic} if listed else {})
    made = Cluster("b:9092", Properties({}))
    made._client = SimpleNamespace(
        list_topics=lambda timeout: topics,
        list_offsets=lambda parts, **_: {one: future_of(answers(one.partition)) for one in parts},
        poll=lambda seconds: None,
    )
    return made


def future_of(answer: int | KafkaError) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(answer, KafkaError):
        future.set_exception(KafkaException(answer))
    else:
        future.set_result(SimpleNamespace(offset=answer))
    return future


def failing(code: int) -> Callable[[int], int | KafkaError]:
    return lambda partition: KafkaError(code) if partition else 17


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError._TRANSPORT,
    ],
)
def test_transient_errors_are_waited_for(code: int) -> None:
    with pytest.raises(Unreachable, match="no Kafka broker answers at b:9092"):
        cluster_of(failing(code)).latest([T0, T1])


def test_permanent_errors_are_raised() -> None:
    with pytest.raises(SourceError, match="Kafka at b:9092 refuses to answer"):
        cluster_of(failing(KafkaError.TOPIC_AUTHORIZATION_FAILED)).latest([T0, T1])


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION])
def test_a_missing_partition_is_left_out(code: int) -> None:
    assert cluster_of(failing(code), listed=1).latest([T0, T1]) == {T0: 17}


def test_partitions_without_a_leader_are_waited_for() -> None:
    nobody = cluster_of(lambda _: KafkaError(KafkaError._NOENT))
    with pytest.raises(Unreachable, match="no broker of b:9092 leads t/0 and 1 more"):
        nobody.latest([T0, T1])
    with pytest.raises(Unreachable, match="no broker of b:9092 leads t/1"):
        cluster_of(failing(KafkaError._NOENT)).latest([T0, T1])


def test_a_deleted_topic_is_left_out() -> None:
    gone = cluster_of(lambda _: KafkaError(KafkaError._NOENT), listed=0)
    assert gone.latest([T0, T1]) == {}
