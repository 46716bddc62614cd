"""Items that messages become: objects, or records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.connectors.formats.line_parsers import (
    sift,
)
from flow.connectors.kafka.deserializers import Deserializer
from flow.connectors.kafka.messages import BadMessage, KafkaMessage, TimestampType
from flow.connectors.source import Batch, Invalid
from flow.errors import shorten

Message = Any
"""Message of the client library."""

SIFTED = 1_024
"""Number of messages in each part of a batch that is searched for bad messages."""

_SHOWN = 200

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_MILLISECOND = timedelta(milliseconds=1)

_NO_TIME = -1
"""Timestamp of a message without a time, in Kafka's protocol."""

_FIRST_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND

_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND

_TYPES: tuple[TimestampType, ...] = ("none", "create", "append")

HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
"""Arrow type of a column of headers."""

METADATA: dict[str, Any] = {
    "key": None,
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_type": pa.string(),
    "headers": HEADERS,
}
"""Metadata columns of records; the deserializer of keys gives the type of ``key``."""


class Items(ABC):
    """Conversion of messages to items.

    Attributes:
        key: deserializer of keys.
        value: deserializer of values.
    """

    def __init__(self, key: Deserializer, value: Deserializer) -> None:
        self.key = key
        self.value = value

    @abstractmethod
    def batch(self, messages: Sequence[Message], fields: frozenset[str] | None) -> Batch | None:
        """Return the items of messages; ``None`` if any of them is bad.

        Args:
            messages: the messages.
            fields: fields of records that are read; ``None`` for all.
        """

    def batches(
        self, messages: Sequence[Message], fields: frozenset[str] | None
    ) -> Iterator[Batch]:
        """Yield the items of messages, and batches of the messages that are bad."""
        items = self.batch(messages, fields)
        if items is not None:
            yield items
            return
        for start in range(0, len(messages), SIFTED):
            some = messages[start : start + SIFTED]
            good, bad = sift(some, lambda part: self.batch(part, fields))
            yield from good
            if bad:
                yield Invalid([self._bad_message(some[index]) for index in bad])

    def _bad_message(self, message: Message) -> BadMessage:
        time_problem = _time_problem(message)
        has_time = time_problem is None
        plain = _as_message(message, message.key(), message.value(), has_time=has_time)
        problem = self._key_problem(plain.key)
        return BadMessage(
            where=f"topic {plain.topic!r}, partition {plain.partition}, offset {plain.offset}",
            text=shorten(plain.value if problem is None else plain.key, _SHOWN),
            reason=problem or self._value_problem(plain.value) or time_problem or "",
            message=plain,
        )

    def _key_problem(self, key: bytes | None) -> str | None:
        problem = None if key is None else self._problem(self.key, key)
        return None if problem is None else f"its key: {problem}"

    def _value_problem(self, value: bytes | None) -> str | None:
        problem = self._problem(self.value, value)
        return None if problem is None else f"its value: {problem}"

    @abstractmethod
    def _problem(self, form: Deserializer, data: bytes | None) -> str | None:
        """Return the reason why a key or value cannot be read; ``None`` if it can."""


class ObjectItems(Items):
    """Conversion of each message to a `KafkaMessage`."""

    @override
    def batch(self, messages: Sequence[Message], fields: frozenset[str] | None) -> Batch | None:
        keys = [message.key() for message in messages]
        values = [message.value() for message in messages]
        try:
            read_keys = [self.key.read(key) if key is not None else None for key in keys]
            read_values = [
                self.value.read(value) if value is not None else None for value in values
            ]
            return [
                _as_message(*parts) for parts in zip(messages, read_keys, read_values, strict=True)
            ]
        except (ValueError, OverflowError):
            return None

    @override
    def _problem(self, form: Deserializer, data: bytes | None) -> str | None:
        return None if data is None else form.read_problem(data)


class RecordItems(Items):
    """Conversion of messages to records: fields of their values, with columns of metadata.

    Args:
        key: deserializer of keys.
        value: deserializer of values.
        prefix: prefix of the names of the metadata columns.
    """

    def __init__(self, key: Deserializer, value: Deserializer, *, prefix: str) -> None:
        super().__init__(key, value)
        self.prefix = prefix

    @property
    def value_names(self) -> list[str]:
        """Names of the columns of the value."""
        if pa.types.is_struct(self.value.kind):
            return [field.name for field in self.value.kind]
        return ["value"]

    @override
    def batch(self, messages: Sequence[Message], fields: frozenset[str] | None) -> Batch | None:
        keys = [message.key() for message in messages]
        key = self._keys(keys)
        if key is None:
            return None
        value = self.value.column([message.value() for message in messages])
        if value is None:
            return None
        fields_of_value = value.flatten() if pa.types.is_struct(value.type) else [value]
        columns = dict(zip(self.value_names, fields_of_value, strict=True))
        for name in METADATA:
            named = self.prefix + name
            if fields is None or named in fields:
                columns[named] = key if name == "key" else _metadata(name, messages)
                if columns[named] is None:
                    return None
        return pa.RecordBatch.from_pydict(columns)

    @override
    def _problem(self, form: Deserializer, data: bytes | None) -> str | None:
        return form.problem(data)

    def _keys(self, keys: list[bytes | None]) -> Any | None:
        """Return the column of keys; a missing key is null with every deserializer."""
        if self.key.accepts_null or None not in keys:
            return self.key.column(keys)
        there = [key for key in keys if key is not None]
        column = self.key.column(there) if there else pa.array([], self.key.kind)
        if column is None:
            return None
        places = np.cumsum([key is not None for key in keys]) - 1
        absent = np.array([key is None for key in keys])
        return column.take(pa.array(places, mask=absent))


def _metadata(name: str, messages: Sequence[Message]) -> Any | None:
    """Return a column of metadata; `None` if a timestamp is outside the years 1 to 9999."""
    count = len(messages)
    match name:
        case "topic":
            return pa.repeat(pa.scalar(messages[0].topic() if count else "", pa.string()), count)
        case "partition":
            number = messages[0].partition() if count else 0
            return pa.repeat(pa.scalar(number, pa.int32()), count)
        case "offset":
            return pa.array([message.offset() for message in messages], pa.int64())
        case "headers":
            return pa.array([_headers(message) for message in messages], HEADERS)
    stamps = chain.from_iterable([message.timestamp() for message in messages])
    kinds, millis = np.fromiter(stamps, np.int64, 2 * count).reshape(-1, 2).T
    if name == "timestamp_type":
        return pa.array(_TYPES, pa.string()).take(pa.array(kinds))
    known = (kinds != 0) & (millis != _NO_TIME)
    if bool((known & ((millis < _FIRST_MS) | (millis > _LAST_MS))).any()):
        return None
    return pa.array(millis * 1000, pa.timestamp("us", "UTC"), mask=~known)


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(message.headers() or ())


def _time_problem(message: Message) -> str | None:
    kind, millis = message.timestamp()
    if not kind or millis == _NO_TIME or _FIRST_MS <= millis <= _LAST_MS:
        return None
    return f"its timestamp: {millis:,} ms since 1970 is not within the years 1 to 9999"


def _as_message(message: Message, key: Any, value: Any, *, has_time: bool = True) -> KafkaMessage:
    """Return a message as an item, given its key and value as they were read.

    Raises:
        OverflowError: its timestamp is outside the years 1 to 9999, and `has_time` is True.
    """
    kind, millis = message.timestamp()
    is_known = has_time and kind and millis != _NO_TIME
    return KafkaMessage(
        key,
        value,
        message.topic(),
        message.partition(),
        message.offset(),
        _EPOCH + millis * _MILLISECOND if is_known else None,
        _TYPES[kind],
        _headers(message),
    )
