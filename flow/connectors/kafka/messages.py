"""Messages of Kafka as items of a flow: read, refused, and to be written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from flow.connectors.source import BadInput

TimestampType: TypeAlias = Literal["create", "append", "none"]
"""Origin of a message's timestamp.

``"create"`` is the producer's time, ``"append"`` the time at which the broker appended the message,
and ``"none"`` no time, in messages of old brokers.
"""


@dataclass(frozen=True, slots=True)
class KafkaMessage:
    """Message of a topic.

    Attributes:
        key: key, in the format of the source: bytes, text, or the value of JSON or Avro; ``None``
            for a message without a key.
        value: value, likewise; ``None`` in a tombstone.
        topic: name of the topic.
        partition: number of the partition.
        offset: offset in the partition.
        timestamp: time of the message, whole milliseconds; ``None`` for a message without a time.
        timestamp_type: origin of the time.
        headers: pairs of name and value, in order; a name may occur more than once.

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
    """Message that could not be read, on the ``errors`` stream of `op.try_input`.

    Attributes:
        message: the message, with its key and value as bytes.
    """

    message: KafkaMessage = KafkaMessage(None, None)


@dataclass(frozen=True)
class KafkaRecord:
    """Item that gives the key, value, headers and time of its message in a `KafkaSink`.

    Key and value are encoded in the sink's formats; bytes are written unchanged.

    Args:
        value: value of the message; `None` is a tombstone.
        key: key of the message; ``None`` for a message without a key.
        headers: headers, by name or as pairs.
        timestamp: time of the message, in a form that an `EventClock` takes; by default, the time
            of sending.

    >>> KafkaRecord({"sum": 3}, key="LHR", headers={"unit": "flights"}).key
    'LHR'
    """

    value: Any
    key: Any = None
    headers: Any = ()
    timestamp: Any = None
