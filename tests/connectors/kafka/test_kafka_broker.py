"""The broker that the other tests of Kafka use."""

from __future__ import annotations

from tests.support.kafka import Broker


def test_written_messages_are_read_in_order(broker: Broker) -> None:
    topic = broker.topic(partitions=2)
    broker.values(topic, ["a", "b"])
    broker.produce(topic, [{"value": "c", "key": "k", "partition": 1, "headers": [("h", b"1")]}])
    found = [(one.partition(), one.offset(), one.value()) for one in broker.consume(topic)]
    assert found == [(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c")]


def test_an_open_transaction_is_not_read(broker: Broker) -> None:
    topic = broker.topic()
    producer = broker.producer(transactional_id="open")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"a")
    producer.flush()
    assert broker.consume(topic) == []
    producer.commit_transaction()
    assert [one.value() for one in broker.consume(topic)] == [b"a"]


def test_a_restarted_broker_keeps_its_messages(broker: Broker) -> None:
    topic = broker.topic()
    broker.values(topic, ["a"])
    broker.kill()
    broker.start()
    assert [one.value() for one in broker.consume(topic)] == [b"a"]
