"""Reading of a range of offsets, with errors and events of a client of the test."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from flow.connectors.kafka import cluster
from flow.connectors.kafka import ranges as reading
from flow.connectors.kafka.client import Properties
from flow.connectors.kafka.ranges import Access, RangeReader
from flow.errors import SourceError

PARTITION = cluster.TopicPartition("t", 0)
GONE = KafkaError.UNKNOWN_TOPIC_OR_PART


@dataclass
class Message:
    """A message, or an event in place of a message."""

    at: int
    code: int | None = None

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)


@dataclass
class Client:
    """Client that returns the given messages, one list for each call.

    Where the partition begins and ends it says answer by answer, the last one again and again.
    """

    given: list[list[Message]] = field(default_factory=list)
    ends: list[tuple[int, int] | KafkaError] = field(default_factory=lambda: [(0, 100)])
    assigned: list[int] = field(default_factory=list)

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned += [place.offset for place in places]

    def unassign(self) -> None:
        pass

    def consume(self, _count: int, _seconds: float) -> list[Message]:
        return self.given.pop(0) if self.given else []

    def get_watermark_offsets(self, _place: TopicPartition, timeout: float) -> tuple[int, int]:
        ends = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        if isinstance(ends, KafkaError):
            raise KafkaException(ends)
        return ends


@pytest.fixture(autouse=True)
def no_time_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "DOUBT_SECONDS", 0.05)
    monkeypatch.setattr(reading, "ASK_SECONDS", 0.01)
    monkeypatch.setattr(reading, "WAITING_SECONDS", 0.0)


def read_slowly(client: Client, on_data_loss: Any = "fail") -> Iterator[list[int]]:
    """Return the offsets of the messages read from the range 0 to 4."""
    reader = RangeReader(Access("b:9092", Properties({}), on_data_loss, 0.5))
    reader._client = client
    for many in reader.messages(PARTITION, 0, 5):
        yield [one.offset() for one in many]


def read(client: Client, on_data_loss: Any = "fail") -> list[int]:
    """The same, at once."""
    return [offset for many in read_slowly(client, on_data_loss) for offset in many]


def messages(*offsets: int) -> list[Message]:
    return [Message(offset) for offset in offsets]


def test_messages_are_read_once_despite_out_of_range_errors() -> None:
    out_of_range = Message(2, KafkaError._AUTO_OFFSET_RESET)
    client = Client([[*messages(0, 1), out_of_range], messages(0, 1, 2), messages(3, 4, 5)])
    assert read(client) == [0, 1, 2, 3, 4]
    assert client.assigned == [0, 2]


def test_offsets_without_a_message_are_skipped() -> None:
    end = Message(5, KafkaError._PARTITION_EOF)
    assert read(Client([messages(1), messages(3), [end]])) == [1, 3]
    assert read(Client([messages(1, 7)])) == [1]


@pytest.mark.parametrize(
    "code",
    [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN],
)
def test_errors_that_concern_no_message_are_skipped(code: int) -> None:
    assert read(Client([[Message(-1, code)], messages(0, 1, 2, 3, 4)])) == [0, 1, 2, 3, 4]


def test_permanent_errors_are_raised() -> None:
    refused = Message(0, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(SourceError, match="t/0 cannot be read at 0: "):
        read(Client([[refused]]))


@pytest.mark.parametrize(
    ("code", "ends", "problem"),
    [
        (KafkaError._PARTITION_EOF, (0, 2), "t/0 ends at 2, but messages up to 4 were to be read"),
        (GONE, KafkaError(GONE), "t/0 is not on the broker any more"),
        (KafkaError._AUTO_OFFSET_RESET, (5, 9), "messages 2 to 4 of t/0 were deleted on the"),
    ],
)
def test_lost_messages_are_an_error_or_a_warning(
    code: int, ends: Any, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = [messages(0, 1), [Message(2, code)]]
    with pytest.raises(SourceError, match=rf"{problem}.*\(on_data_loss='warn' continues"):
        read(Client(list(given), [ends]))
    assert read(Client(list(given), [ends]), on_data_loss="warn") == [0, 1]
    (message,) = caplog.messages
    assert message.startswith(problem)
    assert message.endswith("; continuing with what is left")


def test_an_early_end_or_a_transient_answer_is_no_loss() -> None:
    early = Message(2, KafkaError._PARTITION_EOF)
    client = Client([messages(0, 1), [early]], ends=[(0, 5)])
    with pytest.raises(SourceError, match="of t/0 arrived for 0 s, of those from 2 to 4"):
        read(client)
    assert client.assigned == [0]
    unknown = KafkaError(KafkaError._UNKNOWN_PARTITION)
    client = Client([messages(0, 1)], ends=[(0, 2), unknown, (0, 5)])
    with pytest.raises(SourceError, match="no message of t/0"):
        read(client)


def test_time_spent_on_messages_does_not_count_as_waiting() -> None:
    reading_slowly = read_slowly(Client([messages(0, 1), [], messages(2, 3, 4)]))
    assert next(reading_slowly) == [0, 1]
    time.sleep(0.6)
    assert list(reading_slowly) == [[2, 3, 4]]


def test_unreachable_brokers_are_waited_for() -> None:
    away = KafkaError(KafkaError._TRANSPORT)
    out_of_range = Message(0, KafkaError._AUTO_OFFSET_RESET)
    assert read(Client([[out_of_range], messages(0, 1, 2, 3, 4)], ends=[away])) == [0, 1, 2, 3, 4]
    with pytest.raises(SourceError, match="no message of t/0"):
        read(Client([[out_of_range]], ends=[away]))
