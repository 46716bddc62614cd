"""Epochs that a `KafkaSink` writes: once, as a whole and in order; no Spark is needed."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import admin

from flow import SinkError
from flow.connectors.kafka import KafkaRecord, KafkaSink, KafkaSource, sending, topics
from flow.connectors.kafka.client import Clients
from flow.connectors.kafka.topics import Topic
from flow.connectors.sink import SinkBatch, WriteContext
from flow.testing import run_source
from tests.support.kafka import Broker

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


class Run:
    """One run of a flow, as far as a sink sees it: opened, given epochs, closed."""

    def __init__(self, sink: KafkaSink, run_id: str, *, step_id: str = "out") -> None:
        self.sink = sink
        self.run_id = run_id
        self.step_id = step_id
        sink.open(run_id, resuming=False)

    def write(self, epoch: int, *parts: SinkBatch, rewinds: int = 0) -> None:
        """Write and commit an epoch, a part for each Spark partition."""
        numbers = range(len(parts))
        contexts = (WriteContext(self.step_id, epoch, n, self.run_id, rewinds) for n in numbers)
        made = [
            self.sink.write(context, iter([part]))
            for context, part in zip(contexts, parts, strict=True)
        ]
        self.sink.commit(epoch, made)


@pytest.fixture
def start(broker: Broker) -> Iterator[Callable[..., Run]]:
    """Starts runs, and ends them with the test."""
    runs: list[Run] = []

    def begin(topic: str, run_id: str = "", step_id: str = "out", **options: Any) -> Run:
        sink = KafkaSink(broker.servers, topic, **options)
        runs.append(Run(sink, run_id or uuid.uuid4().hex, step_id=step_id))
        return runs[-1]

    yield begin
    for run in runs:
        run.sink.close()


Start = Callable[..., Run]


def values(broker: Broker, topic: str) -> list[Any]:
    """The committed values, partition by partition."""
    return [json.loads(message.value()) for message in broker.consume(topic)]


def numbers(*found: int) -> list[dict[str, int]]:
    return [{"value": number} for number in found]


def test_key_value_time_and_headers_arrive(broker: Broker, start: Start) -> None:
    topic = broker.topic()
    batch = pa.RecordBatch.from_pydict({"key": ["a", None], "n": [1, 2], "timestamp": [NOON, None]})
    items = [KafkaRecord({"n": 1}, "k", {"a": "x", "b": None}, NOON), ("j", 2)]
    start(topic).write(0, items, [KafkaRecord(3, "l", {"c": "y"})], batch)
    found = [(one.key(), json.loads(one.value()), one.headers()) for one in broker.consume(topic)]
    assert found == [
        (b"k", {"n": 1}, [("a", b"x"), ("b", None)]),
        (b"j", {"value": 2}, None),
        (b"l", 3, [("c", b"y")]),
        (b"a", {"n": 1, "timestamp": "2024-05-01T12:00:00Z"}, None),
        (None, {"n": 2, "timestamp": None}, None),
    ]
    times = [one.timestamp()[1] / 1000 for one in broker.consume(topic)]
    assert [times[0], times[3]] == [NOON.timestamp()] * 2
    assert all(abs(times[n] - time.time()) < 60 for n in (1, 2, 4))


UNKNOWN = {"message.max.bytes": 1_000_000}
"""Settings of a client that does not know the limit of a topic."""
PARTITIONS = {"LHR": 3, "JFK": 1, "a": 0, "a longer key": 3, "é": 3, "k8": 2}
"""The partitions of four that Kafka's Java clients choose for keys."""


def test_items_of_a_key_stay_in_order_in_javas_partition(broker: Broker, start: Start) -> None:
    topic = broker.topic(partitions=4)
    run = start(topic)
    keys = list(PARTITIONS)
    for epoch in range(2):
        items = [(keys[number % 6], epoch * 3_000 + number) for number in range(3_000)]
        run.write(epoch, items[:2_000], items[2_000:])
    found: dict[str, list[int]] = {key: [] for key in keys}
    partitions: dict[str, int] = {}
    for message in broker.consume(topic):
        key = message.key().decode()
        found[key].append(json.loads(message.value())["value"])
        assert partitions.setdefault(key, message.partition()) == message.partition()
    assert found == {key: list(range(n, 6_000, 6)) for n, key in enumerate(keys)}
    assert partitions == PARTITIONS


def test_a_replayed_or_empty_epoch_writes_nothing(broker: Broker, start: Start) -> None:
    """
    first run    0 · 1 ·· killed before Spark knew
    second run         1 · 2 and 3 without items · 4
    """
    topic = broker.topic()
    first = start(topic, "run")
    first.write(0, [1], [2])
    first.write(1, [3])
    first.write(1, [3])
    second = start(topic, "run")
    for epoch, parts in enumerate([[[3]], [], [[]], [[4]]], 1):
        second.write(epoch, *parts)
    assert values(broker, topic) == numbers(1, 2, 3, 4)


class ChangedProducer:
    """A producer with another method in place of one."""

    def __init__(self, producer: Any, **changed: Any) -> None:
        self._producer = producer
        self._changed = changed

    def __getattr__(self, name: str) -> Any:
        return self._changed.get(name) or getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)


def test_an_uncommitted_epoch_number_does_not_count(
    broker: Broker, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    first run    0 · 1, its number sent, too ·· killed before the commit
    second run                                    1 · is written
    """
    topic = broker.topic()
    first = start(topic, "run")
    first.write(0, [0])
    sender = first.sink._run.writers["out"]._sender
    producer = sender.producer

    def die_once_sent(_seconds: float) -> None:
        producer.flush(30)
        raise KeyboardInterrupt

    dying = ChangedProducer(producer, commit_transaction=die_once_sent)
    monkeypatch.setattr(sender, "producer", dying)
    with pytest.raises(KeyboardInterrupt):
        first.write(1, [1])
    start(topic, "run").write(1, [1])
    assert values(broker, topic) == numbers(0, 1)


def test_a_run_whose_output_another_opened_cannot_write(broker: Broker, start: Start) -> None:
    topic = broker.topic()
    zombie = start(topic, "run")
    zombie.write(0, [1])
    start(topic, "run").write(1, [2])
    problem = (
        rf"step 'out': epoch 1 could not be written .*{topic}.* another process has opened the same"
    )
    with pytest.raises(SinkError, match=problem):
        zombie.write(1, [2])
    assert values(broker, topic) == numbers(1, 2)


def test_two_outputs_and_two_runs_share_a_topic(broker: Broker, start: Start) -> None:
    topic = broker.topic()
    one, two = start(topic, "run", "one"), start(topic, "run", "two")
    other = start(topic, "other", "one")
    for run, number in ((one, 1), (two, 2), (other, 3)):
        run.write(0, [number])
        run.write(0, [number])
    for run, number in ((one, 4), (two, 5), (other, 6)):  # nobody has fenced anybody
        run.write(1, [number])
    assert sorted(one["value"] for one in values(broker, topic)) == [1, 2, 3, 4, 5, 6]


def test_an_open_transaction_of_another_hides_no_epochs(broker: Broker, start: Start) -> None:
    """
    other            its number ····························· aborted
    ours   epoch 0 ·············· epoch 1 · opened again, waits · epoch 1 is there
    """
    topic, epochs = broker.topic(), broker.topic(settings={"cleanup.policy": "compact"})
    run = start(topic, "run", epochs_topic=epochs)
    run.write(0, [0])
    other = broker.producer(transactional_id="other", transaction_timeout_ms=60_000)
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(epochs, b"{}", b"other")
    other.flush()
    run.write(1, [1])
    again = start(topic, "run", epochs_topic=epochs)
    abort = threading.Timer(0.4, other.abort_transaction, [10.0])
    began = time.monotonic()
    abort.start()
    again.write(1, [1])
    abort.join()
    assert time.monotonic() - began > 0.3
    assert values(broker, topic) == numbers(0, 1)


def test_a_rewound_run_is_refused_or_writes_again(broker: Broker, start: Start) -> None:
    topic = broker.topic()
    run = start(topic, "run")
    for epoch in range(3):
        run.write(epoch, [epoch])
    with pytest.raises(SinkError, match="up to epoch 2, and it was set back to 1"):
        start(topic, "run").write(1, [1, 2])
    with pytest.raises(SinkError, match="1 records of epoch 2 of this run, which has 2 now"):
        start(topic, "run").write(2, [2, 3])
    with pytest.raises(SinkError, match="up to epoch 2, and it was set back to 2"):
        start(topic, "run").write(2, [3], rewinds=1)
    again = start(topic, "run", after_rewind="write")
    again.write(1, [1, 2])
    again.write(1, [1, 2])
    again.write(2, [3])
    assert values(broker, topic) == numbers(0, 1, 2, 1, 2, 3)


def test_a_missing_topic_is_created_if_configured(broker: Broker, start: Start) -> None:
    topic = f"made-{uuid.uuid4().hex}"
    with pytest.raises(SinkError, match=rf"topic {topic!r} does not exist.*partitions=\.\.\."):
        start(topic)
    assert broker.partitions(topic) == 0
    start(topic, partitions=3).write(0, [1])
    assert broker.partitions(topic) == 3
    assert values(broker, topic) == numbers(1)


def test_a_topic_created_concurrently_is_used(broker: Broker) -> None:
    topic = Topic(Clients(broker.servers, {}), f"made-{uuid.uuid4().hex}")
    topic.make(2)
    topic.make(3)
    assert broker.partitions(topic.name) == 2


def test_a_topic_of_epochs_with_retention_is_refused(broker: Broker, start: Start) -> None:
    epochs = broker.topic()
    with pytest.raises(SinkError, match=f"{epochs!r} has cleanup.policy='delete'"):
        start(broker.topic(), epochs_topic=epochs)


def test_a_lost_topic_of_epochs_is_detected(
    broker: Broker, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(topics, "NEWS_SECONDS", 1.0)
    topic, epochs_topic = broker.topic(), f"epochs-{uuid.uuid4().hex}"
    run = start(topic, "a run", epochs_topic=epochs_topic)
    assert caplog.records == []
    broker.delete_topic(epochs_topic)
    with pytest.raises(SinkError, match=f"topic '{epochs_topic}' does not exist any more"):
        run.write(0, [{"n": 1}])
    assert broker.consume(topic) == []
    run.sink.open("a run", resuming=True)
    (message,) = caplog.messages
    assert message.startswith(f"the topic of epochs '{epochs_topic}' did not exist and was created")
    run.sink.open("a run", resuming=True)
    assert len(caplog.records) == 1


def test_too_few_brokers_for_transactions_are_reported_as_such(
    start: Start, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default asks for three of them, which is a common surprise on one."""
    run = start(broker.topic())
    monkeypatch.setattr(sending, "_connect_to_brokers", lambda *_: None)
    monkeypatch.setattr(sending, "_SECONDS", 0.001)
    with pytest.raises(SinkError, match=r"brokers answer, but none .*transaction\.state\.log"):
        run.write(0, [{"n": 1}])


@pytest.mark.parametrize(
    ("guarantee", "limit"),
    [
        ("exactly once", UNKNOWN),
        pytest.param("exactly once", {}, marks=pytest.mark.extended),
        pytest.param("at least once", {}, marks=pytest.mark.extended),
        pytest.param("at least once", UNKNOWN, marks=pytest.mark.extended),
    ],
)
def test_a_record_that_is_too_large_is_named_and_the_next_run_continues(
    broker: Broker, start: Start, guarantee: str, limit: dict[str, int]
) -> None:
    """The client knows the limit of the topic, or only the brokers refuse the record."""
    topic = broker.topic(settings={"max.message.bytes": "20000"})
    options: dict[str, Any] = {"guarantee": guarantee, "value_format": "text", "properties": limit}
    run = start(topic, "run", **options)
    small = [(f"k{number}", "x" * 900) for number in range(100)]
    run.write(0, small)
    with pytest.raises(SinkError) as caught:
        run.write(1, [("big", "x" * 50_000)])
    assert "step 'out': epoch 1 could not be written" in str(caught.value)
    assert "a record is too large (key b'big', 50003 bytes)" in str(caught.value)
    assert "max.message.bytes" in str(caught.value)
    assert len(broker.consume(topic)) == 100
    start(topic, "run", **options).write(1, small)
    assert len(broker.consume(topic)) == 200


def test_large_records_are_written_if_the_topic_takes_them(broker: Broker, start: Start) -> None:
    topic = broker.topic(settings={"max.message.bytes": "5000000"})
    start(topic, value_format="text").write(0, ["x" * 3_000_000, "y"])
    assert [len(one.value()) for one in broker.consume(topic)] == [3_000_000, 1]


@pytest.mark.extended
def test_a_deleted_topic_is_an_error(broker: Broker, start: Start) -> None:
    topic = broker.topic()
    run = start(topic, properties={"transaction.timeout.ms": 4000})
    run.write(0, [1])
    broker.delete_topic(topic)
    problem = (
        rf"step 'out': epoch 1 could not be written \(topic '{topic}'\).* does not exist any more"
    )
    with pytest.raises(SinkError, match=problem):
        run.write(1, [2])


@pytest.mark.extended
def test_a_restarted_broker_has_the_epoch_once(
    broker: Broker, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    epoch 1   sent ─── killed ─── started ─── flushed, committed
    """
    topic = broker.topic()
    run = start(topic, "run")
    run.write(0, [1])
    sender = run.sink._run.writers["out"]._sender
    flush = sender.flush

    def interrupted(seconds: float) -> None:
        broker.kill()
        broker.start()
        flush(seconds)

    monkeypatch.setattr(sender, "flush", interrupted)
    run.write(1, [2])
    start(topic, "run").write(1, [2])
    assert values(broker, topic) == numbers(1, 2)


def test_brokers_that_cannot_be_reached_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flow.connectors.kafka.topics._QUERY_SECONDS", 0.5)
    problem = (
        "topic 't' cannot be opened: the brokers at '127.0.0.1:1' cannot be.*Connection refused"
    )
    with pytest.raises(SinkError, match=f"(?s){problem}"):
        KafkaSink("127.0.0.1:1", "t").open("run", resuming=False)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"no.such": 1}, "no.such"),
        ({"compression.type": "tar"}, "tar"),
        ({"sasl.jaas.config": "x"}, "JAAS"),
    ],
)
def test_an_unknown_client_property_is_named(
    broker: Broker, start: Start, properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(SinkError, match=message):
        start(broker.topic(), properties=properties)


def test_no_error_shows_a_secret(broker: Broker, start: Start) -> None:
    secret = {"security.protocol": "ssl", "ssl.ca.location": "/s3cr3t/s3cr3t"}
    with pytest.raises(SinkError) as caught:
        start(broker.topic(), properties=secret)
    assert "cannot be opened" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    with pytest.raises(SinkError, match=r'Invalid value "\*\*\*"'):
        start(broker.topic(), properties={"compression.codec": "s3cr3t"})


def test_at_least_once_writes_a_replayed_epoch_again(broker: Broker, start: Start) -> None:
    topic = broker.topic()
    run = start(topic, guarantee="at least once")
    run.write(0, [1], [2])
    run.write(0, [1], [2])
    assert values(broker, topic) == numbers(1, 2, 1, 2)


def test_at_least_once_reports_messages_not_written_in_time(
    broker: Broker, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic()
    run = start(topic, guarantee="at least once")
    run.write(0, [1])
    (sender,) = [one for one in sending._idle_senders.values() if one._topic == topic]
    stuck = ChangedProducer(sender.producer, flush=lambda _seconds: 1)
    monkeypatch.setattr(sender, "producer", stuck)
    with pytest.raises(SinkError, match=r"epoch 1 could not be written.* cannot be reached"):
        run.write(1, [2])
    run.write(1, [2])
    assert values(broker, topic)[-1:] == numbers(2)


def test_a_transaction_timeout_is_reported_and_the_next_run_continues(
    broker: Broker, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic()
    run = start(topic, "run", properties={"transaction.timeout.ms": 1000})
    run.write(0, [1])
    sender = run.sink._run.writers["out"]._sender
    send = sender.send

    def slow(batch: pa.RecordBatch) -> None:
        send(batch)
        time.sleep(2)

    monkeypatch.setattr(sender, "send", slow)
    with pytest.raises(SinkError, match=r"it took longer than transaction\.timeout\.ms=1000"):
        run.write(1, [2])
    start(topic, "run").write(1, [2])
    assert values(broker, topic) == numbers(1, 2)


def test_no_right_on_a_consumer_group_is_needed(broker: Broker, start: Start) -> None:
    client = admin.AdminClient({"bootstrap.servers": broker.servers})
    what = admin.AclOperation.ALL, admin.AclPermissionType.ALLOW
    for group in ("flow", "flow-epochs"):  # of which another user alone has the right
        of_group = admin.ResourceType.GROUP, group, admin.ResourcePatternType.LITERAL
        (done,) = client.create_acls(
            [admin.AclBinding(*of_group, "User:else", "*", *what)]
        ).values()
        done.result()
    topic = broker.topic()
    for epoch in (0, 0, 1):
        start(topic, "a run", value_format="text").write(epoch, [f"{epoch}"])
    source = KafkaSource(broker.servers, topic, value="text", end="latest", patience="20s")
    assert [message.value for message in run_source(source)] == ["0", "1"]
