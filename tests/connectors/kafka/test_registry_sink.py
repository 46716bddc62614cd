"""Values that a `KafkaSink` writes with the schemas of a registry, read by Confluent's library."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka.schema_registry", reason="no client of a schema registry")

from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

import flow.operators as op
from flow import Dataflow, SinkError, StepError
from flow.connectors.kafka import KafkaRecord, KafkaSink, KafkaSource, Registry
from flow.connectors.kafka import registry as registry_module
from flow.connectors.kafka.registry import client_of
from flow.connectors.sink import SinkBatch, WriteContext
from flow.connectors.source import MemoryLog
from flow.engine.plan.compiler import compile_flow
from flow.errors import FlowBuildError, SourceError
from flow.operators.dead_letters import dead_letter
from flow.preflight import preflight
from flow.testing import TestingSource, run_source
from flow_windowing import WindowMetadata
from tests.connectors.kafka.test_registry_formats import (
    BY_TOPIC,
    PROTOBUF,
    SUBJECT,
    TOPIC,
    V1,
    V2,
    client,
    proto,
    reader_of,
)
from tests.support.kafka import Broker
from tests.support.schema_registry import (
    PASSWORD,
    USER,
    SchemaRegistry,
    running_apicurio,
    running_registry,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as made:
        yield made


def sink_of(registry: SchemaRegistry, **arguments: Any) -> KafkaSink:
    value = Registry(registry.url, **arguments)
    return KafkaSink("nowhere:1", "orders", value_format=value)


def values(sink: KafkaSink, written: SinkBatch) -> list[bytes | None]:
    chunks = sink.write(WriteContext("out", 0, 0, "run"), iter([written]))
    return [row["value"] for chunk in chunks for row in chunk.batch().to_pylist()]


ROWS: list[dict[str, Any]] = [
    {
        "key": "k",
        "count": 3,
        "price": 1.5,
        "at": NOON,
        "day": date(2026, 1, 1),
        "hour": time(12, 30),
        "local": NOON.replace(tzinfo=None),
        "amount": Decimal("12.50"),
        "raw": b"x",
        "ok": True,
        "tags": ["a", None],
        "place": {"city": "Bonn", "at": {"x": 1}},
    },
    {"key": "l", "count": 4},
]


@pytest.mark.parametrize("is_columns", [True, False], ids=["columns", "items"])
def test_confluents_avro_deserializer_reads_what_is_written(
    registry: SchemaRegistry, is_columns: bool
) -> None:
    batch = pa.Table.from_pylist(ROWS).to_batches()[0]
    written: Any = batch if is_columns else [*ROWS, KafkaRecord(None, "gone")]
    found = values(sink_of(registry), written)
    deserialize = AvroDeserializer(client(registry), conf=BY_TOPIC)
    names = [name for name in ROWS[0] if name != "key"]
    expected = [{name: row.get(name) for name in names} for row in ROWS]
    assert [one and deserialize(one, TOPIC) for one in found] == [
        *expected,
        *([] if is_columns else [None]),
    ]
    assert len(registry.schemas(SUBJECT)) == 1
    assert found[0] is not None
    assert found[0][:5] == b"\0\0\0\0\1"


def test_maps_and_a_column_as_the_value_are_written(registry: SchemaRegistry) -> None:
    kind = pa.struct([("counts", pa.map_(pa.string(), pa.int64())), ("at", pa.date32())])
    value = {"counts": {"a": 1}, "at": date(2026, 1, 1)}
    column = pa.array([{**value, "counts": [("a", 1)]}, None], kind)
    batch = pa.RecordBatch.from_struct_array(column.slice(0, 1))
    (whole,) = values(sink_of(registry), batch)
    sink = KafkaSink("nowhere:1", "orders", value="v", value_format=Registry(registry.url))
    part, tombstone = values(sink, pa.RecordBatch.from_pydict({"v": column, "other": [1, 2]}))
    deserialize = AvroDeserializer(client(registry), conf=BY_TOPIC)
    assert [deserialize(one, TOPIC) for one in (whole, part)] == [value, value]
    assert tombstone is None
    assert len(registry.schemas(SUBJECT)) == 1


def test_maps_are_objects_in_json_as_their_schema_says(registry: SchemaRegistry) -> None:
    column = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    (found,) = values(sink_of(registry, format="json"), pa.RecordBatch.from_pydict({"n": column}))
    (schema,) = registry.schemas(SUBJECT)
    deserialize = JSONDeserializer(schema, schema_registry_client=client(registry), conf=BY_TOPIC)
    assert deserialize(found, TOPIC) == {"n": {"a": 1}}


def test_a_result_of_a_window_is_written(registry: SchemaRegistry) -> None:
    window = WindowMetadata(3, NOON, NOON + timedelta(hours=1))
    (found,) = values(sink_of(registry), [("LHR", (window, {"flights": 2}))])
    value = AvroDeserializer(client(registry), conf=BY_TOPIC)(found, TOPIC)
    assert (value["window_id"], value["flights"], "key" in value) == (3, 2, False)


@pytest.mark.parametrize("is_columns", [True, False], ids=["columns", "items"])
def test_confluents_json_deserializer_reads_what_is_written(
    registry: SchemaRegistry, is_columns: bool
) -> None:
    rows: list[dict[str, Any]] = [
        {"user": "ann", "count": 3, "price": 1.5, "ok": True, "tags": ["a"], "place": {"x": 1}},
        {"user": None, "count": None, "price": None, "ok": None, "tags": None, "place": None},
    ]
    written: Any = pa.RecordBatch.from_pylist(rows) if is_columns else rows
    found = values(sink_of(registry, format="json"), written)
    (schema,) = registry.schemas(SUBJECT)
    deserialize = JSONDeserializer(schema, schema_registry_client=client(registry), conf=BY_TOPIC)
    assert [deserialize(one, TOPIC) for one in found] == rows


def test_confluents_protobuf_deserializer_reads_what_is_written(registry: SchemaRegistry) -> None:
    made = proto()
    rows = [{"user": "ann", "count": 2, "at": NOON, "lines": [{"item": "a"}]}, {"user": None}]
    for message, position in ((made.order, b"\0"), (made.line, b"\4\0\0"), (made.other, b"\2\2")):
        sink = sink_of(registry, format="protobuf", schema=message)
        written = rows if message is made.order else [{}]
        found = [one or b"" for one in values(sink, written)]
        assert found[0][5:].startswith(position)
        deserialize = ProtobufDeserializer(message, PROTOBUF)
        assert [deserialize(one, TOPIC) for one in found] == [message(**row) for row in written]
    assert len(registry.schemas(SUBJECT)) == 1


GIVEN = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "n", "type": "long"}, {"name": "note", "type": "string", "default": ""}],
}


def test_a_given_schema_is_written_with(registry: SchemaRegistry) -> None:
    found = values(sink_of(registry, schema=GIVEN), [{"n": 1}, KafkaRecord(b"as it is"), {"n": 2}])
    assert found == [b"\0\0\0\0\1\2\0", b"as it is", b"\0\0\0\0\1\4\0"]
    assert json.loads(registry.schemas(SUBJECT)[0]) == GIVEN
    with pytest.raises(StepError, match="the value cannot be written as Avro"):
        values(sink_of(registry, schema=GIVEN), [{"n": "x"}])
    with pytest.raises(StepError, match=r'written as Protobuf: .* "nothing"'):
        values(sink_of(registry, format="protobuf", schema=proto().order), [{"nothing": 1}])


@pytest.mark.parametrize("format", ["avro", "json"])
def test_a_column_of_nulls_alone_is_left_out(registry: SchemaRegistry, format: Any) -> None:
    sink = sink_of(registry, format=format)
    for note, names in ((None, ["n"]), ("x", ["n", "note"])):
        values(sink, pa.RecordBatch.from_pydict({"n": [1], "note": [note]}))
        schema = json.loads(registry.schemas(SUBJECT)[-1])
        fields = schema.get("properties") or [one["name"] for one in schema["fields"]]
        assert list(fields) == names


def test_a_schema_that_must_be_registered_is_not_registered(registry: SchemaRegistry) -> None:
    sink = sink_of(registry, schema=GIVEN, auto_register=False)
    with pytest.raises(SinkError, match=r"subject 'orders-value' .* does not have .*: register it"):
        values(sink, [{"n": 1}])
    assert registry.schemas(SUBJECT) == []
    registry.register(SUBJECT, GIVEN)
    assert values(sink, [{"n": 1}]) == [b"\0\0\0\0\1\2\0"]


def test_no_value_has_the_id_of_a_schema_that_was_not_registered(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_of(registry, schema=GIVEN)
    client = client_of(sink.value_format, SinkError)  # type: ignore[arg-type]
    monkeypatch.setattr(client, "_ask", lambda _: None)
    with pytest.raises(SinkError, match="did not register a schema of 'orders-value'"):
        values(sink, [{"n": 1}])


def test_columns_that_the_subject_does_not_take_are_an_error(registry: SchemaRegistry) -> None:
    registry.refuses = True
    with pytest.raises(SinkError, match=r"incompatible \(409\): the schema does not fit the ear"):
        values(sink_of(registry), [{"n": 1}])


@pytest.mark.parametrize(
    ("arguments", "items", "message"),
    [
        ({}, [{"d": timedelta(1)}], r"step 'out': Value_d is duration\[us\], for which Avro has"),
        ({}, [{"a-b": 1}], "step 'out': 'a-b' is no name in Avro: rename the field"),
        ({}, [KafkaRecord(3)], "the value cannot be written as Avro: it must be a record"),
    ],
)
def test_a_value_without_a_schema_is_an_error_of_the_step(
    registry: SchemaRegistry, arguments: Any, items: list[Any], message: str
) -> None:
    with pytest.raises((SinkError, StepError), match=message):
        values(sink_of(registry, **arguments), items)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "protobuf"}, "schema must be the class of a Protobuf message, got None"),
        ({"schema": "{"}, "not an Avro schema"),
    ],
)
def test_a_schema_that_is_not_valid_is_an_error(
    registry: SchemaRegistry, arguments: Any, message: str
) -> None:
    with pytest.raises(FlowBuildError, match=message):
        sink_of(registry, **arguments)


def test_a_registry_as_the_value_of_a_sink_is_an_error_that_names_the_format() -> None:
    value: Any = Registry("http://registry")
    with pytest.raises(FlowBuildError, match="value is a Registry: pass it as value_format"):
        KafkaSink("nowhere:1", "orders", value=value)


def test_a_sink_waits_for_a_registry_that_is_down(
    registry: SchemaRegistry, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.stop()
    monkeypatch.setattr(registry_module.time, "sleep", lambda _: registry.start())
    with caplog.at_level(logging.WARNING):
        assert len(values(sink_of(registry), [{"n": 1}])) == 1
    assert [record.getMessage().rpartition(" ")[2] for record in caplog.records] == ["it", "again"]


def test_a_wrong_password_is_an_error_before_spark_starts(registry: SchemaRegistry) -> None:
    registry.needs_login = True
    flow = Dataflow("orders")
    sink = sink_of(registry, auth=(USER, "wr0ng"))
    op.output("out", op.input("in", flow, TestingSource([{"n": 1}])), sink)
    with pytest.raises(SinkError, match=r"Unauthorized \(401\): check the name and the password"):
        preflight(compile_flow(flow), None, is_batch=False)
    right = sink_of(registry, auth=(USER, PASSWORD))
    right.check(False)
    assert registry.schemas(SUBJECT) == []
    assert PASSWORD not in repr(right) + repr(flow)


def test_a_dead_letter_registers_nothing(registry: SchemaRegistry) -> None:
    format = sink_of(registry).encoding.value_format
    letter = dead_letter("dead", ("k", {"n": 1}), value_format=format)
    assert (letter.value, dict(letter.headers)["flow.value_as"]) == (b'{"n": 1}', "json")
    assert registry.asked == []


@pytest.mark.extended
def test_a_registry_of_another_maker_is_read_and_written() -> None:
    with running_apicurio() as apicurio:
        registry: Any = apicurio
        with client(registry) as theirs:
            serialize = AvroSerializer(theirs, json.dumps(V1), conf=BY_TOPIC)
            old = serialize({"user": "a", "count": 1}, TOPIC)
        log = MemoryLog()
        assert reader_of(registry, log)(old) == [{"user": "a", "count": 1}]
        (new,) = values(sink_of(registry, schema=V2), [{"user": "b", "count": 2, "note": "n"}])
        row = {"user": "b", "count": 2, "note": "n"}
        assert reader_of(registry, log)(old, b"\0\0\1\0\0x", new) == [
            {"user": "a", "count": 1, "note": None},
            row,
            "its value: the registry has no schema with the id 65536",
        ]
        with client(registry) as theirs:
            assert AvroDeserializer(theirs, conf=BY_TOPIC)(new, TOPIC) == row
        made = proto()
        protobuf = {"format": "protobuf", "subject": "protobuf"}
        (value,) = values(sink_of(registry, schema=made.line, **protobuf), [{"item": "a"}])
        assert reader_of(registry, message="x.Order.Line", **protobuf)(value) == [{"item": "a"}]
        (value,) = values(sink_of(registry, format="json", subject="json"), [{"n": 3}])
        assert reader_of(registry, format="json", subject="json")(value) == [{"n": 3}]
        with pytest.raises(SourceError, match="check the url, with its path"):
            client_of(Registry(apicurio.url + "/no"), SourceError).check("x")
        for one, error, _ in [*registry_module._clients]:
            registry_module.close_client(one, error)


#  epoch 0   a b   with the schema of the columns
#  epoch 0   a b   again: nothing is written twice
#  epoch 1   b is deleted: a tombstone
def test_epochs_are_written_once_and_read_by_a_source(
    broker: Broker, registry: SchemaRegistry
) -> None:
    topic = broker.topic()
    value = Registry(registry.url)
    for _ in range(2):
        sink = KafkaSink(broker.servers, topic, value_format=value)
        sink.open("run", resuming=False)
        batch = pa.RecordBatch.from_pydict({"key": ["a", "b"], "n": [1, 2]})
        sink.commit(0, [sink.write(WriteContext("out", 0, 0, "run"), iter([batch]))])
        sink.close()
    sink.open("run", resuming=True)
    chunks = sink.write(WriteContext("out", 1, 0, "run"), iter([[KafkaRecord(None, "b")]]))
    sink.commit(1, [chunks])
    sink.close()
    missing = Registry(registry.url, schema=GIVEN, auto_register=False)
    with pytest.raises(SinkError, match="does not have the schema"):
        KafkaSink(broker.servers, topic, value_format=missing).open("other", resuming=False)
    source = KafkaSource(
        broker.servers, topic, key="text", value=value, end={topic: {0: 2}}, start="earliest"
    )
    assert [(row["key"], row["n"]) for row in run_source(source)] == [("a", 1), ("b", 2)]
    assert [message.value() for message in broker.consume(topic)][2:] == [None]
