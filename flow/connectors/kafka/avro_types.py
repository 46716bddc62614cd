"""Avro schemas: parsing, and Arrow types of their values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from flow.checks import wrong_type
from flow.errors import FlowBuildError, first_line, package_of_extra, shorten

_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}


def fastavro() -> Any:
    """Return the package fastavro.

    Raises:
        EnvironmentProblem: it is not installed.
    """
    with package_of_extra("kafka", "fastavro", "Avro", on_workers=True):
        import fastavro
    return fastavro


def parse_schema(schema: object) -> Any:
    """Return a schema in the form that fastavro uses.

    Args:
        schema: JSON text, or the parsed JSON.

    Raises:
        EnvironmentProblem: fastavro is not installed.
        FlowTypeError, FlowBuildError: the argument is not an Avro schema.
    """
    parse = fastavro().parse_schema
    if not isinstance(schema, (str, Mapping, list)):
        raise wrong_type(
            "an Avro schema must be JSON text, or the dict that the text stands for", schema
        )
    try:
        return parse(json.loads(schema) if isinstance(schema, str) else schema)
    except Exception as error:  # fastavro raises errors of many types.
        raise FlowBuildError(
            f"not an Avro schema: {first_line(error)}: {shorten(schema)}"
        ) from error


def without_uuids(schema: Any) -> Any:
    """Return the schema with UUIDs as plain text or bytes, which columns can hold."""
    if isinstance(schema, str) and schema.lstrip().startswith(("{", "[")):
        return without_uuids(json.loads(schema))
    if isinstance(schema, list):
        return [without_uuids(part) for part in schema]
    if isinstance(schema, Mapping):
        return {
            name: without_uuids(part)
            for name, part in schema.items()
            if (name, part) != ("logicalType", "uuid")
        }
    return schema


def arrow_type(schema: Any) -> Any:
    """Return the Arrow type of the values of a parsed schema.

    Raises:
        FlowBuildError: no column can hold the values, as with unions of several types.
    """
    return _arrow_type(schema, {})


def _arrow_type(schema: Any, named: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return _of_union(schema, named)
    if isinstance(schema, str):
        return _of_name(schema, named)
    logical = schema.get("logicalType")
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    match schema["type"]:
        case "record" | "error":
            return _of_record(schema, named)
        case "enum":
            named[schema["name"]] = pa.string()
            return pa.string()
        case "fixed":
            named[schema["name"]] = pa.binary(schema["size"])
            return named[schema["name"]]
        case "array":
            return pa.list_(_arrow_type(schema["items"], named))
        case "map":
            return pa.map_(pa.string(), _arrow_type(schema["values"], named))
        case inner:
            return _arrow_type(inner, named)


def _of_name(name: str, named: dict[str, Any]) -> Any:
    known = _PLAIN.get(name, named.get(name))
    if known is None:
        raise FlowBuildError(
            f"the Avro schema has a type {name!r} that holds itself, which no column can hold: "
            "read messages instead, with items='messages'"
        )
    return known


def _of_union(schema: list[Any], named: dict[str, Any]) -> Any:
    kinds = [kind for kind in schema if kind != "null"]
    if len(kinds) > 1:
        raise FlowBuildError(
            f"the Avro schema has a union of several types, {shorten(schema)}, which no column "
            "can hold: read messages instead, with items='messages'"
        )
    return _arrow_type(kinds[0], named) if kinds else pa.null()


def _of_record(schema: Any, named: dict[str, Any]) -> Any:
    fields = [(field["name"], _arrow_type(field["type"], named)) for field in schema["fields"]]
    named[schema["name"]] = pa.struct(fields)
    return named[schema["name"]]
