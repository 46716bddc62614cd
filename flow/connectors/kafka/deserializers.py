"""Deserializers of the keys and values of messages.

A deserializer reads one key or value to an object, or many keys or values to a column. If some are
bad, it makes no column, and only then the reader searches for the bad ones.
"""

from __future__ import annotations

import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from flow.checks import check_choice
from flow.connectors.formats.columns import Schema, as_schema
from flow.connectors.formats.line_parsers import (
    JsonColumnParser,
    check_json_types,
    is_utf8,
    type_as_read,
)
from flow.connectors.kafka import avro_types
from flow.errors import FlowBuildError, first_line, package_of_extra

Data = Sequence["bytes | None"]

FormName: TypeAlias = Literal["bytes", "text", "json", "avro"]
"""Format of keys or values."""

AnySchema: TypeAlias = "Schema | str | Mapping[str, Any] | Sequence[Any]"
"""Columns of JSON objects, or an Avro schema."""

_LINE_END = ord("\n")

_MINUS_ZERO = re.compile(rb"-0\s*[,}]")


class Deserializer(ABC):
    """Reader of the bytes of keys or values; a piece is the bytes of one key or value.

    Attributes:
        kind: Arrow type of a column.
        accepts_null: True if missing bytes are read as null.
    """

    kind: Any
    accepts_null: bool = True

    @abstractmethod
    def read(self, data: bytes) -> Any:
        """Read one piece to a Python object.

        Raises:
            ValueError: the piece cannot be read; the text of the error is the reason.
        """

    @abstractmethod
    def column(self, data: Data) -> Any | None:
        """Read pieces to one array of type `kind`; ``None`` if a piece cannot be read."""

    def problem(self, data: bytes | None) -> str | None:
        """Return the reason why a piece cannot be part of a column; ``None`` if it can."""
        if data is None:
            return None if self.accepts_null else "there is nothing (a tombstone)"
        problem = self.read_problem(data)
        if problem is not None or self.column([data]) is not None:
            return problem
        return self._misfit(data)

    def read_problem(self, data: bytes) -> str | None:
        """Return the reason why `read` refuses a piece; ``None`` if it does not."""
        try:
            self.read(data)
        except ValueError as error:
            return str(error)
        return None

    def _misfit(self, data: bytes) -> str:  # noqa: ARG002
        """Return the reason why a piece that can be read does not fit the column."""
        return "it does not fit the schema"


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text, at byte {error.start + 1}") from None


class BytesDeserializer(Deserializer):
    """Bytes, unchanged."""

    kind = pa.binary()

    @override
    def read(self, data: bytes) -> Any:
        return data

    @override
    def column(self, data: Data) -> Any | None:
        return pa.array(data, pa.binary())


class TextDeserializer(Deserializer):
    """Text in UTF-8."""

    kind = pa.string()

    @override
    def read(self, data: bytes) -> Any:
        return _text(data)

    @override
    def column(self, data: Data) -> Any | None:
        try:
            return pa.array(data, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            return None


class JsonDeserializer(Deserializer):
    """JSON, as the objects that `json.loads` returns."""

    kind = pa.null()
    accepts_null = False

    @override
    def read(self, data: bytes) -> Any:
        try:
            return json.loads(_text(data))
        except json.JSONDecodeError as error:
            raise ValueError(f"not JSON: {error.msg} at byte {error.pos + 1}") from None
        except RecursionError:
            raise ValueError("not JSON: nested too deeply") from None

    @override
    def column(self, data: Data) -> Any | None:
        return None


class JsonColumns(JsonDeserializer):
    """JSON objects, as columns of a schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.kind = pa.struct(list(schema))
        self._parser = JsonColumnParser(schema)

    @override
    def column(self, data: Data) -> Any | None:
        if None in data:
            return None
        lines = b"\n".join([*data, b""])  # type: ignore[list-item]
        if np.count_nonzero(np.frombuffer(lines, np.uint8) == _LINE_END) > len(data):
            return self._column_of_multiline(data)
        table = self._parser.parse(lines)
        if not isinstance(table, pa.Table) or table.num_rows != len(data):
            return pa.array([], self.kind) if not data else None
        return table.to_struct_array().combine_chunks()

    @override
    def _misfit(self, data: bytes) -> str:
        return self._parser.reason(data.replace(b"\n", b" "))

    def _column_of_multiline(self, data: Data) -> Any | None:
        """Read values that contain line ends, which are white space in JSON."""
        if any(self.read_problem(one or b"") for one in data):
            return None
        return self.column([(one or b"").replace(b"\n", b" ") for one in data])


class AvroDeserializer(Deserializer):
    """Avro in its binary encoding of a known schema, without a header.

    Args:
        schema: the schema that the bytes were written with.
        reader: the schema to read them as, by Avro's schema resolution; ``None`` for the same.
    """

    accepts_null = False

    def __init__(self, schema: Any, reader: Any = None) -> None:
        self.schema, self.reader = schema, reader
        self._parsed = _parsed(schema, reader)
        self._column_schemas = _parsed(*map(avro_types.without_uuids, (schema, reader)))

    def __reduce__(self) -> Any:
        return AvroDeserializer, (self.schema, self.reader)

    @cached_property
    def kind(self) -> Any:
        """Arrow type of a column; raises a `FlowBuildError` if no column can hold the values."""
        schema, reader = self._column_schemas
        return avro_types.arrow_type(schema if reader is None else reader)

    @override
    def read(self, data: bytes) -> Any:
        return self._read(data, self._parsed)

    @override
    def column(self, data: Data) -> Any | None:
        if None in data:
            return None
        try:
            return pa.array(
                [self._read(one or b"", self._column_schemas) for one in data], self.kind
            )
        except (ValueError, pa.ArrowException, OverflowError, TypeError):
            return None

    def _read(self, data: bytes, schemas: Any) -> Any:
        import fastavro

        stream = io.BytesIO(data)
        try:
            value = fastavro.schemaless_reader(stream, *schemas)
        except fastavro.read.SchemaResolutionError as error:
            reason = first_line(error)
            raise ValueError(f"its schema does not fit the one it is read as: {reason}") from None
        except Exception as error:  # broken bytes can lead to any error
            raise ValueError(f"not Avro of the schema ({type(error).__name__})") from None
        left = len(data) - stream.tell()
        if left:
            raise ValueError(f"not Avro of the schema ({left} bytes are left over)")
        return value


def _parsed(schema: Any, reader: Any) -> tuple[Any, Any]:
    """Return two schemas as fastavro takes them."""
    if reader is None:
        return avro_types.parse_schema(schema), None
    # fastavro resolves no name in a union of the reader.
    parsed = (avro_types.parse_schema(each, expand=True) for each in (schema, reader))
    return next(parsed), next(parsed)


_PYTHON_TYPES: tuple[tuple[Callable[[Any], bool], type], ...] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_float64, float),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
)
"""Python type of a column's values. Arrow's reader reads narrower floats, as it rounds once; a
conversion through Python's float would round twice."""

_REFUSED = (ValueError, OverflowError, RecursionError)
"""Errors for an object that does not fit; those of msgspec and Arrow are ValueErrors."""


class FlatJsonColumns(JsonColumns):
    """JSON objects as columns of a schema for which `is_flat` is True.

    msgspec decodes only the wanted fields of an object. Arrow's reader, which decodes many objects
    at a time to columns of any type, looks up every field. One of seven fields of an object of 130
    bytes takes 3,500 instructions with msgspec and 7,600 with Arrow (kernel ``read-json`` of
    `benchmarks/kernels`), or 0.3 and 0.7 µs; all seven take 1.0 and 1.2 µs (a core of an AMD EPYC,
    msgspec 0.22, Arrow 26).

    Arrow's reader reads the objects that msgspec refuses, such as those with ``NaN`` and
    ``Infinity`` as Python writes them, and those with ``-0``, of which msgspec drops the sign; an
    object that both refuse, as one with ``1e400``, is bad. If an object has a wanted
    field twice, the last value counts, as in Python; Arrow's reader refuses such an object.
    """

    def __reduce__(self) -> Any:
        return FlatJsonColumns, (self.schema,)

    @override
    def column(self, data: Data) -> Any | None:
        # msgspec does not check the text of fields that it skips.
        if None in data or not is_utf8(b"\n".join(data)):  # type: ignore[arg-type]
            return None
        try:
            struct = self._struct(list(map(self._decode, data)))
        except _REFUSED:
            return self._column_with_refused(data)
        floats = [column for column in struct.flatten() if pa.types.is_floating(column.type)]
        zeros = (pc.indices_nonzero(pc.equal(column, 0)).to_numpy().tolist() for column in floats)
        of_zeros = b"\n".join(data[row] or b"" for rows in zeros for row in rows)
        return self._column_with_refused(data) if _MINUS_ZERO.search(of_zeros) else struct

    def _column_with_refused(self, data: Data) -> Any | None:
        """Return the column of objects if msgspec refuses some of them, which Arrow then reads."""
        objects: list[Any] = []
        refused: list[bytes | None] = []
        is_decoded = np.ones(len(data), np.bool_)
        for row, text in enumerate(data):
            try:
                if _MINUS_ZERO.search(text or b""):
                    raise ValueError(text)
                objects.append(self._decode(text))
            except _REFUSED:
                refused.append(text)
                is_decoded[row] = False
        others = super().column(refused)
        if others is None:
            return None
        try:
            both = pa.concat_arrays([self._struct(objects), others])
        except _REFUSED:
            return None
        rows = (
            np.where(is_decoded, np.cumsum(is_decoded), len(objects) + np.cumsum(~is_decoded)) - 1
        )
        return both.take(pa.array(rows))

    def _struct(self, objects: list[Any]) -> Any:
        columns = [
            pa.array(list(map(attrgetter(_name(number)), objects)), type_as_read(field.type))
            for number, field in enumerate(self.schema)
        ]
        fitting = [
            column.cast(field.type) for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.StructArray.from_arrays(fitting, fields=list(self.schema))

    @cached_property
    def _decode(self) -> Callable[[Any], Any]:
        """Decoder of one object.

        Raises:
            EnvironmentProblem: msgspec is not installed.
        """
        with package_of_extra("kafka", "msgspec", "JSON of Kafka", on_workers=True):
            import msgspec
        names = {_name(number): field.name for number, field in enumerate(self.schema)}
        kinds: list[Any] = [_python_type(field.type) for field in self.schema]
        fields = [(name, kind | None, None) for name, kind in zip(names, kinds, strict=True)]
        object_type = msgspec.defstruct("Object", fields, rename=names, gc=False)
        decode: Callable[[Any], Any] = msgspec.json.Decoder(object_type).decode
        return decode


def is_flat(schema: pa.Schema) -> bool:
    """Return True if all columns are whole numbers, 64-bit floats, text, times or booleans."""
    return all(_python_type(field.type) is not None for field in schema)


def _python_type(kind: Any) -> Any | None:
    """Return the Python type of a column's values; ``None`` if Arrow's reader must read them."""
    read = kind if pa.types.is_dictionary(kind) else type_as_read(kind)
    return next((python for is_kind, python in _PYTHON_TYPES if is_kind(read)), None)


def _name(number: int) -> str:
    """Return the Python name of a field, as not every name is an identifier."""
    return f"field_{number}"


def deserializer_of(
    name: str, format_name: str, schema: AnySchema | None, *, records: bool
) -> Deserializer:
    """Return the deserializer of keys or values.

    Raises:
        FlowTypeError, FlowBuildError: the schema does not fit the format.
    """
    check_choice(name, format_name, get_args(FormName))
    argument = "schema" if name == "value" else "key_schema"
    if schema is not None and format_name not in ("json", "avro"):
        raise FlowBuildError(
            f"KafkaSource: {argument} is for {name}='json' or {name}='avro', "
            f"got {name}={format_name!r}"
        )
    if schema is None and (format_name == "avro" or (format_name == "json" and records)):
        raise FlowBuildError(f"KafkaSource: {name}={format_name!r} needs {argument}")
    match format_name:
        case "bytes":
            return BytesDeserializer()
        case "text":
            return TextDeserializer()
        case "avro":
            deserializer = AvroDeserializer(schema)
            if records:
                _ = deserializer.kind
            return deserializer
    if not records:
        if schema is not None:
            raise FlowBuildError(
                f"KafkaSource: {argument} names the columns of records: leave it out for "
                "messages, whose JSON is read without a schema"
            )
        return JsonDeserializer()
    columns = as_schema(schema)
    check_json_types(columns)
    return FlatJsonColumns(columns) if is_flat(columns) else JsonColumns(columns)
