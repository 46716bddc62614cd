"""Columns as the cells of a CSV file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flow.connectors.formats.plain_values import json_text, naive_problem
from flow.errors import FlowBuildError, FlowTypeError, SinkError, shorten

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_WRITABLE = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_time,
)


def csv_cells(batch: pa.RecordBatch, step_id: str) -> pa.RecordBatch:
    """The columns of a batch in types that a CSV writer knows.

    Raises:
        SinkError: naming the column that has no form in CSV.
    """
    columns = [_cells(name, batch.column(name), step_id) for name in batch.schema.names]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def check_delimiter(delimiter: object) -> None:
    """Raise unless `delimiter` is one ASCII character that can separate cells."""
    if not isinstance(delimiter, str):
        raise FlowTypeError(
            f"delimiter must be text, got {type(delimiter).__name__} {shorten(delimiter)}"
        )
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise FlowBuildError(
            "delimiter must be one ASCII character, neither a quote nor a line end, "
            f"got {shorten(delimiter)}"
        )


def reordered(
    lines: Iterable[bytes], places: Sequence[int], delimiter: str, step_id: str
) -> Iterator[bytes]:
    r"""The records of a CSV file, the header among them, with their cells in another order.

    Cells stay as they are written, so that text and null still differ by their quotes.

    Args:
        lines: the lines of the file, with their ends.
        places: for each cell of the new order, where it is in the old one.
        delimiter: the character between cells.
        step_id: the output's step, for the error.

    Raises:
        SinkError: a number or a time holds the delimiter.

    >>> list(reordered([b'"a","b"\n', b'"x\n', b',y",1\n'], [1, 0], ",", "out"))
    [b'"b","a"\n', b'1,"x\n,y"\n']
    """
    between = delimiter.encode()
    for record in _whole(lines, b""):
        cells = list(_whole(record.removesuffix(b"\n").split(between), between))
        if len(cells) != len(places):
            raise SinkError(
                f"step {step_id!r}: {shorten(record.decode())} has {len(cells)} cells for "
                f"{len(places)} columns: choose a delimiter that no number or time holds"
            )
        yield between.join([cells[place] for place in places]) + b"\n"


def _whole(pieces: Iterable[bytes], between: bytes) -> Iterator[bytes]:
    """Pieces of CSV text, joined where they were cut within quotes."""
    waiting: list[bytes] = []
    quotes = 0
    for piece in pieces:
        waiting.append(piece)
        quotes += piece.count(b'"')
        if quotes % 2 == 0:
            yield between.join(waiting)
            waiting.clear()


def _cells(name: str, column: Any, step_id: str) -> Any:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _cells(name, column.dictionary_decode(), step_id)
    if pa.types.is_timestamp(kind):
        if kind.tz is None:
            raise SinkError(f"step {step_id!r}: field {name!r}: {naive_problem(str(kind))}")
        return instant_texts(column)
    if pa.types.is_nested(kind):
        return pa.array([_json(name, value, step_id) for value in column.to_pylist()], pa.string())
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if not any(is_kind(kind) for is_kind in _WRITABLE):
        raise SinkError(
            f"step {step_id!r}: field {name!r} is {kind}, which has no form in CSV: "
            "map it to text before the output, or write another format"
        )
    return column


def instant_texts(column: Any) -> Any:
    """Points in time as RFC 3339 has them, in UTC, with a fraction only where there is one."""
    unit = column.type.unit
    # Arrow writes a time without a zone forty times as fast as one with UTC.
    bare = column.cast(pa.timestamp(unit, "UTC")).cast(pa.int64()).cast(pa.timestamp(unit))
    texts = pc.replace_substring(bare.cast(pa.string()), " ", "T", max_replacements=1)
    nothing = "." + "0" * _DIGITS[unit]
    if _DIGITS[unit]:
        whole = pc.utf8_slice_codeunits(texts, 0, -len(nothing))
        texts = pc.if_else(pc.ends_with(texts, nothing), whole, texts)
    return pc.binary_join_element_wise(texts, "Z", "")


def _json(name: str, value: Any, step_id: str) -> str | None:
    try:
        return None if value is None else json_text(value)
    except (TypeError, ValueError) as error:
        raise SinkError(f"step {step_id!r}: field {name!r}: {error}") from error
