"""Reading from a real broker without Spark: start, end, bad messages and lost messages."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from flow.connectors.kafka import BadMessage, KafkaMessage, KafkaSource
from flow.connectors.kafka.reading import ranges as kafka_reading
from flow.connectors.source import Invalid, MemoryLog
from flow.errors import SourceError
from flow.testing import run_source
from tests.support.kafka import Broker, own_broker
from tests.support.planning import splits_of


def source(broker: Broker, topics: Any, **arguments: Any) -> KafkaSource:
    return KafkaSource(broker.servers, topics, **{"end": "latest", "patience": "20s", **arguments})


def values(source: KafkaSource) -> list[Any]:
    return [message.value for message in run_source(source)]


def with_bad(source: KafkaSource) -> tuple[list[Any], list[BadMessage]]:
    """Return the items and the bad messages of a source that is read once."""
    good: list[Any] = []
    bad: list[Any] = []
    for read in splits_of(source.planner(MemoryLog(), 1)):
        for batch in source.read(read):
            if isinstance(batch, Invalid):
                bad += batch.inputs
            else:
                good += batch if isinstance(batch, list) else batch.to_pylist()
    return good, bad


# --- where it starts and ends ---


def stamped(value: str, millis: int, partition: int = 0) -> dict[str, Any]:
    return {"value": value, "timestamp": millis, "partition": partition}


#  partition 0:  a@1000  b@2000  c@3000
#  partition 1:  d@1500
@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    name = broker.topic(partitions=2)
    first = [stamped("a", 1_000), stamped("b", 2_000), stamped("c", 3_000)]
    broker.produce(name, [*first, stamped("d", 1_500, 1)])
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


def test_a_missing_topic_is_an_error_that_names_it(broker: Broker) -> None:
    with pytest.raises(SourceError, match="there is no topic 'nowhere' on the broker"):
        values(source(broker, "nowhere"))
    assert broker.partitions("nowhere") == 0


def test_the_error_of_unreachable_brokers_hides_secrets() -> None:
    properties = {"security.protocol": "PLAINTEXT", "sasl.password": "hunter2"}
    nowhere = KafkaSource("127.0.0.1:1", "t", end="latest", patience="1s", properties=properties)
    with pytest.raises(SourceError, match=r"no Kafka broker answers at 127.0.0.1:1: ") as raised:
        run_source(nowhere)
    assert "hunter2" not in str(raised.value)


def test_an_unknown_client_property_is_named(broker: Broker) -> None:
    with pytest.raises(SourceError, match=r"\"no\.such\".* those of librdkafka"):
        run_source(source(broker, "t", properties={"no.such": "hunter2"}))


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


def test_the_time_can_be_the_brokers(broker: Broker) -> None:
    topic = broker.topic(settings={"message.timestamp.type": "LogAppendTime"})
    before = datetime.now(UTC).replace(microsecond=0)
    broker.produce(topic, [{"value": b"v", "timestamp": 1_234}])
    (message,) = run_source(source(broker, topic))
    assert message.timestamp_type == "append"
    assert before <= message.timestamp <= datetime.now(UTC)


SCHEMA = {"id": pa.int64(), "name": pa.string()}
AVRO = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}


def avro(value: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), value)
    return stream.getvalue()


def test_json_avro_and_text_are_read_to_columns_as_python_reads_them(broker: Broker) -> None:
    topics = [broker.topic() for _ in range(3)]
    made = [{"id": n, "name": None if n % 7 == 0 else f"n{n}"} for n in range(500)]
    writers: list[Any] = [json.dumps, avro, str]
    for topic, write in zip(topics, writers, strict=True):
        broker.produce(topic, ({"value": write(one), "key": str(one["id"])} for one in made))
    how: list[dict[str, Any]] = [
        {"value": "json", "schema": SCHEMA},
        {"value": "avro", "schema": AVRO},
        {"value": "text", "items": "records"},
    ]
    for topic, arguments, texts in zip(topics, how, (False, False, True), strict=True):
        found = run_source(source(broker, topic, key="text", **arguments))
        read = [one["value"] if texts else {n: one[n] for n in SCHEMA} for one in found]
        assert read == ([str(one) for one in made] if texts else made)
        beside = [(one["key"], one["offset"], one["topic"]) for one in found]
        assert beside == [(str(n), n, topic) for n in range(500)]


# --- bad messages ---


@pytest.fixture(scope="module")
def poisoned(broker: Broker) -> str:
    """A topic in which every other message is bad, each for a different reason."""
    topic = broker.topic()
    good = json.dumps({"id": 1, "name": "a"})
    broker.produce(
        topic,
        [
            {"key": "k", "value": good},
            {"key": "k", "value": "{"},
            {"key": "k", "value": good},
            {"key": b"\xff", "value": good},
            {"key": "k", "value": good},
            {"value": good},
            {"key": "k", "value": good},
            {"key": "k", "value": None},
        ],
    )
    return topic


def json_source(broker: Broker, topic: str, **arguments: Any) -> KafkaSource:
    options = {"key": "text", "value": "json", "schema": SCHEMA, "null_key": "invalid"}
    return source(broker, topic, **{**options, **arguments})


def test_bad_messages_are_reported_with_place_and_content(broker: Broker, poisoned: str) -> None:
    good, bad = with_bad(json_source(broker, poisoned, on_invalid="errors"))
    assert [one["offset"] for one in good] == [0, 2, 4, 6]
    at = f"topic '{poisoned}', partition 0, offset "
    assert [(one.where, one.reason) for one in bad] == [
        (f"{at}1", bad[0].reason),
        (f"{at}3", "its key: not UTF-8 text, at byte 1"),
        (f"{at}5", "it has no key"),
        (f"{at}7", "its value: there is nothing (a tombstone)"),
    ]
    assert bad[0].reason.startswith("its value: not JSON: ")
    assert [(one.message.key, one.message.value) for one in bad][:2] == [
        (b"k", b"{"),
        (b"\xff", b'{"id": 1, "name": "a"}'),
    ]


def test_a_message_without_a_key_is_good_by_default(broker: Broker, poisoned: str) -> None:
    good, _ = with_bad(json_source(broker, poisoned, null_key="keep", on_invalid="drop"))
    assert [(one["offset"], one["key"]) for one in good][3] == (5, None)


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


def test_a_partition_with_only_a_marker_left_is_behind_until_the_marker_is_read(
    broker: Broker,
) -> None:
    topic = broker.topic(partitions=2)
    producer = broker.producer(transactional_id="marker")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.commit_transaction()
    one_by_one = source(broker, topic, end=None, max_records_per_epoch=1)
    planner = one_by_one.planner(MemoryLog(), 1)
    offset: Any = None
    epochs: list[Any] = []
    for now_us in range(1, 5):
        planned = planner.next(offset)
        if planned is None:
            epochs.append((None, planner.read_until_us(now_us, False)))
            continue
        offset = planned.end
        read = [
            message.value
            for split in planned.splits
            for batch in one_by_one.read(split)
            for message in batch
        ]
        until = planner.read_until_us(now_us, bool(planned.behind))
        epochs.append((read, planned.behind, until))
    assert epochs == [([b"a"], [0], None), ([], [], 2), (None, 3), (None, 4)]


# --- messages that are gone ---


@pytest.fixture
def shortened(broker: Broker) -> str:
    topic = broker.topic()
    broker.values(topic, [str(n) for n in range(10)])
    broker.delete_records(topic, 4)
    return topic


def test_lost_messages_are_an_error_by_default(broker: Broker, shortened: str) -> None:
    assert len(values(source(broker, shortened))) == 6
    with pytest.raises(SourceError, match=f"messages 1 to 3 of {shortened}/0 were deleted"):
        values(source(broker, shortened, start={shortened: {0: 1}}))


def test_lost_messages_are_a_warning_if_configured(
    broker: Broker, shortened: str, caplog: pytest.LogCaptureFixture
) -> None:
    start = {shortened: {0: 1}}
    found = values(source(broker, shortened, start=start, on_data_loss="warn"))
    assert found == [b"4", b"5", b"6", b"7", b"8", b"9"]
    assert [record.getMessage() for record in caplog.records] == [
        f"messages 1 to 3 of {shortened}/0 were deleted on the broker before the flow read them; "
        "going on with what is left"
    ]


def test_messages_deleted_after_planning_are_reported_by_the_worker(broker: Broker) -> None:
    topic = broker.topic()
    broker.values(topic, [str(n) for n in range(10)])
    fails = source(broker, topic)
    warns = source(broker, topic, on_data_loss="warn")
    (planned,) = splits_of(fails.planner(MemoryLog(), 1))
    broker.delete_records(topic, 4)
    with pytest.raises(SourceError, match=f"messages 0 to 3 of {topic}/0 were deleted"):
        list(fails.read(planned))
    left = [message.value for batch in warns.read(planned) for message in batch]  # type: ignore[union-attr]
    assert left == [b"4", b"5", b"6", b"7", b"8", b"9"]
    broker.delete_records(topic, 10)
    assert list(warns.read(planned)) == []


@pytest.mark.parametrize("messages_anew", [None, 3])
def test_a_topic_deleted_after_planning_is_reported_by_the_worker(
    broker: Broker,
    messages_anew: int | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is deleted, or made anew with fewer messages than were planned to be read."""
    monkeypatch.setattr(kafka_reading, "DOUBT_SECONDS", 1.0)
    topic = broker.topic()
    broker.values(topic, [str(n) for n in range(10)])
    fails = source(broker, topic, start={topic: {0: 5}})
    warns = source(broker, topic, on_data_loss="warn")
    (planned,) = splits_of(fails.planner(MemoryLog(), 1))
    broker.delete_topic(topic)
    problem = f"{topic}/0 is not on the broker any more"
    if messages_anew is not None:
        broker.topic(topic)
        broker.values(topic, ["anew"] * messages_anew)
        problem = f"{topic}/0 ends at {messages_anew}, but messages up to 9 were to be read"
    with pytest.raises(SourceError, match=problem):
        list(fails.read(planned))
    assert list(warns.read(planned)) == []
    assert [record.getMessage().startswith(problem) for record in caplog.records] == [True]


# --- brokers that go away ---


@pytest.fixture
def lone_broker() -> Iterator[Broker]:
    broker = own_broker()
    yield broker
    broker.remove()


def test_reading_waits_for_a_restarted_broker(lone_broker: Broker) -> None:
    topic = lone_broker.topic()
    lone_broker.values(topic, [b"x" * 10_000] * 8_000)
    slow = {"queued.max.messages.kbytes": 1_024}
    reader = source(lone_broker, topic, properties=slow, patience="60s")
    (planned,) = splits_of(reader.planner(MemoryLog(), 1))
    batches = reader.read(planned)
    first = next(batches)
    lone_broker.kill()
    lone_broker.start()
    rest = [message for batch in batches for message in batch]  # type: ignore[union-attr]
    offsets = [message.offset for message in [*first, *rest]]  # type: ignore[union-attr]
    assert offsets == list(range(8_000))
    assert 0 < len(first) < 8_000  # type: ignore[arg-type]


def test_reading_fails_after_its_patience(lone_broker: Broker) -> None:
    topic = lone_broker.topic()
    lone_broker.values(topic, [b"x"])
    reader = source(lone_broker, topic, patience="2s")
    (planned,) = splits_of(reader.planner(MemoryLog(), 1))
    lone_broker.kill()
    with pytest.raises(SourceError, match=f"no message of {topic}/0 arrived for 2 s") as raised:
        list(reader.read(planned))
    assert "of those from 0 to 0" in str(raised.value)


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


def test_a_failed_login_is_reported_without_the_password(broker: Broker) -> None:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "hunter2",
    }
    started = time.monotonic()
    with pytest.raises(SourceError, match=r"refuses to answer: .*SASL PLAIN") as raised:
        run_source(source(broker, "t", properties=properties, patience="60s"))
    assert time.monotonic() - started < 30
    assert "hunter2" not in str(raised.value)
