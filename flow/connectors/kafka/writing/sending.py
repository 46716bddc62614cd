"""Handing encoded messages to the client, many at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from flow.connectors.kafka.client import errors, kafka, reason_of
from flow.connectors.kafka.connection import Clients
from flow.connectors.kafka.writing.topics import Topic
from flow.errors import SinkError, shorten

SETTINGS: Mapping[str, Any] = {
    # A key's partition is that which Java's clients choose, and Spark.
    "partitioner": "murmur2_random",
    "linger.ms": 20,
    "batch.num.messages": 100_000,
    # How much is queued is seen to here.
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": 2_147_483_647,
    "delivery.report.only.error": True,
    "enable.idempotence": True,
}
_PIECE = 10_000
_PIECE_BYTES = 16 << 20
_PIECES = 30
_WAIT = 0.05
_BATCH_BYTES = 1_000_000
_OVERHEAD = 512
_NOW = 0
"""The time by which the client means that of sending."""
_FLUSH_SECONDS = 300.0
_LEAST_LIMIT = 1000
_TOO_LARGE = ("MSG_SIZE_TOO_LARGE", "_MSG_SIZE_TOO_LARGE")


class Sender:
    """A producer, and what has become of the messages that it was given.

    Attributes:
        producer: the client's producer.
    """

    def __init__(self, clients: Clients, topic: str, settings: Mapping[str, Any]) -> None:
        self._clients = clients
        self._topic = topic
        self._failure: Any = None
        self._culprit = ""
        self._dicts: list[dict[str, Any]] = []
        reports = {"on_delivery": self._reported}
        sizes = _sizes(Topic(clients, topic))
        self.producer = clients.producer({**SETTINGS, **sizes, **settings, **reports})

    def forget(self) -> None:
        """Forget what has become of messages so far."""
        self._failure, self._culprit = None, ""
        self._dicts = []

    def send(self, batch: pa.RecordBatch) -> None:
        """Queue messages, in columns as `flow.connectors.kafka.writing.records.SCHEMA` has them.

        Raises:
            KafkaException: a message was refused.
        """
        plain = all(batch.column(n).null_count == batch.num_rows for n in ("timestamp", "headers"))
        rows = max(1, min(_PIECE, _PIECE_BYTES * batch.num_rows // (batch.nbytes + 1)))
        for start in range(0, batch.num_rows, rows):
            self._make_room(rows)
            piece = batch.slice(start, rows)
            if plain and hasattr(self.producer, "produce_batch"):
                self._send_plain(piece)
            else:
                self._send_each(piece)

    def flush(self, seconds: float) -> None:
        """Wait until all are written.

        Raises:
            KafkaException: one could not be, or not in time.
        """
        left = self.producer.flush(seconds)
        self.check()
        if left:
            raise kafka().KafkaException(kafka().KafkaError(kafka().KafkaError._TIMED_OUT))

    def check(self) -> None:
        """Raise what the brokers said of a message, if they refused one."""
        if self._failure is not None:
            raise kafka().KafkaException(self._failure)

    def explanation(self, error: Any) -> str:
        """What an error means, and what to do."""
        error = self._failure or error
        if error.name() in _TOO_LARGE:
            return (
                f"a record is too large{self._culprit}: make it smaller, or raise the topic's "
                "max.message.bytes (and message.max.bytes in properties, where that is set)"
            )
        return self._clients.explanation(error)

    def close(self) -> None:
        """Forget what is not written yet."""
        with contextlib.suppress(*errors()):  # it was said before
            self.producer.purge()
            self.producer.poll(0)

    def _make_room(self, rows: int) -> None:
        """Wait while much is queued: the client would refuse one message, and take the next."""
        self.producer.poll(0)
        while len(self.producer) > _PIECES * rows:
            self.producer.poll(_WAIT)
        self.check()

    def _send_plain(self, piece: pa.RecordBatch) -> None:
        keys, values = piece.column("key").to_pylist(), piece.column("value").to_pylist()
        messages = self._filled(keys, values)
        if self.producer.produce_batch(self._topic, messages) < len(messages):
            refused = next(message for message in messages if "_error" in message)
            self._accuse(refused["_error"], refused["key"], refused["value"])
            self.check()

    def _filled(self, keys: list[Any], values: list[Any]) -> list[dict[str, Any]]:
        """Messages as the client wants them, in dicts that are used again and again.

        New ones would keep the garbage collector busy for longer than the client needs.
        """
        missing = len(keys) - len(self._dicts)
        self._dicts += [{} for _ in range(missing)]
        dicts = self._dicts if len(keys) == len(self._dicts) else self._dicts[: len(keys)]
        for message, key, value in zip(dicts, keys, values, strict=True):
            message["key"] = key
            message["value"] = value
        return dicts

    def _send_each(self, piece: pa.RecordBatch) -> None:
        columns = [piece.column(name).to_pylist() for name in piece.schema.names]
        headed = piece.column("headers").null_count < piece.num_rows
        produce, topic = self.producer.produce, self._topic
        key = value = None
        try:
            for key, value, time_ms, headers in zip(*columns, strict=True):
                if headed:
                    pairs = [(one["name"], one["value"]) for one in headers or ()]
                    produce(topic, value, key, timestamp=time_ms or _NOW, headers=pairs)
                else:
                    produce(topic, value, key, timestamp=time_ms or _NOW)
        except kafka().KafkaException as error:
            self._accuse(error.args[0], key, value)
            raise

    def _accuse(self, error: Any, key: bytes | None, value: bytes | None) -> None:
        self._failure = error
        size = len(key or b"") + len(value or b"")
        self._culprit = f" (key {shorten(key)}, {size} bytes)"

    def _reported(self, error: Any, message: Any) -> None:
        purged = error is None or error.name().startswith("_PURGE")
        if not purged and self._failure is None:
            self._accuse(error, message.key(), message.value())


def _sizes(topic: Topic) -> dict[str, int]:
    """Let the client refuse what the topic would: brokers refuse a batch, and a record with it."""
    limit = topic.setting("max.message.bytes")
    if limit is None:
        return {}
    largest = int(limit)
    batch = min(_BATCH_BYTES, max(1, largest - _OVERHEAD))
    return {"message.max.bytes": max(largest, _LEAST_LIMIT), "batch.size": batch}


_senders: dict[str, Sender] = {}
"""What this process has connections for; workers keep them from epoch to epoch."""


def write_directly(
    clients: Clients, topic: str, batches: Iterable[pa.RecordBatch], what: str
) -> None:
    """Write messages from this process, and wait until they are written; no transaction.

    Args:
        clients: makes the producer, where there is none yet.
        topic: the topic.
        batches: the messages, in columns of `flow.connectors.kafka.writing.records.SCHEMA`.
        what: what could not be done if it fails, for the error.

    Raises:
        SinkError: they could not be written.
    """
    known = repr((os.getpid(), clients.servers, sorted(clients.properties.items()), topic))
    where = f"{what} (topic {topic!r})"
    with clients.explained(where):
        sender = _senders.get(known) or Sender(clients, topic, {})
    try:
        for batch in batches:
            sender.send(batch)
        sender.flush(_FLUSH_SECONDS)
    except errors() as error:
        _senders.pop(known, None)
        sender.close()
        raise SinkError(f"{where}: {sender.explanation(reason_of(error))}") from None
    _senders[known] = sender
