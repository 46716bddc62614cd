"""Values of Confluent's own serializers, read as columns, and ours read by its deserializers."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import fastavro
import pytest

pytest.importorskip("confluent_kafka.schema_registry", reason="no client of a schema registry")

from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    timestamp_pb2,
)

from flow.connectors.kafka import KafkaSource, Registry
from flow.connectors.kafka.cluster import Unreachable
from flow.connectors.kafka.registry import RegistryClient
from flow.connectors.kafka.registry_reading import Readers
from flow.connectors.source import Invalid, MemoryLog
from flow.errors import SourceError
from tests.support.schema_registry import SchemaRegistry, running_registry

TOPIC = SerializationContext("orders", MessageField.VALUE)
SUBJECT = "orders-value"
BY_TOPIC = {"subject.name.strategy": topic_subject_name_strategy}
PROTOBUF = {"use.deprecated.format": False, **BY_TOPIC}

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def avro(*fields: tuple[str, Any], **defaults: Any) -> dict[str, Any]:
    made = [{"name": name, "type": kind} for name, kind in fields]
    for one in made:
        if one["name"] in defaults:
            one["default"] = defaults[one["name"]]
    return {"type": "record", "name": "Order", "fields": made}


ORDER = avro(
    ("user", "string"),
    ("amount", ["null", "double"]),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
)


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as made:
        yield made


def client(registry: SchemaRegistry, is_mock: bool = False) -> Any:
    return SchemaRegistryClient.new_client({"url": "mock://" if is_mock else registry.url})


def reader_of(registry: SchemaRegistry, log: MemoryLog | None = None, **arguments: Any) -> Any:
    """Return a function of values that returns what the source of a new run reads of them."""
    value = Registry(registry.url, **arguments)
    source = KafkaSource("localhost:9092", "orders", value=value, patience="200ms")
    reader = Readers(value, log or MemoryLog(), as_records=True).reader("orders")

    def read(*values: bytes | None) -> list[Any]:
        parts = {"key": None, "topic": "orders", "partition": 0, "timestamp": (0, -1)}
        messages = [
            SimpleNamespace(
                **{
                    name: lambda part=part: part
                    for name, part in {**parts, "value": one, "offset": at, "headers": None}.items()
                }
            )
            for at, one in enumerate(values)
        ]
        rows: list[Any] = []
        for batch in source._conversion_of(reader).batches(messages, frozenset()):
            if isinstance(batch, Invalid):
                rows += [bad.reason for bad in batch.inputs]
            else:
                rows += batch.to_pylist()
        return rows

    return read


# --- golden bytes ---


@pytest.mark.parametrize("is_mock", [False, True], ids=["registry", "mock"])
def test_values_of_confluents_avro_serializer_become_columns(
    registry: SchemaRegistry, is_mock: bool
) -> None:
    serialize = AvroSerializer(client(registry, is_mock), json.dumps(ORDER), conf=BY_TOPIC)
    rows = [{"user": "ann", "amount": 1.5, "at": NOON}, {"user": "bob", "amount": None, "at": NOON}]
    values = [serialize(row, TOPIC) for row in rows]
    registry.register(SUBJECT, ORDER)
    assert values[0][:5] == b"\0\0\0\0\1"
    assert reader_of(registry)(*values) == rows


F = descriptor_pb2.FieldDescriptorProto


def proto(**more: int) -> Any:
    """The classes of a file: `x.Order`, the message `x.Order.Line` in it, and `x.Other`."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="x", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    line.field.add(name="item", number=1, type=F.TYPE_STRING, label=1)
    file.message_type.add(name="Other").field.add(name="x", number=1, type=F.TYPE_INT32, label=1)
    kinds = {"user": F.TYPE_STRING, "count": F.TYPE_INT32, **more}
    for number, (name, kind) in enumerate(kinds.items(), 1):
        order.field.add(name=name, number=number, type=kind, label=1)
    message: dict[str, Any] = {"type": F.TYPE_MESSAGE, "label": 1}
    order.field.add(name="at", number=21, type_name=".google.protobuf.Timestamp", **message)
    order.field.add(name="lines", number=22, type_name=".x.Order.Line", **{**message, "label": 3})
    order.field.add(name="first", number=23, type_name=".x.Order.Line", **message)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"x.{name}") for name in ("Order", "Order.Line", "Other"))
    made = [message_factory.GetMessageClass(one) for one in found]
    text = base64.b64encode(file.SerializeToString()).decode()
    return SimpleNamespace(order=made[0], line=made[1], other=made[2], text=text)


def test_values_of_confluents_protobuf_serializer_become_columns(registry: SchemaRegistry) -> None:
    made = proto()
    serialize = ProtobufSerializer(made.order, client(registry), PROTOBUF)
    full = made.order(user="ann", count=-3, at=NOON, lines=[{"item": "a"}, {}])
    values = [serialize(one, TOPIC) for one in (full, made.order(first={"item": "b"}))]
    assert values[0][5:6] == b"\0"
    assert reader_of(registry, format="protobuf")(*values) == [
        {
            "user": "ann",
            "count": -3,
            "at": NOON,
            "lines": [{"item": "a"}, {"item": ""}],
            "first": None,
        },
        {"user": "", "count": 0, "at": None, "lines": [], "first": {"item": "b"}},
    ]


def test_fields_of_protobuf_become_columns_of_their_types(registry: SchemaRegistry) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="x", syntax="proto3")
    file.dependency.append("google/protobuf/empty.proto")
    every = file.message_type.add(name="Every")
    pair = every.nested_type.add(name="CountsEntry")
    pair.options.map_entry = True
    every.oneof_decl.add(name="_maybe")
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(("RED", "BLUE")):
        colour.value.add(name=name, number=number)
    for message, *fields in (
        (pair, ("key", F.TYPE_STRING, {}), ("value", F.TYPE_SINT64, {})),
        (
            every,
            ("big", F.TYPE_UINT64, {}),
            ("raw", F.TYPE_BYTES, {}),
            ("colour", F.TYPE_ENUM, {"type_name": ".x.Colour"}),
            ("colours", F.TYPE_ENUM, {"type_name": ".x.Colour", "label": 3}),
            ("counts", F.TYPE_MESSAGE, {"type_name": ".x.Every.CountsEntry", "label": 3}),
            ("maybe", F.TYPE_FLOAT, {"oneof_index": 0, "proto3_optional": True}),
            ("none", F.TYPE_MESSAGE, {"type_name": ".google.protobuf.Empty"}),
        ),
    ):
        for number, (name, kind, more) in enumerate(fields, 1):
            message.field.add(name=name, number=number, type=kind, **{"label": 1, **more})
    text = base64.b64encode(file.SerializeToString()).decode()
    registry.register(SUBJECT, text, "PROTOBUF")
    message = b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\x12\1r\x18\1\x22\2\0\7"
    message += b"\x2a\5\x0a\1k\x10\5\x35\0\0\x80\x3f\x3a\0"
    none = {"big": 0, "raw": b"", "colour": "RED", "colours": [], "counts": []}
    assert reader_of(registry, format="protobuf")(b"\0\0\0\0\1\0" + message, b"\0\0\0\0\1\0") == [
        {
            "big": 2**64 - 1,
            "raw": b"r",
            "colour": "BLUE",
            "colours": ["RED", "7"],
            "counts": [("k", -3)],
            "maybe": 1.0,
            "none": {},
        },
        {**none, "maybe": None, "none": None},
    ]


def test_a_protobuf_message_is_found_by_its_position_in_the_file(registry: SchemaRegistry) -> None:
    made = proto()
    line = ProtobufSerializer(made.line, client(registry), PROTOBUF)(made.line(item="a"), TOPIC)
    other = ProtobufSerializer(made.other, client(registry), PROTOBUF)(made.other(x=7), TOPIC)
    assert line[5:8] == b"\4\0\0"
    read = reader_of(registry, format="protobuf", message="x.Order.Line")
    assert read(line, other, line[:6], line[:5] + b"\2\x0c" + line[8:]) == [
        {"item": "a"},
        "its value: it is a message 'x.Other', and the source reads 'x.Order.Line'",
        "its value: its indexes of a Protobuf message are not complete",
        "its value: its schema has no message at [6]",
    ]


def test_a_time_of_protobuf_beyond_python_is_a_bad_message(registry: SchemaRegistry) -> None:
    made = proto()
    registry.register(SUBJECT, made.text, "PROTOBUF")
    # The field 21, a message whose field 1 is the number of seconds.
    far, near = (
        b"\0\0\0\0\1\0\xaa\1" + bytes([1 + len(seconds), 8]) + seconds
        for seconds in (b"\x80\x80\xe9\x83\xb1\xde\x16", b"\0")
    )
    bad = "its value: it has a time outside the years 1 to 9999"
    (found, reason) = reader_of(registry, format="protobuf")(far, near)
    assert (found["at"], reason) == (datetime.fromtimestamp(0, UTC), bad)


def test_values_of_confluents_json_serializer_become_columns(registry: SchemaRegistry) -> None:
    schema = {
        "title": "Order",
        "type": "object",
        "properties": {
            "user": {"type": "string"},
            "amount": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
        },
        "$defs": {"Line": {"type": "object", "properties": {"count": {"type": "integer"}}}},
    }
    serialize = JSONSerializer(json.dumps(schema), client(registry), conf=BY_TOPIC)
    rows = [
        {"user": "ann", "amount": 1.5, "lines": [{"count": 2}]},
        {"user": "bob", "amount": None, "lines": []},
    ]
    values = [serialize(row, TOPIC) for row in rows]
    assert reader_of(registry, format="json")(*values) == rows


# --- values of several schemas, and bad ones ---


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    """A value as Confluent's serializers write it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


V1 = avro(("user", "string"), ("count", "int"))
V2 = avro(("user", "string"), ("count", "long"), ("note", ["null", "string"]), note=None)
V3 = avro(("user", "string"), ("count", "double"), ("unit", "string"), unit="EUR")


def test_values_of_several_schemas_keep_their_order(registry: SchemaRegistry) -> None:
    ids = [registry.register(SUBJECT, schema) for schema in (V1, V2, V3)]
    old, mid, new = (
        framed(ids[0], V1, {"user": "a", "count": 1}),
        framed(ids[1], V2, {"user": "b", "count": 2, "note": "n"}),
        framed(ids[2], V3, {"user": "c", "count": 2.5, "unit": "USD"}),
    )
    a, b, c = (
        {"user": "a", "count": 1.0, "unit": "EUR"},
        {"user": "b", "count": 2.0, "unit": "EUR"},
        {"user": "c", "count": 2.5, "unit": "USD"},
    )
    assert reader_of(registry)(new, old, mid, old, new) == [c, a, b, a, c]
    assert reader_of(registry)(old) == [a]


@pytest.mark.parametrize("format", ["avro", "json", "protobuf"])
def test_messages_have_values_as_objects(registry: SchemaRegistry, format: Any) -> None:
    value = Registry(registry.url, format=format)
    source = KafkaSource("localhost:9092", "orders", value=value, items="messages")
    union = avro(("user", ["string", "int"]))
    schemas = {
        "avro": (union, framed(1, union, {"user": "ann"})),
        "json": ({"properties": {"user": {"type": "string"}}}, b'\0\0\0\0\1{"user": "ann"}'),
        "protobuf": (proto().text, b"\0\0\0\0\1\0\x0a\3ann"),
    }
    schema, data = schemas[format]
    registry.register(SUBJECT, schema, format.upper())
    reader = Readers(value, MemoryLog(), as_records=False).reader("orders")
    read = source._conversion_of(reader).value
    assert read.read(data)["user"] == "ann"
    assert read.read_problem(data[:4]) == "it ends within the id of its schema"


def test_bad_values_are_left_out_with_their_reasons(registry: SchemaRegistry) -> None:
    schema_id = registry.register(SUBJECT, V1)
    good = framed(schema_id, V1, {"user": "ann", "count": 3})
    row = {"user": "ann", "count": 3}
    read = reader_of(registry)
    assert read(
        good, b"\1" + good[1:], good[:3], b"", good, good[:-1], good + b"x", None, good
    ) == [
        *[row] * 3,
        "its value: it does not begin with the zero byte and the id of a schema",
        "its value: it ends within the id of its schema",
        "its value: it does not begin with the zero byte and the id of a schema",
        "its value: not Avro of the schema (EOFError)",
        "its value: not Avro of the schema (1 bytes are left over)",
        "its value: there is nothing (a tombstone)",
    ]
    registry.asked.clear()
    unknown = b"\0\0\0\0\x63" + good[5:]
    assert read(unknown, good, unknown) == [
        row,
        *["its value: the registry has no schema with the id 99"] * 2,
    ]
    assert registry.asked == ["GET /schemas/ids/99"]


def test_an_id_of_another_format_is_an_error(registry: SchemaRegistry) -> None:
    registry.register(SUBJECT, V1)
    schema_id = registry.register("other", {"type": "object", "properties": {}}, "JSON")
    with pytest.raises(SourceError, match=r"schema id 2 of .* is json, and not avro: pass format="):
        reader_of(registry)(b"\0" + schema_id.to_bytes(4, "big") + b"{}")
    with pytest.raises(SourceError, match=r"schema id 1 of .* is avro, and not protobuf"):
        reader_of(registry, format="protobuf")


def recursive() -> str:
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="x", syntax="proto3")
    kind: dict[str, Any] = {"type": F.TYPE_MESSAGE, "type_name": ".x.Tree", "label": 3}
    file.message_type.add(name="Tree").field.add(name="branches", number=1, **kind)
    return base64.b64encode(file.SerializeToString()).decode()


@pytest.mark.parametrize(
    ("kind", "schema", "message"),
    [
        ("avro", avro(("x", ["int", "string"])), "a union of several types"),
        ("avro", {"type": "recrod"}, "not an Avro schema"),
        ("json", {"type": "object", "properties": {"x": True}}, "a part that no column can hold"),
        ("json", {"type": "string"}, "describes no object"),
        ("json", {"type": "object", "properties": {"x": {"$ref": "#/no"}}}, "'#/no', which is m"),
        ("protobuf", "", "it does not describe the message ''"),
        ("protobuf", recursive(), "the Protobuf message 'x.Tree' may hold itself"),
        ("protobuf", "c3ludGF4", "gives the source text of Protobuf"),
    ],
)
def test_a_schema_that_cannot_be_read_is_an_error_with_its_id(
    registry: SchemaRegistry, kind: Any, schema: Any, message: str
) -> None:
    registry.register(SUBJECT, schema, kind.upper())
    with pytest.raises(SourceError, match=rf"schema id 1.*{message}"):
        reader_of(registry, format=kind)


def test_a_topic_without_a_subject_is_an_error(registry: SchemaRegistry) -> None:
    with pytest.raises(SourceError, match=r"has no subject 'orders-value', and topic 'orders'"):
        reader_of(registry)


def test_a_column_with_the_name_of_a_metadata_field_is_an_error(registry: SchemaRegistry) -> None:
    registry.register(SUBJECT, avro(("topic", "string")))
    with pytest.raises(SourceError, match="the value's schema has 'topic', the name of a column"):
        reader_of(registry)(b"")


# --- schemas that refer to others ---


def reference(name: str, subject: str) -> list[dict[str, Any]]:
    return [{"name": name, "subject": subject, "version": 1}]


def test_an_avro_schema_may_refer_to_schemas_that_refer_to_others(registry: SchemaRegistry) -> None:
    city = {"type": "record", "name": "geo.City", "fields": [{"name": "name", "type": "string"}]}
    place = {"type": "record", "name": "geo.Place", "fields": [{"name": "c", "type": "geo.City"}]}
    order = avro(("to", "geo.Place"), ("via", ["null", "geo.Place"]), ("c", "geo.City"), via=None)
    registry.register("city", city)
    registry.register("place", place, references=reference("geo.City", "city"))
    schema_id = registry.register(SUBJECT, order, references=reference("geo.Place", "place"))
    # The names as a serializer has them.
    named: dict[str, Any] = {}
    for schema in (city, place):
        fastavro.parse_schema(schema, named)
    out = io.BytesIO()
    berlin = {"c": {"name": "Berlin"}}
    row = {"to": berlin, "via": berlin, "c": {"name": "Bonn"}}
    fastavro.schemaless_writer(out, fastavro.parse_schema(order, named), row)
    value = b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()
    for evolve in ("widen", "pinned"):
        assert reader_of(registry, evolve=evolve)(value) == [row]


def test_a_task_waits_for_the_schemas_that_another_refers_to(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"user": "ann", "count": 3}
    value = framed(registry.register(SUBJECT, V1), V1, row)
    read = reader_of(registry)
    monkeypatch.setattr(RegistryClient, "references", Mock(side_effect=[Unreachable("down"), {}]))
    assert read(value) == [row]


def test_a_json_schema_may_refer_to_another(registry: SchemaRegistry) -> None:
    registry.register("line", {"type": "object", "properties": {"n": {"type": "integer"}}}, "JSON")
    order = {"type": "object", "properties": {"line": {"$ref": "line.json"}}}
    registry.register(SUBJECT, order, "JSON", reference("line.json", "line"))
    value = b'\0\0\0\0\2{"line": {"n": 3}}'
    assert reader_of(registry, format="json")(value) == [{"line": {"n": 3}}]


def test_a_protobuf_file_may_import_another(registry: SchemaRegistry) -> None:
    made = proto()
    registry.register("order", made.text, "PROTOBUF")
    file = descriptor_pb2.FileDescriptorProto(name="b.proto", package="y", syntax="proto3")
    file.dependency.append("order.proto")
    box = {"number": 1, "type": F.TYPE_MESSAGE, "label": 1, "type_name": ".x.Order.Line"}
    file.message_type.add(name="Box").field.add(name="line", **box)
    text = base64.b64encode(file.SerializeToString()).decode()
    registry.register("bad-value", text, "PROTOBUF")
    with pytest.raises(SourceError, match=r"imports 'order.proto', to which .* no reference"):
        reader_of(registry, format="protobuf", subject="bad-value")
    schema_id = registry.register(SUBJECT, text, "PROTOBUF", reference("order.proto", "order"))
    value = b"\0" + schema_id.to_bytes(4, "big") + b"\0\x0a\3\x0a\1a"
    assert reader_of(registry, format="protobuf")(value) == [{"line": {"item": "a"}}]


# --- new versions ---


def test_widening_adds_columns_and_promotes_numbers(registry: SchemaRegistry) -> None:
    log = MemoryLog()
    ids = [registry.register(SUBJECT, V1)]
    old = framed(ids[0], V1, {"user": "a", "count": 1})
    before = reader_of(registry, log)
    assert before(old) == [{"user": "a", "count": 1}]
    ids += [registry.register(SUBJECT, schema) for schema in (V2, V3)]
    new = framed(ids[2], V3, {"user": "c", "count": 2.5, "unit": "USD"})
    after = reader_of(registry, log)
    assert after(new, old) == [
        {"user": "c", "count": 2.5, "note": None, "unit": "USD"},
        {"user": "a", "count": 1.0, "note": None, "unit": "EUR"},
    ]
    assert [entry["version"] for entry in log.entries()] == [1, 2, 3]
    assert before(old) == [{"user": "a", "count": 1}]
    assert reader_of(registry, log)(old) == after(old)
    without = avro(("count", "int"))
    schema_id = registry.register(SUBJECT, without)
    assert reader_of(registry, log)(framed(schema_id, without, {"count": 4})) == [
        {"user": None, "count": 4.0, "note": None, "unit": "EUR"}
    ]


def test_widening_merges_types_that_occur_several_times(registry: SchemaRegistry) -> None:
    log = MemoryLog()
    city = {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}
    wide = {**city, "fields": [*city["fields"], {"name": "zip", "type": "int", "default": 0}]}
    old = avro(("a", city), ("b", ["null", "City"]), b=None)
    new = avro(("c", wide), ("b", ["null", "City"]), ("a", "City"), b=None)
    bonn, ulm = {"name": "Bonn"}, {"name": "Ulm", "zip": 89}
    first = framed(registry.register(SUBJECT, old), old, {"a": bonn, "b": bonn})
    assert reader_of(registry, log)(first) == [{"a": bonn, "b": bonn}]
    row = {"c": ulm, "b": ulm, "a": ulm}
    second = framed(registry.register(SUBJECT, new), new, row)
    zero = {**bonn, "zip": 0}
    assert reader_of(registry, log)(first, second) == [{"a": zero, "b": zero, "c": None}, row]


def test_widening_promotes_numbers_of_json(registry: SchemaRegistry) -> None:
    log = MemoryLog()
    for kind, value, expected in (("integer", b"1", 1), ("number", b"2.5", 2.5)):
        schema = {"type": "object", "properties": {"n": {"type": kind}}}
        schema_id = registry.register(SUBJECT, schema, "JSON")
        read = reader_of(registry, log, format="json")
        assert read(b"\0\0\0\0" + bytes([schema_id]) + b'{"n": %s}' % value) == [{"n": expected}]


def test_a_pinned_schema_reads_later_versions_by_avros_resolution(registry: SchemaRegistry) -> None:
    log, evolve = MemoryLog(), "pinned"
    pinned = avro(("user", "string"), ("count", "long"), ("unit", "string"), unit="EUR")
    registry.register(SUBJECT, pinned)
    assert reader_of(registry, log, evolve=evolve)() == []
    later = [V1, V2, V3, avro(("user", "string")), avro(("user", "int"), ("count", "int"))]
    ids = [registry.register(SUBJECT, schema) for schema in later]
    rows = [
        {"user": "a", "count": 1},
        {"user": "b", "count": 2, "note": "n"},
        {"user": "c", "count": 2.5, "unit": "USD"},
        {"user": "d"},
        {"user": 5, "count": 5},
    ]
    values = [framed(*one) for one in zip(ids, later, rows, strict=True)]
    found = reader_of(registry, log, evolve=evolve)(*values)
    assert found[:2] == [
        {"user": "a", "count": 1, "unit": "EUR"},
        {"user": "b", "count": 2, "unit": "EUR"},
    ]
    assert [text.partition(":")[2].partition(":")[0] for text in found[2:]] == [
        " its schema does not fit the one it is read as"
    ] * 3


def test_stop_names_the_version_and_what_changed(registry: SchemaRegistry) -> None:
    log, evolve = MemoryLog(), "stop"
    schema_id = registry.register(SUBJECT, V1)
    old = framed(schema_id, V1, {"user": "a", "count": 1})
    reader_of(registry, log, evolve=evolve)
    registry.register(SUBJECT, {**V1, "doc": "the same columns"})
    assert reader_of(registry, log, evolve=evolve)(old) == [{"user": "a", "count": 1}]
    registry.register(SUBJECT, V2)
    with pytest.raises(SourceError) as raised:
        reader_of(registry, log, evolve=evolve)
    assert str(raised.value) == (
        "version 3 (schema id 3) of subject 'orders-value' differs from version 2, which the flow "
        "reads: 'note' is new, 'count' was int32 and is int64. Pass evolve='widen' to read what is "
        "new, or evolve='pinned' to read all values as they were"
    )
    assert reader_of(registry, log, evolve="pinned")(old) == [{"user": "a", "count": 1}]
    assert reader_of(registry, log)(old) == [{"user": "a", "count": 1, "note": None}]


@pytest.mark.parametrize(
    ("kind", "old", "new", "message"),
    [
        ("avro", avro(("x", "string")), avro(("x", "long")), "the value.x was 'string' and is"),
        (
            "avro",
            avro(("x", {"type": "long", "logicalType": "timestamp-millis"})),
            avro(("x", {"type": "long", "logicalType": "timestamp-micros"})),
            "the value.x was",
        ),
        (
            "json",
            {"type": "object", "properties": {"x": {"type": "string"}}},
            {"type": "object", "properties": {"x": {"type": "boolean"}}},
            "Field x has incompatible types: string vs bool",
        ),
        (
            "protobuf",
            proto(x=F.TYPE_INT64).text,
            proto(x=F.TYPE_STRING).text,
            "the field x.Order.x has",
        ),
    ],
)
def test_versions_that_no_schema_reads_are_an_error(
    registry: SchemaRegistry, kind: Any, old: Any, new: Any, message: str
) -> None:
    log = MemoryLog()
    registry.register(SUBJECT, old, kind.upper())
    reader_of(registry, log, format=kind)
    registry.register(SUBJECT, new, kind.upper())
    with pytest.raises(SourceError, match=rf"version 2 \(schema id 2\) .*: {message}"):
        reader_of(registry, log, format=kind)


def test_protobuf_fields_go_by_their_numbers(registry: SchemaRegistry) -> None:
    first, later = proto(), proto(note=F.TYPE_STRING)
    registry.register(SUBJECT, first.text, "PROTOBUF")
    log, pinned = MemoryLog(), MemoryLog()
    for evolve, its in (("widen", log), ("pinned", pinned)):
        reader_of(registry, its, format="protobuf", evolve=evolve)
    wide = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(later.text))
    order = wide.message_type[0]
    order.field[1].type = F.TYPE_INT64
    order.oneof_decl.add(name="how")
    order.field.add(name="card", number=30, type=F.TYPE_STRING, label=1, oneof_index=0)
    text = base64.b64encode(wide.SerializeToString()).decode()
    schema_id = registry.register(SUBJECT, text, "PROTOBUF")
    value = b"\0" + schema_id.to_bytes(4, "big") + b"\0\x0a\3ann\x10\5\x1a\1n\xf2\1\1v"
    assert reader_of(registry, log, format="protobuf")(value) == [
        {
            "user": "ann",
            "count": 5,
            "at": None,
            "lines": [],
            "first": None,
            "note": "n",
            "card": "v",
        }
    ]
    # Whole numbers of 64 bits do not fit the pinned 32.
    (problem,) = reader_of(registry, pinned, format="protobuf", evolve="pinned")(value)
    assert "its schema 2 does not fit: the field x.Order.count has another type" in problem
    order.field[1].type, order.field[0].name = F.TYPE_INT32, "customer"
    text = base64.b64encode(wide.SerializeToString()).decode()
    value = b"\0\0\0\0" + bytes([registry.register(SUBJECT, text, "PROTOBUF")]) + value[5:]
    (row,) = reader_of(registry, pinned, format="protobuf", evolve="pinned")(value)
    assert (row["user"], row["count"], "note" in row) == ("ann", 5, False)
    with pytest.raises(SourceError, match=r"the field x\.Order\.user is gone, or has"):
        reader_of(registry, log, format="protobuf")
