"""Parsers of lines: their contract, checks of UTF-8, and the parsers of JSON."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from typing_extensions import override

from flow.columns.arrow_types import with_leaves
from flow.errors import FlowBuildError, shorten

Piece = TypeVar("Piece")
Items = TypeVar("Items")

ParsedItems: TypeAlias = "list[Any] | pa.Table"
"""Items of lines: objects, or records in columns."""


class LineParser(ABC):
    """Parser of the lines of one file.

    Attributes:
        blank: characters of a blank line, which is skipped; ``None`` if no line is.
    """

    blank: bytes | None = None

    @abstractmethod
    def parse(self, data: bytes, count: int | None = None) -> ParsedItems | None:
        """Parse whole lines.

        Args:
            data: the lines, each with its line end.
            count: number of lines that are not blank, where known.

        Returns:
            The items of the lines; ``None`` if any line is bad.
        """

    @abstractmethod
    def reason(self, line: bytes) -> str:
        """Return the reason why `parse` refuses a line."""

    def is_blank(self, line: bytes) -> bool:
        """Return True if a line is blank, and so skipped."""
        return self.blank is not None and not line.strip(self.blank)


def sift(
    pieces: Sequence[Piece], parse: Callable[[Sequence[Piece]], Items | None]
) -> tuple[list[Items], list[int]]:
    """Separate pieces of input into the items of good ones, in order, and the indexes of bad ones.

    Pieces are halved repeatedly until each bad one is alone.

    Args:
        pieces: the pieces, such as lines.
        parse: function that returns the items of pieces; ``None`` if any of them is bad.
    """
    good: list[Items] = []
    bad: list[int] = []
    ranges = [(0, len(pieces))]
    while ranges:
        start, end = ranges.pop()
        items = parse(pieces[start:end])
        if items is not None:
            good.append(items)
        elif end - start == 1:
            bad.append(start)
        else:
            middle = (start + end) // 2
            ranges += [(middle, end), (start, middle)]
    return good, bad


def utf8_problem(line: bytes) -> str | None:
    """Return the reason why a line is not UTF-8; ``None`` if it is."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 text, at byte {error.start + 1} of the line"
    return None


def is_utf8(data: bytes) -> bool:
    """Return True if bytes are UTF-8, without decoding, which would take the memory twice."""
    if data.isascii():
        return True
    offsets = np.array([0, len(data)], np.int64)
    text = pa.LargeStringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(data))
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


_WHITESPACE = b" \t\r"
_BLANK = _WHITESPACE.decode()
_LINE_END, _OPENS, _CLOSES = b"\n{}"

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""The escape of a surrogate, which is half of a character and no character alone."""


class JsonObjectParser(LineParser):
    """Parser of lines to the objects that `json.loads` gives."""

    blank = _WHITESPACE

    @override
    def parse(self, data: bytes, count: int | None = None) -> ParsedItems | None:
        try:
            lines = data.decode().split("\n")
            values = [_value(line) for line in lines if line and line.strip(_BLANK)]
            if _SURROGATE.search(data):
                _check_text(values)
        except (ValueError, RecursionError):
            return None
        return values

    @override
    def reason(self, line: bytes) -> str:
        return _json_problem(line) or "not JSON"


def _check_text(value: Any) -> None:
    """Raise a `UnicodeEncodeError` if text in a value has half of a surrogate pair."""
    json.dumps(value, ensure_ascii=False).encode()


_decode = json.JSONDecoder().raw_decode


def _value(line: str) -> Any:
    # Shortcut: `json.loads` spends a third of its time on white space around the value.
    if line[0] > " ":
        value, end = _decode(line)
        if end == len(line):
            return value
    return json.loads(line)


class JsonColumnParser(LineParser):
    """Parser of lines with one JSON object each to the columns of a schema."""

    blank = _WHITESPACE

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._as_read = pa.schema([(field.name, type_as_read(field.type)) for field in schema])
        wide = [(field.name, with_leaves(field.type, _widened)) for field in self._as_read]
        self._widened = pa.schema(wide)
        self._large = _large_number(self._as_read)

    @override
    def parse(self, data: bytes, count: int | None = None) -> ParsedItems | None:
        lines = _count_objects(data)
        if lines is None or not is_utf8(data):
            return None
        if lines == 0:
            return []
        try:
            table = _read_json(data, self._as_read).cast(self._schema)
            if self._has_other_infinities(data, table) or self._has_overflow(data):
                return None
        except (pa.ArrowException, ValueError):
            return None
        return table if table.num_rows == lines else None

    def _has_other_infinities(self, data: bytes, table: pa.Table) -> bool:
        """Return True if Arrow has read a number as infinite that a narrow float cannot hold."""
        count = 0 if self._widened == self._as_read else _infinities(table.to_struct_array())
        return count > 0 and count > _infinities(_read_json(data, self._widened).to_struct_array())

    def _has_overflow(self, data: bytes) -> bool:
        """Return True if Arrow has read a decimal without its high bits."""
        if self._large is None or not self._large.search(data):
            return False
        lines = (line for line in data.decode().split("\n") if line.strip(_BLANK))
        objects = (json.loads(line, parse_float=Decimal) for line in lines)
        return any(_overflows(pa.struct(list(self._as_read)), value) for value in objects)

    @override
    def reason(self, line: bytes) -> str:
        problem = _json_problem(line)
        if problem is not None:
            return problem
        value = json.loads(line.decode())
        if not isinstance(value, dict):
            return f"a JSON object is needed, got {type(value).__name__}"
        names = [name for name, _ in json.loads(line.decode(), object_pairs_hook=list)]
        for field in self._schema:
            parser = JsonColumnParser(pa.schema([field]))
            if parser.parse(line + b"\n") is None:
                if names.count(field.name) > 1:
                    return f"the object has field {field.name!r} {names.count(field.name)} times"
                got = shorten(value[field.name]) if field.name in value else "missing"
                return f"field {field.name!r} does not fit {field.type}: {got}"
        return "does not fit the schema"


def _count_objects(data: bytes) -> int | None:
    """Count the lines that are not blank; ``None`` unless all of them start and end with a brace.

    pyarrow's reader sees objects, not lines, and a line without braces, such as ``null``, can crash
    it. If every line starts and ends with a brace and there are as many objects as lines, each line
    is one object: inside an object, no line that starts with a brace can follow a line that ends
    with one.
    """
    if data.startswith(b"{") and data.endswith(b"}\n"):
        text = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(text == _LINE_END)
        if (text[ends - 1] == _CLOSES).all() and (text[ends[:-1] + 1] == _OPENS).all():
            return len(ends)
    lines = [line for one in data.split(b"\n") if (line := one.strip(_WHITESPACE))]
    if all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
        return len(lines)
    return None


def _read_json(data: bytes, schema: pa.Schema) -> Any:
    """Return the table of JSON objects, with the columns of a schema; other fields are ignored."""
    return pyarrow.json.read_json(
        pa.BufferReader(data),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore"
        ),
    )


def _large_number(schema: pa.Schema) -> re.Pattern[bytes] | None:
    """Return a pattern in each decimal that is too large for Arrow; ``None`` without decimals."""
    types = " ".join(str(field.type) for field in schema)
    scales = [int(scale) for scale in re.findall(r"decimal256\(76, (-?[0-9]+)\)", types)]
    return re.compile(rb"[0-9]{%d}|[0-9][eE]" % max(1, 77 - max(scales))) if scales else None


def _overflows(kind: Any, value: Any) -> bool:
    """Return True if a decimal in a JSON value has more than 256 bits in a column of a type.

    Arrow checks the digits of the value, adds those up to the scale, and drops the high bits.
    """
    if value is None:
        return False
    if pa.types.is_struct(kind):
        return any(_overflows(field.type, value.get(field.name)) for field in kind)
    if pa.types.is_list(kind):
        return any(_overflows(kind.value_type, one) for one in value)
    if not pa.types.is_decimal(kind):
        return False
    return Decimal(value).copy_abs() >= Decimal((0, (1,), 76 - kind.scale))


def _widened(leaf: Any) -> Any:
    return pa.float64() if pa.types.is_floating(leaf) else leaf


def _infinities(column: Any) -> int:
    """Count the infinite floats of a column and its parts."""
    types, kind = pa.types, column.type
    if isinstance(column, pa.ChunkedArray):
        return sum(map(_infinities, column.chunks))
    if types.is_struct(kind):
        return sum(map(_infinities, column.flatten()))
    if types.is_list(kind) or types.is_large_list(kind):
        return _infinities(column.flatten())
    return pc.sum(pc.is_inf(column)).as_py() or 0 if types.is_floating(kind) else 0


def type_as_read(kind: Any) -> Any:
    """Return the type as which Arrow reads a column before the cast to its own type.

    Times are read as text: the reader takes a time without an offset for UTC, and reads a date only
    from a number. A decimal is read with twice its bits, and the cast refuses one with too many,
    which would lose its high bits.
    """
    if pa.types.is_decimal(kind):
        return pa.decimal256(76, kind.scale)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.string()
    if pa.types.is_dictionary(kind):
        return type_as_read(kind.value_type)
    if pa.types.is_large_list(kind):
        return pa.large_list(type_as_read(kind.value_type))
    if pa.types.is_list(kind):
        return pa.list_(type_as_read(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, type_as_read(field.type)) for field in kind])
    return kind


def check_json_types(schema: pa.Schema) -> None:
    """Raise a `FlowBuildError` if JSON cannot be read to columns of these types.

    Times of day are refused, as pyarrow casts no text to them.
    """
    for field in schema:
        try:
            _read_json(b"{}\n", pa.schema([(field.name, type_as_read(field.type))])).cast(
                pa.schema([(field.name, field.type)])
            )
        except pa.ArrowNotImplementedError as error:
            raise FlowBuildError(
                f"schema: column {field.name!r} cannot be read from JSON as {field.type}"
            ) from error


def _json_problem(line: bytes) -> str | None:
    """Return the reason why a line is not JSON; ``None`` if it is."""
    problem = utf8_problem(line)
    if problem is not None:
        return problem
    try:
        _check_text(json.loads(line.decode()))
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        return f"half of a surrogate pair, \\u{ord(half):x}, which is no character"
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
    except ValueError as error:
        return f"not JSON: {error}"
    except RecursionError:
        return "not JSON: nested too deeply"
    return None
