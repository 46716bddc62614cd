"""Deserializers of keys and values: bytes, text, JSON and Avro.

A deserializer reads one key or value to an object, or many keys or values to a column. If some are
bad, it makes no column, and only then the reader searches for the bad ones.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.connectors.formats import avro_types
from flow.connectors.formats.line_parsers import JsonColumnParser

Data = Sequence["bytes | None"]

_LINE_END = ord("\n")


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
        try:
            self.read(data)
        except ValueError as error:
            return str(error)
        return None if self.column([data]) is not None else "it does not fit the schema"


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
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"not UTF-8 text, at byte {error.start + 1}") from None

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
            return json.loads(data.decode())
        except UnicodeDecodeError as error:
            raise ValueError(f"not UTF-8 text, at byte {error.start + 1}") from None
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
            return self._empty_column() if not data else None
        return _struct(table)

    def _empty_column(self) -> Any:
        return pa.array([], self.kind)

    @override
    def problem(self, data: bytes | None) -> str | None:
        if data is None:
            return super().problem(data)
        try:
            value = self.read(data)
        except ValueError as error:
            return str(error)
        if self.column([data]) is not None:
            return None
        return self._parser.reason(json.dumps(value).encode())

    def _column_of_multiline(self, data: Data) -> Any | None:
        """Read values that contain line ends, which are white space in JSON."""
        try:
            return self.column([json.dumps(self.read(one or b"")).encode() for one in data])
        except ValueError:
            return None


class AvroDeserializer(Deserializer):
    """Avro in its binary encoding of a known schema, without a header."""

    accepts_null = False

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self._parsed = avro_types.parse_schema(schema)
        self._column_schema = avro_types.parse_schema(avro_types.without_uuids(schema))

    def __reduce__(self) -> Any:
        return AvroDeserializer, (self.schema,)

    @cached_property
    def kind(self) -> Any:
        """Arrow type of a column; raises a `FlowBuildError` if no column can hold the values."""
        return avro_types.arrow_type(self._column_schema)

    @override
    def read(self, data: bytes) -> Any:
        return self._read(data, self._parsed)

    @override
    def column(self, data: Data) -> Any | None:
        if None in data:
            return None
        try:
            return pa.array(
                [self._read(one or b"", self._column_schema) for one in data], self.kind
            )
        except (ValueError, pa.ArrowException, OverflowError, TypeError):
            return None

    def _read(self, data: bytes, schema: Any) -> Any:
        import fastavro

        stream = io.BytesIO(data)
        try:
            value = fastavro.schemaless_reader(stream, schema, None)
        except Exception as error:  # broken bytes can lead to any error
            raise ValueError(f"not Avro of the schema ({type(error).__name__})") from None
        left = len(data) - stream.tell()
        if left:
            raise ValueError(f"not Avro of the schema ({left} bytes are left over)")
        return value


def _struct(table: pa.Table) -> Any:
    """Return the columns of a table as one struct column."""
    columns = [column.combine_chunks() for column in table.columns]
    arrays = [
        column.chunk(0) if isinstance(column, pa.ChunkedArray) else column for column in columns
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(table.schema))
