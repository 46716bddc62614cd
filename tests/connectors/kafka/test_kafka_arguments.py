"""Arguments of `KafkaSource`: accepted, refused and kept secret; no broker is needed."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.connectors.kafka import KafkaMessage, KafkaSource
from flow.connectors.kafka.client import LastProblem, Properties
from flow.errors import FlowBuildError, FlowTypeError
from flow.testing import TestDriver, TestingSink

PRICES = {"price": pa.float64()}
PRICE_AVRO = {"type": "record", "name": "R", "fields": [{"name": "price", "type": "double"}]}
UNION = {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["int", "string"]}]}


def source(**arguments: Any) -> KafkaSource:
    return KafkaSource("localhost:9092", **{"topics": "orders", **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topics": None}, "either topics or a pattern"),
        ({"pattern": "o.*"}, "either topics or a pattern"),
        ({"topics": []}, "topics must be the name of a topic or a list"),
        ({"topics": ["a", 1]}, "topics must be the name of a topic or a list"),
        ({"topics": ["a", "a"]}, "a name twice"),
        ({"topics": None, "pattern": "("}, r"pattern '\(' is not a regular expression"),
        ({"topics": None, "pattern": 3}, "pattern must be the text of a regular expression, got"),
        ({"start": "first"}, "start must be 'earliest', 'latest', an aware datetime"),
        ({"end": "earliest"}, "end must be 'latest'"),
        ({"start": datetime(2026, 1, 1)}, "start: .* is a naive datetime"),  # noqa: DTZ001
        ({"start": 17}, "start must be text, an aware datetime or offsets, got int 17"),
        ({"start": {"orders": 17}}, "offsets of a topic must map partitions to offsets"),
        ({"start": {"orders": {0: -1}}}, "both 0 or more"),
        ({"start": {"oders": {0: 1}}}, "start has offsets of topic 'oders', which it does not"),
        ({"end": {"oders": {0: 1}}}, "end has offsets of topic 'oders', which it does not read"),
        ({"topics": None, "pattern": "o.*s", "end": {"order": {0: 1}}}, "of topic 'order', which"),
        ({"value": "xml"}, "value must be 'bytes', 'text', 'json' or 'avro', got 'xml'"),
        ({"schema": PRICES}, "schema is for value='json' or value='avro', got value='bytes'"),
        ({"key_schema": PRICES}, "key_schema is for key='json' or key='avro'"),
        ({"value": "avro"}, "value='avro' needs schema"),
        ({"value": "json", "items": "records"}, "value='json' needs schema"),
        ({"value": "json", "schema": PRICES, "items": "messages"}, "leave it out for messages"),
        ({"value": "json", "items": "rows"}, "items must be 'messages' or 'records'"),
        ({"value": "json", "schema": {"x": pa.month_day_nano_interval()}}, "cannot be read from"),
        ({"value": "avro", "schema": "{"}, "not an Avro schema"),
        ({"value": "avro", "schema": {"type": "what"}}, "not an Avro schema"),
        ({"value": "avro", "schema": UNION}, "a union of several types"),
        ({"on_invalid": "skip"}, "on_invalid must be 'fail', 'drop' or"),
        ({"on_data_loss": "ignore"}, "on_data_loss must be 'fail' or 'warn'"),
        ({"max_records_per_epoch": 0}, "_per_epoch must be a whole number of at least 1, got 0"),
        ({"patience": "0s"}, "patience must be positive"),
        ({"discover_every": "0s"}, "discover_every must be positive"),
        ({"prefix": 1}, "prefix must be text"),
        ({"properties": {"group.id": None}}, "'group.id' must be text, a number, True or"),
        ({"properties": {"auto.offset.reset": "latest"}}, "the arguments start and on_data_loss"),
        ({"properties": {"bootstrap.servers": "x"}}, "use the argument servers"),
    ],
)
def test_invalid_arguments_of_sources_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(FlowBuildError, match=message):
        source(**arguments)


def test_servers_are_addresses_separated_by_commas() -> None:
    assert KafkaSource(" one:9092, two:9092 ", "orders").servers == "one:9092,two:9092"
    with pytest.raises(FlowBuildError, match="addresses separated by commas"):
        KafkaSource("one:9092,", "orders")
    with pytest.raises(FlowTypeError, match="servers must be text"):
        KafkaSource(9092, "orders")  # type: ignore[arg-type]


def test_a_source_is_bounded_if_an_end_is_given() -> None:
    assert source().bounded is False
    assert source(end="latest").bounded is True
    assert source(end=datetime(2026, 1, 1, tzinfo=UTC)).bounded is True
    assert source(end={"orders": {0: 5}}).bounded is True


# --- the columns of records ---


def test_records_have_the_fields_of_the_value_and_the_metadata() -> None:
    beside = ["key", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers"]
    assert source(value="json", schema=PRICES).names == ["price", *beside]
    assert source(value="avro", schema=PRICE_AVRO).names == ["price", *beside]
    assert source(value="text", items="records").names == ["value", *beside]
    assert source(value="text").names == []


def test_a_field_of_the_value_cannot_take_the_name_of_another_column() -> None:
    schema = {"timestamp": pa.string(), "key": pa.int64(), "price": pa.float64()}
    with pytest.raises(FlowBuildError, match=r"has 'key', 'timestamp'.*prefix='kafka_'"):
        source(value="json", schema=schema)
    names = source(value="json", schema=schema, prefix="kafka_").names
    assert names[:5] == ["timestamp", "key", "price", "kafka_key", "kafka_topic"]


# --- secrets ---

SECRETS = {
    "security.protocol": "SASL_SSL",
    "sasl.username": "ann",
    "sasl.password": "hunter2",
    "ssl.key.pem": "-----BEGIN",
    "fetch.min.bytes": 5,
}


def test_no_secret_is_shown() -> None:
    shown = repr(source(properties=SECRETS))
    assert "'security.protocol': 'SASL_SSL'" in shown
    assert "'fetch.min.bytes': 5" in shown
    for secret in ("ann", "hunter2", "BEGIN"):
        assert secret not in shown
    with pytest.raises(FlowTypeError) as refused:
        source(properties="sasl.password=hunter2")
    assert "hunter2" not in str(refused.value)


def test_messages_of_the_client_are_shown_without_secrets() -> None:
    properties = Properties(SECRETS)
    assert properties.mask("no login of ann with hunter2") == "no login of *** with ***"
    problem = LastProblem(properties)
    assert str(problem) == ""


def test_a_pickled_source_keeps_its_properties() -> None:
    made = source(properties=SECRETS, value="avro", schema=PRICE_AVRO)
    copy = pickle.loads(pickle.dumps(made))
    assert copy == made
    assert dict(copy.properties) == SECRETS
    assert copy.names == made.names


# --- in a test without Spark ---


def test_a_test_sends_messages_and_a_clock_takes_their_time() -> None:
    flow = Dataflow("orders")
    orders = op.input("orders", flow, source(key="text", value="json"))
    keyed = op.key_on("by_user", orders, "key")
    clock = win.EventClock("timestamp", "0s")
    hourly = win.aggregate_window(
        "hourly", keyed, clock, win.TumblingWindower("1h"), total=win.Sum("value.price")
    )
    op.output("out", op.map("totals", hourly.down, lambda kv: kv[1][1]), TestingSink([]))

    def at(hour: int, price: float) -> KafkaMessage:
        time = datetime(2026, 1, 1, hour, tzinfo=UTC)
        return KafkaMessage("ann", {"price": price}, "orders", timestamp=time)

    with TestDriver(flow) as test:
        test.send("orders", [at(10, 1.5), at(10, 2.0), at(11, 7.0)])
        test.end()
        assert test.received("out") == [{"total": 3.5}, {"total": 7.0}]
