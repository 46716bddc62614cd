"""Partitions of topics, positions in them, and the queries of a planner to the brokers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from flow.checks import wrong_type
from flow.connectors.kafka.client import LastProblem, Properties, administration, kafka, make_admin
from flow.errors import FlowBuildError, SourceError, TimestampError, shorten
from flow.instants import instant_us

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


Offsets: TypeAlias = "Mapping[str, Mapping[int, int]]"
"""Offsets by topic and partition: ``{"orders": {0: 17, 1: 23}}``."""

Position: TypeAlias = "str | datetime | Offsets"
"""``"earliest"``, ``"latest"``, an aware datetime, or offsets."""

EARLIEST, LATEST = "earliest", "latest"


def checked_position(name: str, position: object, words: tuple[str, ...]) -> Position:
    """Return the argument `start` or `end` after a check.

    Raises:
        FlowTypeError, FlowBuildError: the argument is not a position.
    """
    if isinstance(position, str):
        if position not in words:
            listed = ", ".join(map(repr, words))
            raise FlowBuildError(
                f"KafkaSource: {name} must be {listed}, an aware datetime, or offsets such as "
                f"{{'orders': {{0: 17}}}}, got {position!r}"
            )
        return position
    if isinstance(position, datetime):
        try:
            instant_us(position)
        except TimestampError as error:
            raise FlowBuildError(f"KafkaSource: {name}: {error}") from None
        return position
    if not isinstance(position, Mapping):
        raise wrong_type(
            f"KafkaSource: {name} must be text, an aware datetime or offsets", position
        )
    return {str(topic): _checked_offsets(name, of_topic) for topic, of_topic in position.items()}


def _checked_offsets(name: str, offsets: object) -> dict[int, int]:
    fits = isinstance(offsets, Mapping) and all(
        isinstance(number, int) and not isinstance(number, bool) and number >= 0
        for pair in offsets.items()
        for number in pair
    )
    if not fits or not isinstance(offsets, Mapping):
        raise FlowBuildError(
            f"KafkaSource: {name}: offsets of a topic must map partitions to offsets, "
            f"both 0 or more, such as {{0: 17, 1: 23}}, got {shorten(offsets)}"
        )
    return dict(offsets)


def milliseconds(position: datetime) -> int:
    """Return the first whole millisecond at or after a time, since the Unix epoch."""
    return -(-instant_us(position) // 1000)


ASKING_SECONDS = 5.0
"""Timeout of one query, in seconds."""


class TopicPartition(NamedTuple):
    """Partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return the name in offsets, ``orders/0``; names of topics contain no slash."""
        return f"{self.topic}/{self.partition}"

    @classmethod
    def of(cls, name: str) -> TopicPartition:
        """Return the partition with a name that `str` returned."""
        topic, _, number = name.rpartition("/")
        return cls(topic, int(number))


Ends: TypeAlias = "dict[TopicPartition, int]"
"""Offsets by partition."""


class Unreachable(Exception):
    """Temporary failure: no broker, or no registry of schemas, answers now.

    Attributes:
        system: name of what does not answer.
    """

    def __init__(self, problem: str, system: str = "Kafka") -> None:
        super().__init__(problem)
        self.system = system


class Cluster:
    """Brokers, as a planner queries them.

    Args:
        servers: addresses of the brokers.
        properties: properties of the client.
    """

    def __init__(self, servers: str, properties: Properties) -> None:
        self._servers = servers
        self._properties = properties
        self._problem = LastProblem(properties)
        self._admitted = False
        level = str(properties.get("isolation.level", ""))
        is_uncommitted = level.lower() == "read_uncommitted"
        self._isolation = "READ_UNCOMMITTED" if is_uncommitted else "READ_COMMITTED"
        self._client = make_admin(servers, properties, self._problem)

    def partitions(self, topics: Collection[str], pattern: str | None) -> list[TopicPartition]:
        """Return the partitions of topics that are named or match a pattern, in order.

        Topics that do not exist are left out.
        """
        # The query is for all topics, as a query for one topic may create the topic.
        found = self._ask(lambda: self._client.list_topics(timeout=ASKING_SECONDS)).topics
        return [
            TopicPartition(name, number)
            for name in (topics if pattern is None else sorted(found))
            if name in found and reads_topic(name, topics, pattern)
            for number in sorted(found[name].partitions)
        ]

    def earliest(self, partitions: Collection[TopicPartition]) -> Ends:
        """Return the offset of the first message that each partition still holds."""
        return self._offsets(partitions, administration().OffsetSpec.earliest())

    def latest(self, partitions: Collection[TopicPartition]) -> Ends:
        """Return the offset after the last readable message of each partition."""
        return self._offsets(partitions, administration().OffsetSpec.latest())

    def since(self, partitions: Collection[TopicPartition], millis: int) -> Ends:
        """Return the offset of the first message at or after a time, or else the latest."""
        found = self._offsets(partitions, administration().OffsetSpec.for_timestamp(millis))
        without = [partition for partition, offset in found.items() if offset < 0]
        return {**found, **self.latest(without)}

    def _offsets(self, partitions: Collection[TopicPartition], spec: Any) -> Ends:
        """Return offsets by partition, without partitions that do not exist."""
        wanted = {kafka().TopicPartition(*partition): spec for partition in partitions}
        if not wanted:
            return {}
        futures = self._client.list_offsets(
            wanted,
            isolation_level=kafka().IsolationLevel[self._isolation],
            request_timeout=ASKING_SECONDS,
        )
        found: Ends = {}
        for partition, future in futures.items():
            offset = self._ask(partial(_offset_or_gone, future))
            if offset is not None:
                found[TopicPartition(partition.topic, partition.partition)] = offset
        if len(found) < len(wanted):
            self._check_leaders(set(partitions) - found.keys())
        return found

    def _check_leaders(self, partitions: Collection[TopicPartition]) -> None:
        """Raise `Unreachable` if a partition has no leader, as the client leaves it out."""
        existing = self.partitions({partition.topic for partition in partitions}, None)
        leaderless = sorted(set(existing).intersection(partitions))
        if leaderless:
            more = f" and {len(leaderless) - 1} more" if len(leaderless) > 1 else ""
            raise Unreachable(f"no broker of {self._servers} leads {leaderless[0]}{more}")

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            answer = question()
        except kafka().KafkaException as error:
            raise self._failure(error.args[0]) from None
        finally:
            self._client.poll(0)
        self._admitted = True
        return answer

    def _failure(self, error: KafkaError) -> Exception:
        """Return the error of a failed query, with the client's last connection error."""
        reason = f"{self._properties.mask(error.str())}{self._problem}"
        # A broker that is stopping or starting may refuse a login that succeeded before.
        if not is_passing(error) or (self._problem.refused and not self._admitted):
            return SourceError(f"Kafka at {self._servers} refuses to answer: {reason}")
        return Unreachable(f"no Kafka broker answers at {self._servers}: {reason}")


_PASSING = frozenset(
    {
        "_TRANSPORT",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_WAIT_COORD",
        "_UNKNOWN_BROKER",
        "BROKER_NOT_AVAILABLE",
        "LEADER_NOT_AVAILABLE",
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "OFFSET_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "REPLICA_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "KAFKA_STORAGE_ERROR",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
    }
)
"""Names of errors that may pass; a leader that has just been elected has no offsets yet."""
_UNKNOWN = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"})


def is_passing(error: KafkaError) -> bool:
    """Return True if an error may pass by itself, such as when a broker comes back."""
    return bool(error.retriable()) or error.name() in _PASSING


def _offset_or_gone(future: Any) -> int | None:
    try:
        return int(future.result(2 * ASKING_SECONDS).offset)
    except kafka().KafkaException as error:
        if is_unknown(error.args[0]) or error.args[0].code() == error.args[0]._NOENT:
            return None
        raise


def is_unknown(error: KafkaError) -> bool:
    """Return True if an error says that the partition does not exist."""
    return error.name() in _UNKNOWN


def reads_topic(topic: str, topics: Collection[str], pattern: str | None) -> bool:
    """Return True if a topic is named, or its whole name matches; Kafka's own topics do not."""
    if pattern is None:
        return topic in topics
    return not topic.startswith("__") and re.fullmatch(pattern, topic) is not None
