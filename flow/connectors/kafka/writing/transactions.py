"""Writer of epochs as transactions, each with the epoch's records and its number.

One producer on the driver writes an epoch: a transaction belongs to one producer, and brokers have
no transaction that several producers prepare and one commits. Workers encode the records in
columns, so the driver only passes each record to the client.

The transactional id is made of the run and the step. The next process that opens the same output of
the same run fences the previous producer: its open transaction is aborted, and it can no longer
commit. The new process reads the last epoch after that, so no other process can add an epoch in
between.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from flow.connectors.kafka.broker.client import errors, reason_of
from flow.connectors.kafka.broker.connection import Clients
from flow.connectors.kafka.writing.epochs_topic import Entry, EpochsTopic, entry_key
from flow.connectors.kafka.writing.sending import Sender
from flow.connectors.kafka.writing.topics import Topic
from flow.errors import SinkError

AfterRewind: TypeAlias = Literal["refuse", "write"]
"""Action for an epoch of which an earlier version, or later epochs, were written."""

AFTER_REWIND = ("refuse", "write")
TIMEOUT = "transaction.timeout.ms"
_DEFAULT_TIMEOUT_MS = 60_000
_SECONDS = 60.0
_ABORT_SECONDS = 5.0
_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


class TransactionalWriter:
    """Writer of the epochs of one output of one run."""

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
