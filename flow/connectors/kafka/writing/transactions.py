"""Epochs that are written as a whole, and once: a transaction holds the records and their number.

One producer writes an epoch, where the flow was started: a transaction belongs to one producer, and
Kafka's brokers know no transaction that several prepare and one commits. Workers encode the records
in columns, and what is left to do for each is to hand it to the client.

The producer is known to the brokers by the run and the step. Whoever opens the same output of the
same run next fences the one before: what that had begun is aborted, and it can commit no more. Only
then is it read how far the output has come, so that nobody can add to it in between.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from flow.connectors.kafka.client import errors, reason_of
from flow.connectors.kafka.connection import Clients
from flow.connectors.kafka.writing.epochs_topic import Entry, EpochsTopic, entry_key
from flow.connectors.kafka.writing.sending import Sender
from flow.connectors.kafka.writing.topics import Topic
from flow.errors import SinkError

AfterRewind: TypeAlias = Literal["refuse", "write"]
"""What to do with an epoch that another one like it, or later ones, were written before."""

AFTER_REWIND = ("refuse", "write")
TIMEOUT = "transaction.timeout.ms"
_DEFAULT_TIMEOUT_MS = 60_000
_SECONDS = 60.0
_ABORT_SECONDS = 5.0
_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


class TransactionalWriter:
    """Writes the epochs of one output of one run."""

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
            _meet_brokers(self._sender.producer, topic)
            self._take_over()
            self._entry = epochs.read(self._key)

    def write(
        self, epoch: int, batches: Sequence[pa.RecordBatch], rewinds: int, after: AfterRewind
    ) -> None:
        """Write an epoch's records, unless they are there.

        Args:
            epoch: the epoch's number.
            batches: its records.
            rewinds: how often the run has been set back, see `WriteContext`.
            after: what to do with an epoch that the run was set back to.

        Raises:
            SinkError: it cannot be written, or the run was set back to it and `after` says no.
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
        """Let go of the connections; what is not committed is aborted."""
        self._sender.close()

    def _take_over(self) -> None:
        """Let nobody else write epochs of this output any more."""
        try:
            self._sender.producer.init_transactions(_SECONDS)
        except errors() as error:
            if reason_of(error).name() != "_TIMED_OUT":
                raise
            raise SinkError(
                f"step {self._step_id!r}: topic {self._topic!r} cannot be opened: the brokers "
                f"answer, and none of them coordinates transactions within {_SECONDS:.0f} s. See "
                "that as many of them run as their settings transaction.state.log.replication."
                "factor (3 if it is not set) and transaction.state.log.min.isr ask for, or choose "
                "guarantee='at least once'"
            ) from None

    def _transact(self, epoch: int, batches: Iterable[pa.RecordBatch], entry: Entry) -> None:
        producer, began = self._sender.producer, time.monotonic()
        with self._explained(f"epoch {epoch} could not be written", began):
            try:
                self._sender.forget()
                producer.begin_transaction()
                for batch in batches:
                    self._sender.send(batch)
                # Last, and alone: while it is not committed, others wait who read the same topic.
                self._sender.flush(self._timeout)
                producer.produce(self._epochs.name, entry.encoded(), self._key)
                producer.commit_transaction(self._timeout)
                self._sender.check()
            except BaseException:
                with contextlib.suppress(*errors()):
                    producer.abort_transaction(_ABORT_SECONDS)
                raise

    @contextlib.contextmanager
    def _explained(self, what: str, began: float) -> Iterator[None]:
        where = f"step {self._step_id!r}: {what} (topic {self._topic!r})"
        try:
            yield
        except errors() as error:
            reason = reason_of(error)
            if time.monotonic() - began >= self._timeout:
                raise SinkError(f"{where}: {self._why_so_long()}") from None
            if reason.name() in _FENCED:
                raise SinkError(f"{where}: {_FENCED_PROBLEM}") from None
            raise SinkError(f"{where}: {self._sender.explanation(reason)}") from None

    def _why_so_long(self) -> str:
        try:
            if not Topic(self._clients, self._topic).exists():
                return "the topic is not there any more: make it, then start the flow again"
        except errors() as error:
            return self._clients.explanation(reason_of(error))
        return (
            f"it took longer than {TIMEOUT}={self._timeout * 1000:.0f}, after which brokers abort "
            "a transaction. Raise it in properties (the brokers' transaction.max.timeout.ms is the "
            "most), let sources read less in an epoch, or see why the brokers are slow; then "
            "start the flow again"
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


def _meet_brokers(producer: Any, topic: str) -> None:
    """Connect to a broker, so that transactions can begin at once.

    Where the client has no connection yet, it looks for the broker that coordinates its
    transactions half a second later. The first question goes to the addresses that it was given,
    and these connections end when the answer names the brokers; the second goes to one of those.
    """
    for _ in range(2):
        producer.list_topics(topic, _SECONDS)


_FENCED_PROBLEM = (
    "another process has opened the same output of the same checkpoint, so this one may write no "
    "more. Let one of them run"
)
