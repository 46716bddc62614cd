"""Values with the id of their schema in a registry, and schemas of columns."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from flow.columns.arrow_types import is_instant
from flow.columns.record_batches import rows_as_dicts
from flow.connectors.formats.columns import inferred_columns
from flow.connectors.kafka.registry import Registry, client_of, patiently
from flow.connectors.kafka.serializers import JSON, Avro, Serializer
from flow.errors import FlowBuildError, FlowTypeError, SinkError, shorten, step_error

PATIENCE_SECONDS = 120.0
"""Time that a sink waits for a registry that does not answer."""

_AVRO: tuple[tuple[Any, Any], ...] = (
    (pa.types.is_null, "null"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int64, "long"),
    (pa.types.is_uint32, "long"),
    (pa.types.is_uint64, None),
    (pa.types.is_integer, "int"),
    (pa.types.is_float64, "double"),
    (pa.types.is_floating, "float"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
    (pa.types.is_date, {"type": "int", "logicalType": "date"}),
    (pa.types.is_time, {"type": "long", "logicalType": "time-micros"}),
    (is_instant, {"type": "long", "logicalType": "timestamp-micros"}),
    (pa.types.is_timestamp, {"type": "long", "logicalType": "local-timestamp-micros"}),
)
"""Avro's type for each kind of columns, in the order of the tests; ``None`` for no type."""


def avro_schema(columns: pa.Schema) -> str:
    """Return the Avro schema of records in columns, each of which may be null.

    Raises:
        FlowBuildError: Avro has no such type, or a name is no name of Avro.
    """
    return json.dumps(_avro_type(pa.struct(list(columns)), "Value"))


def _avro_type(kind: Any, name: str) -> Any:
    if pa.types.is_dictionary(kind):
        return _avro_type(kind.value_type, name)
    if pa.types.is_struct(kind):
        for field in kind:
            if not (field.name.isidentifier() and field.name.isascii()):
                raise FlowBuildError(
                    f"{field.name!r} is no name in Avro: rename the field, or choose format='json'"
                )
        fields = [
            {"name": one.name, "type": _nullable(one.type, f"{name}_{one.name}"), "default": None}
            for one in kind
        ]
        return {"type": "record", "name": name, "fields": fields}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": _nullable(kind.item_type, name)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _nullable(kind.value_type, name)}
    if pa.types.is_decimal(kind):
        size = {"precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", "logicalType": "decimal", **size}
    found = next((avro for is_kind, avro in _AVRO if is_kind(kind)), None)
    if found is None:
        raise FlowBuildError(f"{name} is {kind}, for which Avro has no type: pass a schema")
    return found


def _nullable(kind: Any, name: str) -> Any:
    found = _avro_type(kind, name)
    return found if found == "null" else ["null", found]


def json_schema_of(columns: pa.Schema) -> str:
    """Return the JSON schema of records in columns, each of which may be null."""
    return json.dumps({**_json_type(pa.struct(list(columns))), "title": "Value"})


def _json_type(kind: Any) -> dict[str, Any]:
    types = pa.types
    if types.is_struct(kind):
        return {"type": "object", "properties": {one.name: _or_null(one.type) for one in kind}}
    if types.is_list(kind) or types.is_large_list(kind):
        return {"type": "array", "items": _or_null(kind.value_type)}
    if types.is_map(kind):
        return {"type": "object", "additionalProperties": _or_null(kind.item_type)}
    for is_kind, name in (
        (types.is_null, "null"),
        (types.is_boolean, "boolean"),
        (types.is_integer, "integer"),
        (types.is_floating, "number"),
    ):
        if is_kind(kind):
            return {"type": name}
    return {"type": "string"}


def _or_null(kind: Any) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, _json_type(kind)]}


@lru_cache(maxsize=8)
def _file_of(message: Any) -> tuple[str, bytes]:
    """Return the file of a Protobuf message's class, in base64, and the position in it.

    Raises:
        FlowTypeError, FlowBuildError: it is no such class, or its file imports others.
    """
    descriptor = getattr(message, "DESCRIPTOR", None)
    if descriptor is None or not hasattr(message, "SerializeToString"):
        raise FlowTypeError(
            f"Registry: schema must be the class of a Protobuf message, got {shorten(message)}"
        )
    imports = [one.name for one in descriptor.file.dependencies]
    others = [name for name in imports if not name.startswith("google/protobuf/")]
    if others:
        raise FlowBuildError(
            f"Registry: the file of {descriptor.full_name} imports {others[0]!r}: put all messages "
            "in one file, as the sink registers one"
        )
    indexes: list[int] = []
    while descriptor is not None:
        outer = descriptor.containing_type
        beside = outer.nested_types if outer else descriptor.file.message_types_by_name.values()
        indexes.insert(0, [one.full_name for one in beside].index(descriptor.full_name))
        descriptor = outer
    numbers = [] if indexes == [0] else [len(indexes), *indexes]
    position = b"".join(map(_zigzag, numbers)) or b"\0"
    return b64encode(message.DESCRIPTOR.file.serialized_pb).decode(), position


def _zigzag(number: int) -> bytes:
    """Return a number that is not negative as a zigzag varint."""
    left, found = number << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


class RegistrySerializer(Serializer):
    """Records with the id of their schema in a registry.

    Args:
        registry: the registry.
        topic: name of the topic.
    """

    def __init__(self, registry: Registry, topic: str) -> None:
        self._registry, self._subject = registry, registry.subject_of(topic)
        self._given: str | None = None
        self._position = b""
        if registry.format == "protobuf":
            self._given, self._position = _file_of(registry.schema)
        elif registry.schema is not None:
            schema = registry.schema
            self._given = schema if isinstance(schema, str) else json.dumps(schema)
            if registry.format == "avro":
                Avro(self._given)

    def __str__(self) -> str:
        return {"avro": "Avro", "json": "JSON", "protobuf": "Protobuf"}[self._registry.format]

    @override
    def open(self) -> None:
        if self._given is not None:
            self._head(self._given)

    @override
    def encoded(self, value: Any) -> bytes:
        if self._given is None:  # One value alone does not show the types of the others.
            raise TypeError("it needs a schema: pass one to the Registry")
        (found,) = self.values([value], "value", self._subject)
        return found or b""

    @override
    def values(self, values: Iterable[Any], what: str, step_id: str) -> list[bytes | None]:
        values = list(values)
        for value in values:
            if not isinstance(value, (Mapping, bytes, type(None))):
                problem = f"the {what} cannot be written as {self}: it must be a record"
                raise step_error(step_id, problem, item=value)
        records = [dict(value) for value in values if isinstance(value, Mapping)]
        schema = self._given
        if schema is None and records:
            schema = self._schema_of(inferred_columns(records, step_id).schema, step_id)
        encoded = iter(self._encode_all(records, schema or "", step_id))
        return [next(encoded) if isinstance(one, Mapping) else one for one in values]

    @override
    def column(self, column: pa.Array, what: str, step_id: str) -> pa.Array:
        if not pa.types.is_struct(column.type):
            return super().column(column, what, step_id)
        batch = pa.RecordBatch.from_arrays(column.flatten(), schema=pa.schema(list(column.type)))
        nothing = pa.scalar(None, pa.binary())
        return pc.if_else(column.is_valid(), self.rows(batch, step_id), nothing)

    @override
    def rows(self, batch: pa.RecordBatch, step_id: str) -> pa.Array:
        schema = self._given or self._schema_of(batch.schema, step_id)
        has_map = "map<" in str(batch.schema.types)  # whose values are pairs otherwise
        if has_map or self._registry.format != "json":
            records = batch.to_pylist(maps_as_pydicts="strict") if has_map else rows_as_dicts(batch)
            return pa.array(self._encode_all(records, schema, step_id), pa.binary())
        head = pa.scalar(self._head(schema), pa.binary())
        return pc.binary_join_element_wise(head, JSON.rows(batch, step_id), b"")

    def _encode_all(
        self, records: list[dict[str, Any]], schema: str, step_id: str
    ) -> list[bytes | None]:
        if not records:
            return []
        head = self._head(schema)
        match self._registry.format:
            case "avro":
                bodies = _avro(schema).values(records, "value", step_id)
            case "json":
                bodies = JSON.values(records, "value", step_id)
            case _:
                bodies = [self._message(record, step_id) for record in records]
        return [head + (body or b"") for body in bodies]

    def _message(self, record: dict[str, Any], step_id: str) -> bytes:
        try:
            return bytes(self._registry.schema(**record).SerializeToString())
        except (TypeError, ValueError, OverflowError) as error:
            problem = f"the value cannot be written as Protobuf: {error}"
            raise step_error(step_id, problem, item=record) from error

    def _schema_of(self, columns: pa.Schema, step_id: str) -> str:
        # The type of a column of nulls alone is not known yet.
        known = pa.schema([one for one in columns if not pa.types.is_null(one.type)])
        try:
            return (avro_schema if self._registry.format == "avro" else json_schema_of)(known)
        except FlowBuildError as error:
            raise SinkError(f"step {step_id!r}: {error}") from None

    def _head(self, schema: str) -> bytes:
        """Return the bytes before each value of a schema, which is registered then."""
        client = client_of(self._registry, SinkError)
        schema_id = patiently(
            lambda: client.register(self._subject, schema), PATIENCE_SECONDS, SinkError
        )
        return b"\0" + schema_id.to_bytes(4, "big") + self._position


@lru_cache(maxsize=8)
def _avro(schema: str) -> Avro:
    return Avro(schema)
