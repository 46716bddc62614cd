"""Producers that send encoded messages, directly or an epoch as a transaction."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from flow.connectors.kafka.client import Clients, errors, kafka, reason_of
from flow.connectors.kafka.topics import Entry, EpochsTopic, Topic, entry_key
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
        """Queue messages in the columns of `flow.connectors.kafka.serializers.SCHEMA`.

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
        batches: messages in the columns of `flow.connectors.kafka.serializers.SCHEMA`.
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


AfterRewind: TypeAlias = Literal["refuse", "write"]
"""Action for an epoch of which an earlier version, or later epochs, were written."""

TIMEOUT = "transaction.timeout.ms"

_DEFAULT_TIMEOUT_MS = 60_000

_SECONDS = 60.0

_ABORT_SECONDS = 5.0

_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


class TransactionalWriter:
    """Writer of the epochs of one output of one run as transactions.

    A transaction has an epoch's records and its number. One producer on the driver writes it: a
    transaction belongs to one producer, and brokers have no transaction that several producers
    prepare and one commits. Workers encode the records in columns, so the driver only passes each
    record to the client.

    The transactional id is made of the run and the step. The next process that opens the same
    output of the same run fences the previous producer: its open transaction is aborted, and it can
    no longer commit. The new process reads the last epoch after that, so no other process can add
    an epoch in between.
    """

    def __init__(
        self,
        clients: Clients,
        epochs: EpochsTopic,
        topic: str,
        run_id: str,
        step_id: str,
    ) -> None:
        self._clients = clients
        self._epochs = epochs
        self._topic = topic
        self._step_id = step_id
        self._key = entry_key(run_id, step_id, topic)
        self._timeout = int(clients.properties.get(TIMEOUT, _DEFAULT_TIMEOUT_MS)) / 1000
        settings = {"transactional.id": f"flow-{run_id}-{step_id}"}
        with clients.explained(f"step {step_id!r}: topic {topic!r} cannot be opened"):
            self._sender = Sender(clients, topic, settings)
            _connect_to_brokers(self._sender.producer, topic)
            self._fence_others()
            self._entry = epochs.read(self._key)

    def write(
        self, epoch: int, batches: Sequence[pa.RecordBatch], rewinds: int, after: AfterRewind
    ) -> None:
        """Write an epoch's records, unless they are written already.

        Args:
            epoch: number of the epoch.
            batches: records of the epoch.
            rewinds: the number of times that the run was set back; see `WriteContext`.
            after: action for an epoch that the run was set back to.

        Raises:
            SinkError: the epoch cannot be written, or the run was set back to it and `after` is
                ``"refuse"``.
        """
        count = sum(batch.num_rows for batch in batches)
        entry = self._entry
        new = Entry(epoch, count, rewinds)
        if not count or entry == new:
            return
        if entry is not None and entry.epoch >= epoch and after == "refuse":
            raise SinkError(self._set_back_problem(entry, new))
        self._transact(epoch, batches, new)
        self._entry = new

    def close(self) -> None:
        """Close the connections; an uncommitted transaction is aborted."""
        self._sender.close()

    def _fence_others(self) -> None:
        """Fence all other writers of this output."""
        try:
            self._sender.producer.init_transactions(_SECONDS)
        except errors() as error:
            if reason_of(error).name() != "_TIMED_OUT":
                raise
            raise SinkError(
                f"step {self._step_id!r}: topic {self._topic!r} cannot be opened: the brokers "
                f"answer, but none coordinates transactions within {_SECONDS:.0f} s. Check "
                "that as many of them run as their settings transaction.state.log.replication."
                "factor (3 if it is not set) and transaction.state.log.min.isr ask for, or choose "
                "guarantee='at least once'"
            ) from None

    def _transact(self, epoch: int, batches: Iterable[pa.RecordBatch], entry: Entry) -> None:
        producer, began_at = self._sender.producer, time.monotonic()
        with self._explained(f"epoch {epoch} could not be written", began_at):
            try:
                self._sender.reset()
                producer.begin_transaction()
                for batch in batches:
                    self._sender.send(batch)
                # The entry is written last, as other readers of the topic of epochs wait from its
                # writing until the commit.
                self._sender.flush(self._timeout)
                producer.produce(self._epochs.name, entry.encoded(), self._key)
                producer.commit_transaction(self._timeout)
                self._sender.check()
            except BaseException:
                with contextlib.suppress(*errors()):
                    producer.abort_transaction(_ABORT_SECONDS)
                raise

    @contextlib.contextmanager
    def _explained(self, what: str, began_at: float) -> Iterator[None]:
        where = f"step {self._step_id!r}: {what} (topic {self._topic!r})"
        try:
            yield
        except errors() as error:
            reason = reason_of(error)
            if time.monotonic() - began_at >= self._timeout:
                raise SinkError(f"{where}: {self._timeout_problem()}") from None
            if reason.name() in _FENCED:
                raise SinkError(f"{where}: {_FENCED_PROBLEM}") from None
            raise SinkError(f"{where}: {self._sender.explanation(reason)}") from None

    def _timeout_problem(self) -> str:
        try:
            if not Topic(self._clients, self._topic).exists():
                return "the topic does not exist any more: create it, then start the flow again"
        except errors() as error:
            return self._clients.explanation(reason_of(error))
        return (
            f"it took longer than {TIMEOUT}={self._timeout * 1000:.0f}, after which brokers abort "
            "a transaction. Raise it in properties (at most to transaction.max.timeout.ms of the "
            "brokers), let sources read less in an epoch, or find out why the brokers are slow; "
            "then start the flow again"
        )

    def _set_back_problem(self, entry: Entry, new: Entry) -> str:
        epoch = new.epoch
        found = f"records of this run up to epoch {entry.epoch}, and it was set back to {epoch}"
        if entry.epoch == epoch and entry.count != new.count:
            found = f"{entry.count} records of epoch {epoch} of this run, which has {new.count} now"
        return (
            f"step {self._step_id!r}: topic {self._topic!r} holds {found}: Kafka takes no records "
            "back, so some would be there twice. Write to another topic; or pass "
            "after_rewind='write', where readers take the last record of each key"
        )


def _connect_to_brokers(producer: Any, topic: str) -> None:
    """Connect to a broker, so that transactions can begin at once.

    A client without a connection waits half a second before it looks for the coordinator of its
    transactions. The first query goes to the configured addresses, whose connections end when the
    answer names the brokers; the second query connects to one of these.
    """
    for _ in range(2):
        producer.list_topics(topic, _SECONDS)


_FENCED_PROBLEM = (
    "another process has opened the same output of the same checkpoint, so this one may write no "
    "more. Run only one of them"
)
