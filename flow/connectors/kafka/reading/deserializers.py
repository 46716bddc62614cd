"""How the bytes of keys and values are read: as they are, as text, as JSON, or as Avro.

A form reads one key or value to an object, or many to a column. A column is made of all or of none,
so that many are read at the speed of one, and what is bad is looked for only where there is any.
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
from flow.connectors.formats.json_decoding import JsonColumnParser

Data = Sequence["bytes | None"]

_LINE_END = ord("\n")


class Form(ABC):
    """How bytes are read.

    Attributes:
        kind: the type of a column.
        takes_nothing: whether it reads no bytes at all as null.
    """

    kind: Any
    takes_nothing: bool = True

    @abstractmethod
    def read(self, data: bytes) -> Any:
        """Read one.

        Raises:
            ValueError: when it cannot be read, with the reason.
        """

    @abstractmethod
    def column(self, data: Data) -> Any | None:
        """Read many, in one array of type `kind`; ``None`` when there is one that cannot be."""

    def problem(self, data: bytes | None) -> str | None:
        """Why one cannot be part of a column; ``None`` where it can."""
        if data is None:
            return None if self.takes_nothing else "there is nothing (a tombstone)"
        try:
            self.read(data)
        except ValueError as error:
            return str(error)
        return None if self.column([data]) is not None else "it does not fit the schema"


class BytesForm(Form):
    """Bytes as they are."""

    kind = pa.binary()

    @override
    def read(self, data: bytes) -> Any:
        return data

    @override
    def column(self, data: Data) -> Any | None:
        return pa.array(data, pa.binary())


class TextForm(Form):
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


class JsonForm(Form):
    """JSON, as the objects that it gives."""

    kind = pa.null()
    takes_nothing = False

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


class JsonColumns(JsonForm):
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
            return self._of_uneven(data)
        table = self._parser.parse(lines)
        if not isinstance(table, pa.Table) or table.num_rows != len(data):
            return self.nothing() if not data else None
        return _struct(table)

    def nothing(self) -> Any:
        """The column of no values."""
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

    def _of_uneven(self, data: Data) -> Any | None:
        """Values with line ends in them, which are white space there."""
        try:
            return self.column([json.dumps(self.read(one or b"")).encode() for one in data])
        except ValueError:
            return None


class AvroForm(Form):
    """Avro in its binary encoding, with a schema that is known beforehand and nothing before it."""

    takes_nothing = False

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self._parsed = avro_types.parsed(schema)
        self._of_column = avro_types.parsed(avro_types.without_uuids(schema))

    def __reduce__(self) -> Any:
        return AvroForm, (self.schema,)

    @cached_property
    def kind(self) -> Any:
        """The type of a column; there is none for some schemas."""
        return avro_types.arrow_type(self._of_column)

    @override
    def read(self, data: bytes) -> Any:
        return self._read(data, self._parsed)

    @override
    def column(self, data: Data) -> Any | None:
        if None in data:
            return None
        try:
            return pa.array([self._read(one or b"", self._of_column) for one in data], self.kind)
        except (ValueError, pa.ArrowException, OverflowError, TypeError):
            return None

    def _read(self, data: bytes, schema: Any) -> Any:
        import fastavro

        stream = io.BytesIO(data)
        try:
            value = fastavro.schemaless_reader(stream, schema, None)
        except Exception as error:  # whatever the bytes lead it to
            raise ValueError(f"not Avro of the schema ({type(error).__name__})") from None
        left = len(data) - stream.tell()
        if left:
            raise ValueError(f"not Avro of the schema ({left} bytes are left over)")
        return value


def _struct(table: pa.Table) -> Any:
    """The columns of a table as one."""
    columns = [column.combine_chunks() for column in table.columns]
    arrays = [
        column.chunk(0) if isinstance(column, pa.ChunkedArray) else column for column in columns
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(table.schema))
