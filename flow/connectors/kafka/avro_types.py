"""Avro schemas: parsing, merging, and Arrow types of their values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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


def parse_schema(
    schema: object, named: dict[str, Any] | None = None, *, expand: bool = False
) -> Any:
    """Return a schema in the form that fastavro uses.

    Args:
        schema: JSON text, or the parsed JSON.
        named: named types that the schema may refer to, to which its own are added.
        expand: True to put definitions in the place of names of types, where that can end.

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
        value = json.loads(schema) if isinstance(schema, str) else schema
        return parse(value, named, expand=expand)
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


def self_contained(schema: str, references: Mapping[str, str]) -> str:
    """Return a schema as JSON text that has the named types of other schemas in it.

    Args:
        schema: JSON text.
        references: the schemas that it refers to, each after those that it refers to itself.
    """
    named: dict[str, Any] = {}
    for text in references.values():
        parse_schema(text, named)
    return json.dumps(_defined_once(parse_schema(schema, named), named, set()))


def _defined_once(schema: Any, named: Mapping[str, Any], seen: set[str]) -> Any:
    """Return a parsed schema with each named type defined where it occurs first."""
    if isinstance(schema, str):
        is_new = schema in named and schema not in seen
        return _defined_once(named[schema], named, seen) if is_new else schema
    if isinstance(schema, list):
        return [_defined_once(part, named, seen) for part in schema]
    if schema["type"] in ("record", "error", "enum", "fixed"):
        if schema["name"] in seen:
            return schema["name"]
        seen.add(schema["name"])
    return {
        name: _defined_once(part, named, seen) if name in _PARTS else part
        for name, part in schema.items()
        if not name.startswith("__")  # a mark of fastavro
    }


_PARTS = ("type", "items", "values", "fields")
"""Attributes that have types in them."""

_NUMBERS = ("int", "long", "float", "double")
"""Types of numbers; a reader may promote each to a later one."""


def widened(old: str, new: str) -> str:
    """Return a self-contained schema that reads what two others describe.

    A field that is missing in what a schema describes has its default, or is null. Numbers are
    promoted, and fields that are new follow the others.

    Raises:
        ValueError: a type has changed so that no schema reads both.
    """
    named: list[dict[str, Any]] = [{}, {}]
    parsed = [parse_schema(text, types) for text, types in zip((old, new), named, strict=True)]
    both = _merged(parsed[0], parsed[1], named, "the value")
    return json.dumps(_with_defaults(_defined_once(both, {**named[1], **named[0]}, set())))


def _merged(old: Any, new: Any, named: Sequence[Mapping[str, Any]], path: str) -> Any:
    if isinstance(old, list) or isinstance(new, list):
        return _merged_union(_kinds(old), _kinds(new), named, path)
    if isinstance(old, str) and old == new:
        return old
    old, new = _plain(named[0].get(str(old), old)), _plain(named[1].get(str(new), new))
    if old in _NUMBERS and new in _NUMBERS:
        return max(old, new, key=_NUMBERS.index)
    if isinstance(old, str) or isinstance(new, str) or _nature(old) != _nature(new):
        if old == new:
            return old
        raise ValueError(f"{path} was {shorten(old)} and is {shorten(new)}")
    match old["type"]:
        case "record" | "error":
            return {**old, "fields": _merged_fields(old, new, named, path)}
        case "array":
            return {**old, "items": _merged(old["items"], new["items"], named, path)}
        case "map":
            return {**old, "values": _merged(old["values"], new["values"], named, path)}
        case "enum":
            return {**old, "symbols": list(dict.fromkeys(old["symbols"] + new["symbols"]))}
    return old


def _merged_union(
    old: list[Any], new: list[Any], named: Sequence[Mapping[str, Any]], path: str
) -> list[Any]:
    olds, news = ([kind for kind in kinds if kind != "null"] for kinds in (old, new))
    if len(olds) == len(news) == 1:
        olds = news = [_merged(olds[0], news[0], named, path)]
    nulls = ["null"] if len(olds) < len(old) or len(news) < len(new) else []
    return [*nulls, *olds, *(kind for kind in news if kind not in olds)]


def _merged_fields(old: Any, new: Any, named: Sequence[Mapping[str, Any]], path: str) -> list[Any]:
    olds, news = ({one["name"]: one for one in record["fields"]} for record in (old, new))
    both = {
        name: {**field, "type": _merged(field["type"], news[name]["type"], named, f"{path}.{name}")}
        for name, field in olds.items()
        if name in news
    }
    return list((olds | both | {name: news[name] for name in news if name not in olds}).values())


def _with_defaults(schema: Any) -> Any:
    """Return a schema whose fields all have defaults, so that any may be missing."""
    if isinstance(schema, list):
        return [_with_defaults(part) for part in schema]
    if isinstance(schema, str):
        return schema
    schema = {
        name: _with_defaults(part) if name in _PARTS else part for name, part in schema.items()
    }
    for field in schema.get("fields", ()):
        kinds, default = _kinds(field["type"]), field.setdefault("default", None)
        if default is None and "null" not in kinds:
            kinds = ["null", *kinds]
        # The default is of the first type.
        kinds = sorted(kinds, key=lambda kind: (kind == "null") != (default is None))
        field["type"] = kinds if len(kinds) > 1 else kinds[0]
    return schema


def _kinds(schema: Any) -> list[Any]:
    return schema if isinstance(schema, list) else [schema]


def _plain(schema: Any) -> Any:
    """Return the name of a primitive type in place of an object without a logical type."""
    is_plain = isinstance(schema, Mapping) and "logicalType" not in schema
    return schema["type"] if is_plain and schema["type"] in _PLAIN else schema


def _nature(schema: Any) -> list[Any]:
    """Return what two schemas must have in common so that one reads both."""
    return [schema.get(name) for name in ("type", "logicalType", "precision", "scale", "size")]
