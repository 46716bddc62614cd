"""Producers that send encoded messages."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from flow.connectors.kafka.broker.client import errors, kafka, reason_of
from flow.connectors.kafka.broker.connection import Clients
from flow.connectors.kafka.writing.topics import Topic
from flow.errors import SinkError, shorten

SETTINGS: Mapping[str, Any] = {
    # With this partitioner, a key has the same partition as in Java's clients and Spark.
    "partitioner": "murmur2_random",
    "linger.ms": 20,
    "batch.num.messages": 100_000,
    # `Sender` limits the queue itself.
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": 2_147_483_647,
    "delivery.report.only.error": True,
    "enable.idempotence": True,
}
_PIECE_ROWS = 10_000
_PIECE_BYTES = 16 << 20
_QUEUED_PIECES = 30
_POLL_SECONDS = 0.05
_BATCH_BYTES = 1_000_000
_BATCH_OVERHEAD = 512
_NOW = 0
"""Time that the client replaces by the time of sending."""
_FLUSH_SECONDS = 300.0
_LEAST_LIMIT = 1000
_TOO_LARGE = ("MSG_SIZE_TOO_LARGE", "_MSG_SIZE_TOO_LARGE")


class Sender:
    """Producer that holds the first error of its messages.

    Attributes:
        producer: the client's producer.
    """

    def __init__(self, clients: Clients, topic: str, settings: Mapping[str, Any]) -> None:
        self._clients = clients
        self._topic = topic
        self._failure: Any = None
        self._culprit = ""
        self._dicts: list[dict[str, Any]] = []
        reports = {"on_delivery": self._on_delivery}
        sizes = _size_limits(Topic(clients, topic))
        self.producer = clients.producer({**SETTINGS, **sizes, **settings, **reports})

    def reset(self) -> None:
        """Drop the errors of earlier messages."""
        self._failure, self._culprit = None, ""
        self._dicts = []

    def send(self, batch: pa.RecordBatch) -> None:
        """Queue messages in the columns of `flow.connectors.kafka.writing.records.SCHEMA`.

        Raises:
            KafkaException: a message was refused.
        """
        plain = all(batch.column(n).null_count == batch.num_rows for n in ("timestamp", "headers"))
        rows = max(1, min(_PIECE_ROWS, _PIECE_BYTES * batch.num_rows // (batch.nbytes + 1)))
        for start in range(0, batch.num_rows, rows):
            self._make_room(rows)
            piece = batch.slice(start, rows)
            if plain and hasattr(self.producer, "produce_batch"):
                self._send_plain(piece)
            else:
                self._send_each(piece)

    def flush(self, seconds: float) -> None:
        """Wait until all messages are written.

        Raises:
            KafkaException: a message could not be written, or not in time.
        """
        left = self.producer.flush(seconds)
        self.check()
        if left:
            raise kafka().KafkaException(kafka().KafkaError(kafka().KafkaError._TIMED_OUT))

    def check(self) -> None:
        """Raise the brokers' error if they refused a message."""
        if self._failure is not None:
            raise kafka().KafkaException(self._failure)

    def explanation(self, error: Any) -> str:
        """Return the meaning of an error and the remedy."""
        error = self._failure or error
        if error.name() in _TOO_LARGE:
            return (
                f"a record is too large{self._culprit}: make it smaller, or raise the topic's "
                "max.message.bytes (and message.max.bytes in properties, where that is set)"
            )
        return self._clients.explanation(error)

    def close(self) -> None:
        """Drop messages that are not written yet."""
        with contextlib.suppress(*errors()):  # The errors are reported before.
            self.producer.purge()
            self.producer.poll(0)

    def _make_room(self, rows: int) -> None:
        """Wait while the queue is full: the client would refuse a message but accept the next."""
        self.producer.poll(0)
        while len(self.producer) > _QUEUED_PIECES * rows:
            self.producer.poll(_POLL_SECONDS)
        self.check()

    def _send_plain(self, piece: pa.RecordBatch) -> None:
        keys, values = piece.column("key").to_pylist(), piece.column("value").to_pylist()
        messages = self._fill_messages(keys, values)
        if self.producer.produce_batch(self._topic, messages) < len(messages):
            refused = next(message for message in messages if "_error" in message)
            self._set_failure(refused["_error"], refused["key"], refused["value"])
            self.check()

    def _fill_messages(self, keys: list[Any], values: list[Any]) -> list[dict[str, Any]]:
        """Return messages in the client's form, in dicts that all batches share.

        New dicts for each batch would cost the garbage collector more time than the client needs.
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
            self._set_failure(error.args[0], key, value)
            raise

    def _set_failure(self, error: Any, key: bytes | None, value: bytes | None) -> None:
        self._failure = error
        size = len(key or b"") + len(value or b"")
        self._culprit = f" (key {shorten(key)}, {size} bytes)"

    def _on_delivery(self, error: Any, message: Any) -> None:
        purged = error is None or error.name().startswith("_PURGE")
        if not purged and self._failure is None:
            self._set_failure(error, message.key(), message.value())


def _size_limits(topic: Topic) -> dict[str, int]:
    """Return client limits equal to the topic's, as a broker refuses a whole batch."""
    limit = topic.setting("max.message.bytes")
    if limit is None:
        return {}
    largest = int(limit)
    batch = min(_BATCH_BYTES, max(1, largest - _BATCH_OVERHEAD))
    return {"message.max.bytes": max(largest, _LEAST_LIMIT), "batch.size": batch}


_idle_senders: dict[str, Sender] = {}
"""Idle senders of this process, which later epochs use again."""


def write_directly(
    clients: Clients, topic: str, batches: Iterable[pa.RecordBatch], what: str
) -> None:
    """Write messages from this process without a transaction, and wait until they are written.

    Args:
        clients: factory of the producer.
        topic: name of the topic.
        batches: messages in the columns of `flow.connectors.kafka.writing.records.SCHEMA`.
        what: first words of the error, such as ``epoch 3 could not be written``.

    Raises:
        SinkError: a message could not be written.
    """
    identity = repr((os.getpid(), clients.servers, sorted(clients.properties.items()), topic))
    where = f"{what} (topic {topic!r})"
    with clients.explained(where):
        sender = _idle_senders.get(identity) or Sender(clients, topic, {})
    try:
        for batch in batches:
            sender.send(batch)
        sender.flush(_FLUSH_SECONDS)
    except errors() as error:
        _idle_senders.pop(identity, None)
        sender.close()
        raise SinkError(f"{where}: {sender.explanation(reason_of(error))}") from None
    _idle_senders[identity] = sender
