"""A message of Kafka's, as an item; and one that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from flow.connectors.source import BadInput

TimestampType: TypeAlias = Literal["create", "append", "none"]
"""Whose time a message's is: its producer's, or the broker's that appended it; ``"none"`` for
messages of brokers that are older than such times."""


@dataclass(frozen=True, slots=True)
class KafkaMessage:
    """A message of a topic.

    Attributes:
        key: its key, as the source was asked to read it: bytes, text, or what JSON or Avro gives;
            ``None`` where it has none.
        value: its value, likewise.
        topic: the topic.
        partition: the partition's number.
        offset: its place in the partition.
        timestamp: its time, which is whole milliseconds; ``None`` where it has none.
        timestamp_type: whose time that is.
        headers: names and values, in order; a name may be there more than once.

    >>> KafkaMessage(b"ann", b"3", "orders").value
    b'3'
    """

    key: Any
    value: Any
    topic: str = ""
    partition: int = 0
    offset: int = 0
    timestamp: datetime | None = None
    timestamp_type: TimestampType = "none"
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class BadMessage(BadInput):
    """A message that could not be read, on the ``errors`` stream of `op.try_input`.

    Attributes:
        message: the message, with its key and value as bytes.
    """

    message: KafkaMessage = KafkaMessage(None, None)
