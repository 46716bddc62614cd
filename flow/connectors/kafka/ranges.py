"""Readers of ranges of partitions, in a worker.

Connecting a client takes longer than reading a few messages, so a worker reuses the readers of a
source in later epochs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from flow.connectors.kafka.client import LastProblem, Properties, kafka, make_consumer
from flow.connectors.kafka.cluster import Ends, TopicPartition, is_passing, is_unknown
from flow.errors import SourceError
from flow.garbage import no_collection

OnDataLoss: TypeAlias = Literal["fail", "warn"]
"""Action when messages are lost: stop the run, or warn and continue with the rest."""

DOUBT_SECONDS = 5.0
"""Time for which a partition must be missing or too short before it counts as lost.

A broker that has just started may report too little.
"""

Message = Any
"""Message of the client library."""

MOST = 10_000
"""Messages that the client is asked for at a time; with more, each message costs more."""

WAITING_SECONDS = 0.05
"""Time to wait until that many have arrived."""

_LEADER_SECONDS = 1.0

ASK_SECONDS = 1.0
"""Time without a message until the broker is asked for its offsets; timeout of that query."""

_NOWHERE = (-1, -1)
"""Begin and end offset of a partition that does not exist."""

_MOST_IDLE = 4
"""Greatest number of idle readers of a worker."""

_CONSUMER = {
    "group.id": "flow",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    # Messages fetched beyond the range are discarded, so the client does not fetch far ahead.
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 32_768,
    # All messages of a range are on the broker. A request past the end blocks all other requests
    # on that connection for this time.
    "fetch.wait.max.ms": 5,
    "fetch.queue.backoff.ms": 5,
    # The client tries again soon, as a lost broker may be back in a second.
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.fast.interval.ms": 100,
}

logger = logging.getLogger("flow")


@dataclass(frozen=True)
class Access:
    """Access of a worker to the brokers.

    Attributes:
        servers: addresses of the brokers.
        properties: properties of the client.
        on_data_loss: action when messages are lost.
        patience_seconds: time to wait for brokers that do not answer.
    """

    servers: str
    properties: Properties
    on_data_loss: OnDataLoss
    patience_seconds: float


class _Range:
    """Rest of a range that is being read.

    Attributes:
        partition: the partition.
        next_offset: next offset to read.
        end: offset after the last message of the range.
        progressed_at: monotonic time of the last progress, in seconds.
        asked_at: monotonic time at which the broker was last asked for its offsets.
        doubted_since: monotonic time since which the broker reports an earlier end; ``None`` if it
            does not.
    """

    def __init__(self, partition: TopicPartition, next_offset: int, end: int) -> None:
        self.partition = partition
        self.next_offset = next_offset
        self.end = end
        self.doubted_since: float | None = None
        self.restart_waiting()

    @property
    def position(self) -> Any:
        """Position to continue from, in the type of the client library."""
        return kafka().TopicPartition(*self.partition, self.next_offset)

    def advance_to(self, offset: int) -> None:
        """Advance to an offset: all messages before it are read."""
        if offset > self.next_offset:
            self.next_offset = min(offset, self.end)
            self.doubted_since = None
            self.restart_waiting()

    def restart_waiting(self) -> None:
        """Start to measure the time without a message again."""
        self.progressed_at = self.asked_at = time.monotonic()


class RangeReader:
    """Client that reads one range after another."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._problem = LastProblem(access.properties)
        self._client = make_consumer(access.servers, access.properties, self._problem, _CONSUMER)
        self._known_topics: set[str] = set()

    def messages(self, partition: TopicPartition, start: int, end: int) -> Iterator[list[Message]]:
        """Yield lists of the messages of a partition from `start` to `end`, exclusive, in order.

        Raises:
            SourceError: the messages cannot be read.
        """
        pending = _Range(partition, start, end)
        self._find_leader(partition.topic)
        self._client.assign([pending.position])
        while pending.next_offset < end:
            with no_collection():
                found = self._client.consume(min(MOST, end - pending.next_offset), WAITING_SECONDS)
                good = self._take_messages(found, pending)
            if good:
                yield good
                pending.restart_waiting()  # the caller may have taken long
            else:
                self._check_progress(pending)
        self._client.unassign()

    def close(self) -> None:
        """Close the connections to the brokers."""
        self._client.close()

    def _find_leader(self, topic: str) -> None:
        """Query the leader of a new topic, which the client itself does only within a second."""
        if self._known_topics and topic not in self._known_topics:
            with contextlib.suppress(kafka().KafkaException):  # reading reports it
                self._client.list_topics(topic, timeout=_LEADER_SECONDS)
        self._known_topics.add(topic)

    def _take_messages(self, found: list[Message], pending: _Range) -> list[Message]:
        """Return the messages among `found` that are in the range, and advance the range."""
        good = [one for one in found if one.error() is None]
        events = [one for one in found if one.error() is not None] if len(good) < len(found) else []
        if good:
            first, last = good[0].offset(), good[-1].offset()
            if first < pending.next_offset or last >= pending.end:
                good = [one for one in good if pending.next_offset <= one.offset() < pending.end]
            pending.advance_to(last + 1)
        for event in events:
            self._handle_event(event, pending)
        return good

    def _handle_event(self, event: Message, pending: _Range) -> None:
        """Handle an event that the client returns in place of a message."""
        error = event.error()
        if error.code() == error._PARTITION_EOF:
            pending.advance_to(int(event.offset()))
        elif error.code() == error._AUTO_OFFSET_RESET:
            self._restart_at_beginning(pending)
        elif error.code() == error.GROUP_AUTHORIZATION_FAILED:
            pass  # The client asks for the coordinator of a group, which the reader does not need.
        elif not is_passing(error) and not is_unknown(error):
            raise self._read_error(error, pending)

    def _restart_at_beginning(self, pending: _Range) -> None:
        """Continue at the first offset of the partition, if that is later."""
        ends = self._ends_of(pending)
        # A broker that has just started may report too little.
        if ends is None or ends[0] <= pending.next_offset:
            time.sleep(WAITING_SECONDS)
        else:
            to = min(ends[0], pending.end)
            loss = (
                f"messages {pending.next_offset:,} to {to - 1:,} of {pending.partition} "
                "were deleted on the broker before the flow read them"
            )
            self._skip_loss(pending, to, loss)
        self._client.assign([pending.position])

    def _check_progress(self, pending: _Range) -> None:
        """Check at intervals, while no message arrives, that the rest of the range exists.

        Raises:
            SourceError: the rest of the range is lost, or no broker has answered for too long.
        """
        now = time.monotonic()
        if now - pending.asked_at >= ASK_SECONDS:
            pending.asked_at = now
            self._check_end(pending)
        if now - pending.progressed_at > self._access.patience_seconds:
            raise SourceError(
                f"no message of {pending.partition} arrived for "
                f"{self._access.patience_seconds:.0f} s, of those from {pending.next_offset:,} to "
                f"{pending.end - 1:,}{self._problem}"
            )

    def _check_end(self, pending: _Range) -> None:
        """Skip the rest of a range as a loss if it is missing for `DOUBT_SECONDS`.

        A broker that has just started may report an earlier end, so one such answer is no loss.
        """
        ends = self._ends_of(pending)
        if ends is None:
            return
        if ends[1] >= pending.end:
            pending.doubted_since = None
        elif pending.doubted_since is None:
            pending.doubted_since = pending.asked_at
        elif pending.asked_at - pending.doubted_since >= DOUBT_SECONDS:
            loss = f"{pending.partition} is not on the broker any more"
            if ends != _NOWHERE:
                loss = (
                    f"{pending.partition} ends at {ends[1]:,}, but messages up to "
                    f"{pending.end - 1:,} were to be read: the topic was created again, "
                    "or its last messages were lost"
                )
            self._skip_loss(pending, pending.end, loss)

    def _ends_of(self, pending: _Range) -> tuple[int, int] | None:
        """Return the first and the end offset of a partition; `None` if no broker answers."""
        try:
            first, last = self._client.get_watermark_offsets(pending.position, timeout=ASK_SECONDS)
        except kafka().KafkaException as raised:
            error = raised.args[0]
            if is_unknown(error):
                return _NOWHERE
            if is_passing(error):
                return None
            raise self._read_error(error, pending) from None
        return int(first), int(last)

    def _read_error(self, error: Any, pending: _Range) -> SourceError:
        reason = f"{self._access.properties.mask(error.str())}{self._problem}"
        return SourceError(
            f"{pending.partition} cannot be read at {pending.next_offset:,}: {reason}"
        )

    def _skip_loss(self, pending: _Range, to: int, loss: str) -> None:
        if self._access.on_data_loss == "fail":
            raise SourceError(f"{loss} (on_data_loss='warn' continues with what is left)")
        logger.warning("%s; continuing with what is left", loss)
        pending.advance_to(to)


_idle: list[tuple[Access, int, RangeReader]] = []

_lock = threading.Lock()


@contextlib.contextmanager
def lend_reader(access: Access) -> Iterator[RangeReader]:
    """Lend an idle or new reader for one range; the reader is reused unless reading fails."""
    found = _take_idle(access) or RangeReader(access)
    try:
        yield found
    except BaseException:
        found.close()
        raise
    _return_idle(access, found)


def _take_idle(access: Access) -> RangeReader | None:
    with _lock:
        for number, (theirs, process, found) in enumerate(_idle):
            # A reader inherited from another process has lost its threads.
            if process == os.getpid() and theirs == access:
                del _idle[number]
                return found
    return None


def _return_idle(access: Access, found: RangeReader) -> None:
    with _lock:
        _idle.append((access, os.getpid(), found))
        dropped = _idle[:-_MOST_IDLE]
        del _idle[:-_MOST_IDLE]
    for _, process, one in dropped:
        if process == os.getpid():
            one.close()


MOST_RECORDS = 4_000_000
"""Greatest number of messages in an epoch, however small they are."""

EPOCH_BYTES = 800_000_000
"""Greatest size of an epoch's messages, uncompressed."""

RECORD_BYTES = 40
"""Memory of a record in columns beyond the bytes of its message."""

OBJECT_BYTES = 700
"""Memory of a message as a Python object beyond its bytes."""

_SMALL_BACKLOG = 100_000
"""Backlog in messages up to which no sample is read."""

_UNKNOWN_BYTES = 800.0
"""Assumed size of messages of which no sample can be read now."""

_SAMPLE = 200

_MOST_TOPICS = 8

_PATIENCE_SECONDS = 2.0

# A sample is few messages, and does not wait until the next ones are fetched.
_GLANCE = {"queued.min.messages": 1, "fetch.message.max.bytes": 100_000}


class Scales:
    """Estimate of the number of messages that fit an epoch of a backlog.

    A large epoch spreads its fixed cost over more messages, but needs memory for them. So an epoch
    reads as many messages as fit a number of bytes, by the mean size of a sample of the next
    messages.

    Args:
        access: access to the brokers.
        records: True if the messages become records, False if they become objects.
    """

    def __init__(self, access: Access, *, records: bool) -> None:
        properties = Properties({**access.properties, **_GLANCE})
        self._access = replace(
            access,
            properties=properties,
            on_data_loss="fail",  # no warning of a loss, which the reader of the messages logs
            patience_seconds=_PATIENCE_SECONDS,
        )
        self._overhead = RECORD_BYTES if records else OBJECT_BYTES

    def most(self, offsets: Ends, backlog: Mapping[TopicPartition, int]) -> int:
        """Return the greatest number of messages that an epoch may read.

        Args:
            offsets: offset of each partition's next message.
            backlog: number of messages to read, positive, by partition.
        """
        if sum(backlog.values()) <= _SMALL_BACKLOG:
            return MOST_RECORDS
        fullest: dict[str, TopicPartition] = {}
        of_topic: Counter[str] = Counter()
        for partition in sorted(backlog, key=backlog.__getitem__):
            fullest[partition.topic] = partition
            of_topic[partition.topic] += backlog[partition]
        sampled = dict(of_topic.most_common(_MOST_TOPICS))
        total_bytes = sum(
            count * self._mean_bytes(fullest[topic], offsets[fullest[topic]])
            for topic, count in sampled.items()
        )
        mean = total_bytes / sum(sampled.values())
        return max(1, min(MOST_RECORDS, int(EPOCH_BYTES / mean)))

    def _mean_bytes(self, partition: TopicPartition, start: int) -> float:
        """Return the mean size of the next messages of a partition, in bytes."""
        try:
            reader = RangeReader(self._access)
            try:
                batches = list(reader.messages(partition, start, start + _SAMPLE))
            finally:
                reader.close()
        except SourceError:  # The reader of the messages reports the error.
            return _UNKNOWN_BYTES
        weights = [_bytes_of(message) for batch in batches for message in batch]
        return self._overhead + sum(weights) / len(weights) if weights else _UNKNOWN_BYTES


def _bytes_of(message: Any) -> int:
    headers = message.headers() or ()
    parts = [message.key(), message.value(), *(value for _, value in headers)]
    return sum(len(part) for part in parts if part is not None)
