"""What a planner asks the brokers: which partitions there are, and how far each one reaches."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from flow.connectors.kafka.client import LastProblem, make_admin, settings
from flow.connectors.kafka.properties import Properties
from flow.errors import SourceError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

ASKING_SECONDS = 5.0
"""How long one question may take."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """As offsets name it: topics have no slash in their names."""
        return f"{self.topic}/{self.partition}"

    @classmethod
    def of(cls, name: str) -> TopicPartition:
        """The partition that a name made by `str` is of."""
        topic, _, number = name.rpartition("/")
        return cls(topic, int(number))


Ends: TypeAlias = "dict[TopicPartition, int]"
"""Offsets by partition."""


class Unreachable(Exception):
    """No broker answers now; it may later."""


class Cluster:
    """The brokers, as a planner sees them.

    Args:
        servers: their addresses.
        properties: the client's properties.
    """

    def __init__(self, servers: str, properties: Properties) -> None:
        self._servers = servers
        self._properties = properties
        self._problem = LastProblem(properties)
        self._admitted = False
        level = str(properties.get("isolation.level", ""))
        self._committed_only = level.lower() != "read_uncommitted"
        config = settings(servers, properties, self._problem, {})
        self._client = make_admin(config, properties)

    def partitions(self, topics: Collection[str], pattern: str | None) -> list[TopicPartition]:
        """The partitions of the topics that are named, or that match a pattern, in order.

        Topics that are not there are left out.
        """
        # Of all topics: a question for one may make it.
        found = self._asked(lambda: self._client.list_topics(timeout=ASKING_SECONDS)).topics
        wanted = [
            name
            for name in (sorted(found) if pattern is not None else topics)
            if name in found and (pattern is None or matches(pattern, name))
        ]
        return [
            TopicPartition(name, number)
            for name in wanted
            for number in sorted(found[name].partitions)
        ]

    def earliest(self, partitions: Iterable[TopicPartition]) -> Ends:
        """The offsets of the first messages that are still there."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets({one: OffsetSpec.earliest() for one in partitions})

    def latest(self, partitions: Iterable[TopicPartition]) -> Ends:
        """The offsets after the last messages that may be read."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets({one: OffsetSpec.latest() for one in partitions})

    def since(self, partitions: Iterable[TopicPartition], millis: int) -> Ends:
        """The offsets of the first messages at or after a time; the latest where there is none."""
        from confluent_kafka.admin import OffsetSpec

        found = self._offsets({one: OffsetSpec.for_timestamp(millis) for one in partitions})
        nothing = [one for one, offset in found.items() if offset < 0]
        return {**found, **self.latest(nothing)}

    def _offsets(self, specs: Mapping[TopicPartition, Any]) -> Ends:
        """Offsets by partition; partitions that are not there are left out."""
        from confluent_kafka import IsolationLevel
        from confluent_kafka import TopicPartition as Theirs

        if not specs:
            return {}
        level = (
            IsolationLevel.READ_COMMITTED
            if self._committed_only
            else IsolationLevel.READ_UNCOMMITTED
        )
        futures = self._client.list_offsets(
            {Theirs(one.topic, one.partition): spec for one, spec in specs.items()},
            isolation_level=level,
            request_timeout=ASKING_SECONDS,
        )
        found: Ends = {}
        for one, future in futures.items():
            offset = self._asked(partial(_offset_or_gone, future))
            if offset is not None:
                found[TopicPartition(one.topic, one.partition)] = offset
        if not found:
            self._check_gone(specs)
        return found

    def _check_gone(self, asked: Iterable[TopicPartition]) -> None:
        """Where nobody leads any of the partitions, the client does not say which are there."""
        there = self.partitions({one.topic for one in asked}, None)
        unled = sorted(set(there).intersection(asked))
        if unled:
            more = f" and {len(unled) - 1} more" if len(unled) > 1 else ""
            raise Unreachable(f"no broker of {self._servers} leads {unled[0]}{more}")

    def _asked(self, question: Callable[[], Any]) -> Any:
        from confluent_kafka import KafkaException

        try:
            answer = question()
        except KafkaException as error:
            raise self._failure(error.args[0]) from None
        finally:
            self._client.poll(0)
        self._admitted = True
        return answer

    def _failure(self, error: KafkaError) -> Exception:
        """What a failed question means; what the client said meanwhile says it better."""
        said = f"{self._properties.hide(error.str())}{self._problem}"
        # Who was let in before is turned away by a broker that is going down or coming up.
        if not is_passing(error) or (self._problem.refused and not self._admitted):
            return SourceError(f"Kafka at {self._servers} refuses to answer: {said}")
        return Unreachable(f"no Kafka broker answers at {self._servers}: {said}")


def is_passing(error: KafkaError) -> bool:
    """Whether an error may go away by itself, when a broker comes back, say."""
    return bool(error.retriable()) or error.code() in (
        error._TRANSPORT,
        error._TIMED_OUT,
        error._TIMED_OUT_QUEUE,
        error._ALL_BROKERS_DOWN,
        error._RESOLVE,
        error._WAIT_COORD,
        error._UNKNOWN_BROKER,
        error.BROKER_NOT_AVAILABLE,
        error.LEADER_NOT_AVAILABLE,
        error.PREFERRED_LEADER_NOT_AVAILABLE,
        error.OFFSET_NOT_AVAILABLE,  # by a leader that has just been elected
        error.NOT_LEADER_FOR_PARTITION,
        error.REPLICA_NOT_AVAILABLE,
        error.REQUEST_TIMED_OUT,
        error.NETWORK_EXCEPTION,
        error.KAFKA_STORAGE_ERROR,
        error.FENCED_LEADER_EPOCH,
        error.UNKNOWN_LEADER_EPOCH,
    )


def _offset_or_gone(future: Any) -> int | None:
    from confluent_kafka import KafkaError, KafkaException

    try:
        return int(future.result(2 * ASKING_SECONDS).offset)
    except KafkaException as error:
        if is_unknown(error.args[0]) or error.args[0].code() == KafkaError._NOENT:
            return None
        raise


def is_unknown(error: KafkaError) -> bool:
    """Whether an error says that there is no such partition."""
    return error.code() in (
        error.UNKNOWN_TOPIC_OR_PART,
        error._UNKNOWN_PARTITION,
        error._UNKNOWN_TOPIC,
    )


def matches(pattern: str, topic: str) -> bool:
    """Whether a whole name matches; names of Kafka's own topics never do."""
    return not topic.startswith("__") and re.fullmatch(pattern, topic) is not None
