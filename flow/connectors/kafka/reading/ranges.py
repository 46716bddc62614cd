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

from flow.connectors.kafka.client import LastProblem, kafka, make_consumer, settings
from flow.connectors.kafka.cluster import TopicPartition, is_passing, is_unknown
from flow.connectors.kafka.properties import Properties
from flow.connectors.kafka.reading.losses import DOUBT_SECONDS, OnDataLoss
from flow.errors import SourceError
from flow.garbage import no_collection

Message = Any
"""A message as the client has it."""

MOST = 10_000
"""Messages asked of the client at a time: with more of them at hand, each costs more."""
WAITING_SECONDS = 0.05
"""How long to wait for that many."""
_MEETING_SECONDS = 1.0
ASK_SECONDS = 1.0
"""How long a broker may give nothing before it is asked what it has, and may take to say so."""
_NOWHERE = (-1, -1)
"""Where a partition begins and ends that is not there."""
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


class _Range:
    """What is left to read of a range.

    Attributes:
        partition: the partition.
        at: the offset to go on from.
        end: the offset to end before.
        moved: since when nothing has come of it.
        asked: when the broker was last asked what it has.
        doubted: since when the broker has not what is left, as it says.
    """

    def __init__(self, partition: TopicPartition, at: int, end: int) -> None:
        self.partition = partition
        self.at = at
        self.end = end
        self.doubted: float | None = None
        self.wait_afresh()

    @property
    def place(self) -> Any:
        """Where to go on, as the client wants it."""
        return kafka().TopicPartition(self.partition.topic, self.partition.partition, self.at)

    def come_to(self, offset: int) -> None:
        """Note that all before an offset is done."""
        if offset > self.at:
            self.at = min(offset, self.end)
            self.doubted = None
            self.wait_afresh()

    def wait_afresh(self) -> None:
        """Count the time without a message from now on."""
        self.moved = self.asked = time.monotonic()


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
        rest = _Range(partition, start, end)
        self._meet(partition.topic)
        self._assign(rest)
        while rest.at < end:
            with no_collection():
                found = self._client.consume(min(MOST, end - rest.at), WAITING_SECONDS)
                good = self._sorted_out(found, rest)
            if good:
                yield good
                rest.wait_afresh()  # what was done with them may have taken long
            else:
                self._check(rest)
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

    def _assign(self, rest: _Range) -> None:
        self._client.assign([rest.place])

    def _sorted_out(self, found: list[Message], rest: _Range) -> list[Message]:
        """The messages of the range, which is that much shorter afterwards."""
        good = [one for one in found if one.error() is None]
        events = [one for one in found if one.error() is not None] if len(good) < len(found) else []
        if good:
            first, last = good[0].offset(), good[-1].offset()
            if first < rest.at or last >= rest.end:
                good = [one for one in good if rest.at <= one.offset() < rest.end]
            rest.come_to(last + 1)
        for event in events:
            self._meet_event(event, rest)
        return good

    def _meet_event(self, event: Message, rest: _Range) -> None:
        """What the client says in the place of a message."""
        error = event.error()
        if error.code() == error._PARTITION_EOF:
            rest.come_to(int(event.offset()))
        elif error.code() == error._AUTO_OFFSET_RESET:
            self._begin_anew(rest)
        elif error.code() == error.GROUP_AUTHORIZATION_FAILED:
            pass  # the client asks for a group's coordinator, and nothing here needs one
        elif not is_passing(error) and not is_unknown(error):
            raise self._refused(error, rest)

    def _begin_anew(self, rest: _Range) -> None:
        """Go on where the partition begins now, if that is later."""
        ends = self._ends_of(rest)
        if ends is None or ends[0] <= rest.at:  # a broker that has just started may not know better
            time.sleep(WAITING_SECONDS)
        else:
            upto = min(ends[0], rest.end)
            loss = f"messages {rest.at:,} to {upto - 1:,} of {rest.partition} were deleted on the "
            self._lose(rest, upto, loss + "broker before the flow read them")
        self._assign(rest)

    def _check(self, rest: _Range) -> None:
        """Nothing came: see now and then whether anything will.

        Raises:
            SourceError: when what is left of the range is gone, or the broker is away for too long.
        """
        now = time.monotonic()
        if now - rest.asked >= ASK_SECONDS:
            rest.asked = now
            self._ask(rest)
        if now - rest.moved > self._access.patience_seconds:
            raise SourceError(
                f"no message came of {rest.partition} for {self._access.patience_seconds:.0f} s, "
                f"of those from {rest.at:,} to {rest.end - 1:,}{self._problem}"
            )

    def _ask(self, rest: _Range) -> None:
        """Ask whether what is left of a range is there; that it is not has to be said for a while.

        A broker that has just started may not know better.
        """
        ends = self._ends_of(rest)
        if ends is None:
            return
        if ends[1] >= rest.end:
            rest.doubted = None
        elif rest.doubted is None:
            rest.doubted = rest.asked
        elif rest.asked - rest.doubted >= DOUBT_SECONDS:
            loss = f"{rest.partition} is not on the broker any more"
            if ends != _NOWHERE:
                loss = (
                    f"{rest.partition} ends at {ends[1]:,}, and messages up to {rest.end - 1:,} "
                    "were to be read: the topic was made anew, or its last messages were lost"
                )
            self._lose(rest, rest.end, loss)

    def _ends_of(self, rest: _Range) -> tuple[int, int] | None:
        """Where a partition begins and ends; `None` when no broker says so now."""
        try:
            first, last = self._client.get_watermark_offsets(rest.place, timeout=ASK_SECONDS)
        except kafka().KafkaException as raised:
            error = raised.args[0]
            if is_unknown(error):
                return _NOWHERE
            if is_passing(error):
                return None
            raise self._refused(error, rest) from None
        return int(first), int(last)

    def _refused(self, error: Any, rest: _Range) -> SourceError:
        said = f"{self._access.properties.hide(error.str())}{self._problem}"
        return SourceError(f"{rest.partition} cannot be read at {rest.at:,}: {said}")

    def _lose(self, rest: _Range, upto: int, loss: str) -> None:
        if self._access.on_data_loss == "fail":
            raise SourceError(f"{loss} (on_data_loss='warn' goes on with what is left)")
        logger.warning("%s; going on with what is left", loss)
        rest.come_to(upto)


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
