"""Schemas of Spark data frames as Arrow schemas, and Arrow schemas as Spark's."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas import types as spark_types
from pyspark.sql.types import StructField, StructType

from flow.columns.arrow_types import with_leaves
from flow.errors import FlowBuildError, FlowTypeError, first_line, shorten

_TO_ARROW: Any = spark_types.to_arrow_schema
_FROM_ARROW: Any = spark_types.from_arrow_type
# Up to Spark 4.1 the schema of a data frame has timestamps in UTC, and no argument for the zone.
_IN_UTC = {"timezone": "UTC"} if "timezone" in inspect.signature(_TO_ARROW).parameters else {}


def check_schema(owner: str, schema: object) -> None:
    """Check a schema that a user gives.

    Args:
        owner: the class or function that takes the schema, for errors.
        schema: the schema.

    Raises:
        FlowTypeError: it is neither a `StructType` nor text.
        FlowBuildError: it names a column twice; Spark ignores case.
    """
    if not isinstance(schema, (StructType, str)):
        raise FlowTypeError(f"{owner}'s schema must be a StructType or text, got {shorten(schema)}")
    names = schema.names if isinstance(schema, StructType) else _names_in(schema)
    folded = [name.casefold() for name in names]
    for name in names:
        if folded.count(name.casefold()) > 1:
            raise FlowBuildError(
                f"{owner}'s schema must name each column once, and names {name!r} more than "
                f"once: {shorten(names)}"
            )


def _names_in(schema: str) -> list[str]:
    """Return the names of the columns in DDL text.

    >>> _names_in("key string, `a, b` struct<x: int, y: int>, total decimal(10, 2)")
    ['key', 'a, b', 'total']
    """
    text = re.sub(r"`[^`]*`", lambda quoted: quoted[0].replace(",", "\0"), schema)
    while (plain := re.sub(r"[<(][^<>()]*[>)]", "", text)) != text:
        text = plain
    firsts = (re.match(r"\s*(`[^`]*`|[^\s:]+)", column) for column in text.split(","))
    return [first[1].strip("`").replace("\0", ",") for first in firsts if first]


def to_arrow(schema: StructType | str) -> pa.Schema:
    """Return a Spark schema as Arrow's, with timestamps in UTC.

    Args:
        schema: the schema, or DDL text, which only a process with a Spark session can parse.

    Raises:
        FlowBuildError: the text is not DDL, or a column has a type that Arrow cannot represent.
    """
    kind = _parsed(schema)
    try:
        return _TO_ARROW(kind, **_IN_UTC)
    except PySparkException as error:
        raise FlowBuildError(
            f"the schema {kind.simpleString()} has a column of a type that Python cannot exchange "
            f"with Spark: {first_line(error)}"
        ) from error


def _parsed(schema: StructType | str) -> Any:
    if isinstance(schema, StructType):
        return schema
    try:
        return StructType.fromDDL(schema)
    except PySparkException as error:
        raise FlowBuildError(
            f"a schema must be DDL text such as 'key string, total double', got {schema!r}: "
            f"{first_line(error)}"
        ) from error


def to_spark(schema: pa.Schema) -> StructType:
    """Return an Arrow schema as Spark's: times without a zone become ``timestamp_ntz``.

    Raises:
        FlowBuildError: a column has a type that Spark lacks.
    """
    return StructType([StructField(field.name, _spark_type(field)) for field in schema])


def _spark_type(field: pa.Field) -> Any:
    try:
        return _FROM_ARROW(with_leaves(field.type, _shared_type), prefer_timestamp_ntz=True)
    except PySparkException as error:
        raise FlowBuildError(
            f"column {field.name!r} is {field.type}, a type that Spark lacks: map the items, or "
            "give a schema with the columns that are needed"
        ) from error


def _shared_type(kind: Any) -> Any:
    """Return the type that Spark has for a type of Arrow, as Spark reads it from a Parquet file."""
    return kind.value_type if pa.types.is_dictionary(kind) else _SPARK_HAS.get(kind, kind)


_SPARK_HAS = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
