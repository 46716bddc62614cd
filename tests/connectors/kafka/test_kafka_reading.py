"""Reading from a real broker without Spark: start, end, bad messages and lost messages."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from flow.connectors.kafka import KafkaMessage, KafkaSource
from flow.connectors.kafka import ranges as kafka_reading
from flow.connectors.source import MemoryLog
from flow.errors import SourceError
from flow.testing import run_source
from tests.support.kafka import Broker
from tests.support.planning import splits_of


def source(broker: Broker, topics: Any, **arguments: Any) -> KafkaSource:
    return KafkaSource(broker.servers, topics, **{"end": "latest", "patience": "20s", **arguments})


def values(source: KafkaSource) -> list[Any]:
    return [message.value for message in run_source(source)]


# --- where it starts and ends ---


#  partition 0:  a@1000  b@2000  c@3000
#  partition 1:  d@1500
@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    name = broker.topic(partitions=2)
    stamped = [("a", 1_000, 0), ("b", 2_000, 0), ("c", 3_000, 0), ("d", 1_500, 1)]
    broker.produce(
        name, (dict(zip(("value", "timestamp", "partition"), one, strict=True)) for one in stamped)
    )
    return name


def second(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [b"a", b"b", b"c", b"d"]),
        ({"start": "latest"}, []),
        ({"start": second(2)}, [b"b", b"c"]),
        ({"start": second(1.5)}, [b"b", b"c", b"d"]),
        ({"start": second(2.0005)}, [b"c"]),
        ({"start": second(9)}, []),
        ({"end": second(2)}, [b"a", b"d"]),
        ({"start": {"T": {0: 2, 1: 1}}}, [b"c"]),
        ({"start": {"T": {0: 2}}}, [b"c", b"d"]),
        ({"end": {"T": {0: 1, 1: 0}}}, [b"a"]),
        ({"start": {"T": {0: 1, 1: 1}}, "end": {"T": {0: 2, 1: 1}}}, [b"b"]),
    ],
)
def test_reading_starts_and_ends_at_the_given_offsets(
    broker: Broker, topic: str, arguments: dict[str, Any], expected: list[bytes]
) -> None:
    named = {
        name: {topic: one["T"]} if isinstance(one, dict) else one for name, one in arguments.items()
    }
    assert sorted(values(source(broker, topic, **named))) == expected


def test_topics_are_named_or_match_a_pattern(broker: Broker) -> None:
    names = [broker.topic(f"listed-{name}") for name in ("a", "b", "b2")]
    for name in names:
        broker.values(name, [name])
    assert values(source(broker, [names[2], names[0]])) == [b"listed-b2", b"listed-a"]
    matching = source(broker, None, pattern="listed-[ab]")
    assert values(matching) == [b"listed-a", b"listed-b"]
    assert values(source(broker, None, pattern="listed-none")) == []


# --- refusals ---


def test_a_missing_topic_is_an_error_that_names_it(broker: Broker) -> None:
    with pytest.raises(SourceError, match=r"no topic 'nowhere' on the broker, or .*: create it"):
        values(source(broker, "nowhere"))
    assert broker.partitions("nowhere") == 0


SECRET = {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "hunter2"}
LOGIN = {**SECRET, "security.protocol": "SASL_PLAINTEXT"}
LONG = pytest.mark.extended


@pytest.mark.parametrize(
    ("servers", "properties", "message"),
    [
        pytest.param("127.0.0.1:1", SECRET, "no Kafka broker answers at 127.0.0.1:1: ", marks=LONG),
        ("", {"no.such": "hunter2"}, r"\"no\.such\".* those of librdkafka"),
        pytest.param("", LOGIN, "refuses to answer: .*SASL PLAIN", marks=LONG),
    ],
    ids=["no broker", "an unknown property", "a failed login"],
)
def test_the_error_of_a_refused_connection_hides_secrets(
    broker: Broker, servers: str, properties: dict[str, str], message: str
) -> None:
    started, patience = time.monotonic(), "1s" if servers else "60s"
    options: dict[str, Any] = {"end": "latest", "patience": patience, "properties": properties}
    with pytest.raises(SourceError, match=message) as raised:
        run_source(KafkaSource(servers or broker.servers, "t", **options))
    assert time.monotonic() - started < 30
    assert "hunter2" not in str(raised.value)


# --- what a message is ---


def test_a_message_has_key_value_time_and_headers(broker: Broker) -> None:
    topic = broker.topic(settings={"message.timestamp.type": "CreateTime"})
    headers = [("trace", b"\x01"), ("trace", b"\x02"), ("none", None)]
    broker.produce(topic, [{"key": b"k", "value": b"v", "timestamp": 1_234, "headers": headers}])
    broker.produce(topic, [{"value": None}])
    first, other = run_source(source(broker, topic))
    at = datetime(1970, 1, 1, 0, 0, 1, 234_000, tzinfo=UTC)
    assert first == KafkaMessage(b"k", b"v", topic, 0, 0, at, "create", tuple(headers))
    assert (other.key, other.value, other.offset, other.headers) == (None, None, 1, ())


def test_a_message_without_a_key_has_the_key_none(broker: Broker) -> None:
    topic = broker.topic()
    broker.produce(topic, [{"key": "k", "value": "a"}, {"value": "b"}])
    assert [one.key for one in run_source(source(broker, topic, key="text"))] == ["k", None]


# --- offsets that hold no message ---


def test_only_committed_messages_are_read(broker: Broker) -> None:
    topic = broker.topic()
    producer = broker.producer(transactional_id="reading")
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, str(number))
        producer.flush()
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    assert values(source(broker, topic)) == [b"0", b"2", b"4"]
    # The range ends in the middle: at the mark of an abort, which is no message.
    assert values(source(broker, topic, end={topic: {0: 4}})) == [b"0"]
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush()
    started = time.monotonic()
    assert values(source(broker, topic)) == [b"0", b"2", b"4"]
    assert time.monotonic() - started < 5
    uncommitted = source(broker, topic, properties={"isolation.level": "read_uncommitted"})
    assert values(uncommitted) == [b"0", b"1", b"2", b"3", b"4", b"5", b"open"]
    producer.abort_transaction()


# --- messages that are gone ---


def test_deleted_messages_are_an_error_or_a_warning_of_the_planner_and_of_the_worker(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.topic()
    broker.values(topic, [str(n) for n in range(10)])
    fails, warns = source(broker, topic), source(broker, topic, on_data_loss="warn")
    (planned,) = splits_of(fails.planner(MemoryLog(), 1))
    broker.delete_records(topic, 4)
    left = [b"4", b"5", b"6", b"7", b"8", b"9"]
    with pytest.raises(SourceError, match=f"messages 0 to 3 of {topic}/0 were deleted"):
        list(fails.read(planned))
    assert [message.value for batch in warns.read(planned) for message in batch] == left  # type: ignore[union-attr]
    assert len(values(fails)) == 6
    caplog.clear()
    start = {topic: {0: 1}}
    with pytest.raises(SourceError, match=f"messages 1 to 3 of {topic}/0 were deleted"):
        values(source(broker, topic, start=start))
    assert values(source(broker, topic, start=start, on_data_loss="warn")) == left
    assert caplog.messages == [
        f"messages 1 to 3 of {topic}/0 were deleted on the broker before the flow read them; "
        "continuing with what is left"
    ]
    broker.delete_records(topic, 10)
    assert list(warns.read(planned)) == []


@LONG
def test_a_topic_made_anew_after_planning_is_reported_by_the_worker(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has fewer messages than were planned to be read."""
    monkeypatch.setattr(kafka_reading, "DOUBT_SECONDS", 1.0)
    topic = broker.topic()
    broker.values(topic, [str(n) for n in range(10)])
    fails = source(broker, topic, start={topic: {0: 5}})
    warns = source(broker, topic, on_data_loss="warn")
    (planned,) = splits_of(fails.planner(MemoryLog(), 1))
    broker.delete_topic(topic)
    broker.topic(topic)
    broker.values(topic, ["anew"] * 3)
    problem = f"{topic}/0 ends at 3, but messages up to 9 were to be read"
    with pytest.raises(SourceError, match=problem):
        list(fails.read(planned))
    assert list(warns.read(planned)) == []
    assert [message.startswith(problem) for message in caplog.messages] == [True]


# --- connections ---


@LONG
def test_reading_waits_for_a_restarted_broker(broker: Broker) -> None:
    topic = broker.topic()
    broker.values(topic, [b"x" * 10_000] * 8_000)
    slow = {"queued.max.messages.kbytes": 1_024}
    reader = source(broker, topic, properties=slow, patience="60s")
    (planned,) = splits_of(reader.planner(MemoryLog(), 1))
    batches = reader.read(planned)
    first = next(batches)
    broker.kill()
    broker.start()
    rest = [message for batch in batches for message in batch]  # type: ignore[union-attr]
    offsets = [message.offset for message in [*first, *rest]]  # type: ignore[union-attr]
    assert offsets == list(range(8_000))
    assert 0 < len(first) < 8_000  # type: ignore[arg-type]


def test_a_worker_keeps_its_connection_for_the_next_range(broker: Broker) -> None:
    topic = broker.topic()
    broker.values(topic, ["a", "b"])
    kafka_reading._idle.clear()
    reader = source(broker, topic, properties={"client.id": "kept"})
    values(reader)
    ((_, _, kept),) = kafka_reading._idle
    started = time.monotonic()
    assert values(reader) == [b"a", b"b"]
    assert time.monotonic() - started < 2
    assert [one for _, _, one in kafka_reading._idle] == [kept]
