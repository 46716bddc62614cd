"""Dead letters: messages for items that could not be used, with the reason."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import flow.operators as op
from flow.connectors.formats.json_encoding import instant_text
from flow.connectors.kafka.messages import BadMessage, KafkaMessage, KafkaRecord
from flow.connectors.kafka.serializers import JSON, TEXT, Serializer
from flow.connectors.kafka.sink import KafkaSink
from flow.connectors.source import BadInput
from flow.dataflow import Stream
from flow.errors import FlowTypeError, brief, shorten
from flow.keyed.logic import Late
from flow.operators.stateless import ItemError

__all__ = ["dead_letters"]

PREFIX = "flow."
"""Prefix of the headers that are added to those of the item."""

_MOST_SHOWN = 10_000
_FIRST_TIME = datetime.fromtimestamp(0.001, UTC)
"""Earliest time that Kafka's client writes."""
_COORDINATES = ("topic", "partition", "offset")
_READ_WITH = frozenset({*_COORDINATES, "key", "timestamp", "timestamp_type", "headers"})
"""Fields of a record read from Kafka beside those of its value."""


def dead_letters(step_id: str, *streams: Stream[Any], sink: KafkaSink) -> None:
    """Write late and broken items to a topic, each with the reason in its headers.

    A message has the key and value of the item that was late or broken. A message that came from
    Kafka keeps its key and value (byte by byte if they are bytes or text), headers and time.
    Other items are written in the sink's formats, records as JSON by default. These headers are
    added, all of them text:

    - ``flow.step``: id of the step that the item left;
    - ``flow.reason``: ``late``, ``gap`` or ``too_far_ahead``, or the problem of a broken item;
    - ``flow.late_by``: seconds by which a late value was behind the watermark;
      ``flow.timestamp`` and ``flow.watermark``, its time and the watermark at its arrival;
      ``flow.window_open`` and ``flow.window_close``, bounds of the first window that it missed;
      ``flow.window_ids``, ids of all windows that it missed, separated by commas;
    - ``flow.where``: position of input that could not be read;
    - ``flow.topic``, ``flow.partition`` and ``flow.offset``: origin of an item that came from
      Kafka, as a message or as a record with these three fields;
    - ``flow.message_time``: time of the original message if it is before 1970, as Kafka's client
      writes no such time;
    - ``flow.key_as`` and ``flow.value_as``: ``json`` or ``repr`` if the key or value could not be
      written in the sink's format, and was written as JSON, or else as Python's `repr`.

    Args:
        step_id: id of the output's step; each stream gets a step ``{step_id}.{stream}`` too.
        streams: ``late`` streams of windowing operators, ``errors`` of `op.try_input` and
            `op.try_map`, or other streams, whose items are written as they are.
        sink: sink that writes the messages; its `key`, `value`, `headers` and `timestamp` are
            ignored.

    >>> import flow.operators as op
    >>> from flow import Dataflow
    >>> from flow.connectors.kafka import KafkaSink
    >>> from flow.operators.dead_letters import dead_letters
    >>> from flow.testing import TestingSource
    >>> flow = Dataflow("sums")
    >>> numbers, broken = op.try_map("parse", op.input("in", flow, TestingSource(["1", "x"])), int)
    >>> dead_letters("dead", broken, sink=KafkaSink("localhost:9092", "dead"))
    """
    if not isinstance(sink, KafkaSink):
        raise FlowTypeError(f"step {step_id!r}: sink must be a KafkaSink, got {shorten(sink)}")
    encoding = sink.encoding
    formats = {"key_format": encoding.key_format, "value_format": encoding.value_format}
    letters = [
        op.map(
            f"{step_id}.{up.stream_id}", up, partial(dead_letter, up.stream_id.step_id, **formats)
        )
        for up in streams
    ]
    all_letters = letters[0] if len(letters) == 1 else op.merge(f"{step_id}.all", *letters)
    op.output(step_id, all_letters, sink)


def dead_letter(
    step_id: str, item: Any, key_format: Serializer = TEXT, value_format: Serializer = JSON
) -> KafkaRecord:
    """Return the message of an item that left a step, always writable; see `dead_letters`."""
    original, key_of_item, why = _original(item)
    message = _message(original)
    key, key_as = _writable(key_of_item if message.key is None else message.key, key_format)
    value, value_as = _writable(message.value, value_format)
    time, message_time = _time(message.timestamp)
    headers = {
        "step": step_id,
        **why,
        **_coordinates(original),
        "message_time": message_time,
        "key_as": key_as,
        "value_as": value_as,
    }
    added = [(PREFIX + name, _text(value)) for name, value in headers.items() if value is not None]
    return KafkaRecord(value, key, [*message.headers, *added], time)


def _writable(value: Any, format: Serializer) -> tuple[Any, str | None]:
    """Return a key or value in writable form, with the name of the fallback format, if any."""
    if value is None or isinstance(value, bytes):
        return value, None
    for serializer, name in ((format, None), (JSON, "json")):
        with contextlib.suppress(Exception):  # A broken item can raise any exception.
            encoded = serializer.encoded(value)
            return (value if name is None else encoded), name
    return shorten(value, _MOST_SHOWN).encode(errors="replace"), "repr"


def _time(time: Any) -> tuple[datetime | None, Any]:
    """Return (time, None), or (None, time) for a time that Kafka's client cannot write."""
    if isinstance(time, datetime) and time.tzinfo is not None and time >= _FIRST_TIME:
        return time, None
    return None, time


def _original(item: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Return the original item, its key, and the headers that give the reason."""
    key, value = item if _is_pair(item) else (None, item)
    if isinstance(value, Late):
        return value.value, key, _why_late(value)
    if isinstance(value, BadInput):
        message = value.message if isinstance(value, BadMessage) else value.text
        return message, key, {"reason": value.reason, "where": value.where}
    if isinstance(value, ItemError):
        inner, original = value.item if _is_pair(value.item) else (key, value.item)
        why = {"step": value.step_id, "reason": brief(value.exception)}
        return original, inner, why
    return value, key, {}


def _why_late(late: Late) -> dict[str, Any]:
    window = late.windows[0] if late.windows else None
    ids = ",".join(str(one.window_id) for one in late.windows)
    return {
        "reason": late.reason.value,
        "late_by": late.late_by.total_seconds(),
        "timestamp": late.timestamp,
        "watermark": late.watermark,
        "window_open": None if window is None else window.open_time,
        "window_close": None if window is None else window.close_time,
        "window_ids": ids or None,
    }


def _message(item: Any) -> KafkaRecord:
    """Return the message of an item; for an item that came from Kafka, its original message."""
    if isinstance(item, KafkaMessage):
        return KafkaRecord(_bytes(item.value), _bytes(item.key), item.headers, item.timestamp)
    if not (isinstance(item, Mapping) and item.keys() >= _READ_WITH):
        return KafkaRecord(item)
    rest = {name: value for name, value in item.items() if name not in _READ_WITH}
    headers = [(one["name"], one["value"]) for one in item["headers"] or ()]
    return KafkaRecord(rest, _bytes(item["key"]), headers, item["timestamp"])


def _bytes(read: Any) -> Any:
    """Return text that was read as the bytes of its message."""
    return read.encode(errors="replace") if isinstance(read, str) else read


def _coordinates(item: Any) -> dict[str, Any]:
    if isinstance(item, KafkaMessage):
        return {name: getattr(item, name) for name in _COORDINATES}
    if isinstance(item, Mapping) and all(name in item for name in _COORDINATES):
        return {name: item[name] for name in _COORDINATES}
    return {}


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)


def _text(value: Any) -> str:
    text = instant_text(value) if isinstance(value, datetime) else str(value)
    return text.encode(errors="replace").decode()
