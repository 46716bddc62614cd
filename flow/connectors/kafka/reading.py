"""Reading a range of a partition, in a worker.

Making a client and its connections takes longer than reading a few messages does, so a worker keeps
one for each source that it reads, from one epoch to the next.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flow.connectors.kafka.client import LastProblem, Properties, make_consumer, settings
from flow.connectors.kafka.cluster import TopicPartition, is_passing
from flow.connectors.kafka.connection import kafka
from flow.connectors.kafka.losses import OnDataLoss
from flow.errors import SourceError
from flow.garbage import no_collection

Message = Any
"""A message as the client has it."""

MOST = 10_000
"""Messages asked of the client at a time: with more of them at hand, each costs more."""
WAITING_SECONDS = 0.05
"""How long to wait for that many."""
_MEETING_SECONDS = 1.0
_KEPT = 4
"""Clients that a worker keeps, at most."""
_CONSUMER = {
    "group.id": "flow",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    # What is fetched beyond the range that is read is thrown away.
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 32_768,
    # A range holds what is there already. A broker that has been asked for more, past its end,
    # answers nothing else on that connection before this time is over.
    "fetch.wait.max.ms": 5,
    "fetch.queue.backoff.ms": 5,
    # Where a broker is lost, it may be back soon.
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.fast.interval.ms": 100,
}

logger = logging.getLogger("flow")


@dataclass(frozen=True)
class Access:
    """How a worker reads.

    Attributes:
        servers: the brokers' addresses.
        properties: the client's properties.
        on_data_loss: what to do when messages are gone.
        patience_seconds: how long to wait for brokers that do not answer.
    """

    servers: str
    properties: Properties
    on_data_loss: OnDataLoss
    patience_seconds: float


class Connection:
    """A client that reads one range after another."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._problem = LastProblem(access.properties)
        config = settings(access.servers, access.properties, self._problem, _CONSUMER)
        self._client = make_consumer(config, access.properties)
        self._met: set[str] = set()

    def messages(self, partition: TopicPartition, start: int, end: int) -> Iterator[list[Message]]:
        """The messages of a partition from one offset up to another, in order, many at a time.

        Raises:
            SourceError: when they cannot be read.
        """
        at = start
        self._meet(partition.topic)
        self._assign(partition, at)
        last = time.monotonic()
        while at < end:
            with no_collection():
                found = self._client.consume(min(MOST, end - at), WAITING_SECONDS)
                good, reached = self._sorted_out(found, partition, at, end)
            if good:
                yield good
            if good or reached > at:
                at, last = reached, time.monotonic()
            elif time.monotonic() - last > self._access.patience_seconds:
                raise SourceError(
                    f"no message came of {partition} for {self._access.patience_seconds:.0f} s, "
                    f"of those from {at:,} to {end - 1:,}{self._problem}"
                )
        self._client.unassign()

    def close(self) -> None:
        """Let go of the brokers."""
        self._client.close()

    def _meet(self, topic: str) -> None:
        """Ask who leads another topic; by itself a client does so when its next second is over."""
        if self._met and topic not in self._met:
            with contextlib.suppress(kafka().KafkaException):  # reading says what is wrong
                self._client.list_topics(topic, timeout=_MEETING_SECONDS)
        self._met.add(topic)

    def _assign(self, partition: TopicPartition, at: int) -> None:
        from confluent_kafka import TopicPartition as Theirs

        self._client.assign([Theirs(partition.topic, partition.partition, at)])

    def _sorted_out(
        self, found: list[Message], partition: TopicPartition, at: int, end: int
    ) -> tuple[list[Message], int]:
        """The messages of the range, and the offset up to which it has been read now."""
        good = [one for one in found if one.error() is None]
        for one in found if len(good) < len(found) else ():
            if one.error() is not None:
                at = max(at, self._reached(one, partition, at, end))
        if good:
            at = max(at, min(end, good[-1].offset() + 1))
            if good[-1].offset() >= end:
                good = [one for one in good if one.offset() < end]
                at = end
        return good, at

    def _reached(self, event: Message, partition: TopicPartition, at: int, end: int) -> int:
        """How far it has been read by what the client says in the place of a message."""
        error = event.error()
        if error.code() == error._PARTITION_EOF:
            return min(end, int(event.offset()))
        if error.code() == error._AUTO_OFFSET_RESET:
            return self._begin_anew(partition, at, end)
        if is_passing(error) or error.code() == error.UNKNOWN_TOPIC_OR_PART:
            return at
        said = f"{self._access.properties.hide(error.str())}{self._problem}"
        raise SourceError(f"{partition} cannot be read at {at:,}: {said}")

    def _begin_anew(self, partition: TopicPartition, at: int, end: int) -> int:
        """Go on where the partition begins now."""
        from confluent_kafka import TopicPartition as Theirs

        first: int
        first, _ = self._client.get_watermark_offsets(
            Theirs(partition.topic, partition.partition), timeout=10
        )
        reached = min(end, max(first, at))
        if reached == at:  # a broker that has just started may not know better
            self._assign(partition, at)
            return at
        if self._access.on_data_loss == "fail":
            raise SourceError(
                f"messages {at:,} to {reached - 1:,} of {partition} were deleted on the broker "
                "before the flow read them (on_data_loss='warn' goes on with what is left)"
            )
        logger.warning("messages %d to %d of %s are gone", at, reached - 1, partition)
        self._assign(partition, reached)
        return reached


_idle: list[tuple[Access, int, Connection]] = []
_lock = threading.Lock()


@contextlib.contextmanager
def connection(access: Access) -> Iterator[Connection]:
    """A connection for one range: one that is idle, or a new one, kept if all goes well."""
    found = _take(access) or Connection(access)
    try:
        yield found
    except BaseException:
        found.close()
        raise
    _keep(access, found)


def _take(access: Access) -> Connection | None:
    with _lock:
        for number, (theirs, process, found) in enumerate(_idle):
            # What was inherited of another process has lost its threads.
            if process == os.getpid() and theirs == access:
                del _idle[number]
                return found
    return None


def _keep(access: Access, found: Connection) -> None:
    with _lock:
        _idle.append((access, os.getpid(), found))
        dropped = _idle[:-_KEPT]
        del _idle[:-_KEPT]
    for _, process, one in dropped:
        if process == os.getpid():
            one.close()
