"""Columns as the cells of a CSV file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from flow.checks import wrong_type
from flow.columns.record_batches import as_objects
from flow.connectors.formats.json_encoding import instant_texts, json_text, naive_problem
from flow.errors import FlowBuildError, SinkError, shorten

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


def csv_cells(batch: pa.RecordBatch, delimiter: str, step_id: str) -> pa.RecordBatch:
    """Return the columns of a batch in types that Arrow's CSV writer supports.

    Raises:
        SinkError: a column has no form in CSV; the error names it.
    """
    columns = [_cells(name, batch.column(name), step_id) for name in batch.schema.names]
    if delimiter.isalnum() or delimiter in "+-.:":  # Numbers and times have these, and no quotes.
        columns = [column.cast(pa.string()) for column in columns]
    if len(columns) == 1 and columns[0].null_count:
        # An empty cell alone is a blank line, which readers skip, but not if it is quoted.
        columns = [columns[0].cast(pa.string()).fill_null("")]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def check_delimiter(delimiter: object) -> None:
    """Raise unless `delimiter` is one ASCII character that can separate cells."""
    if not isinstance(delimiter, str):
        raise wrong_type("delimiter must be text", delimiter)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise FlowBuildError(
            "delimiter must be one ASCII character, neither a quote nor a line end, "
            f"got {shorten(delimiter)}"
        )


def reorder(lines: Iterable[bytes], order: Sequence[int], delimiter: str) -> Iterator[bytes]:
    r"""Yield the records of a CSV file, header included, with their cells in another order.

    The text of cells stays, so that text and null still differ by their quotes.

    Args:
        lines: lines of the file, with their line ends.
        order: for each new cell, its index in the old record.
        delimiter: character between cells.

    >>> list(reorder([b'"a","b"\n', b'"x\n', b',y",1\n'], [1, 0], ","))
    [b'"b","a"\n', b'1,"x\n,y"\n']
    """
    between = delimiter.encode()
    for record in _whole(lines, b""):
        cells = list(_whole(record.removesuffix(b"\n").split(between), between))
        yield between.join([cells[index] for index in order]) + b"\n"


def _whole(pieces: Iterable[bytes], between: bytes) -> Iterator[bytes]:
    """Join the pieces of CSV text that were cut within quotes."""
    parts: list[bytes] = []
    quotes = 0
    for piece in pieces:
        parts.append(piece)
        quotes += piece.count(b'"')
        if quotes % 2 == 0:
            yield between.join(parts)
            parts.clear()


def _cells(name: str, column: Any, step_id: str) -> Any:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _cells(name, column.dictionary_decode(), step_id)
    if pa.types.is_timestamp(kind):
        if kind.tz is None:
            raise SinkError(f"step {step_id!r}: field {name!r}: {naive_problem(str(kind))}")
        return instant_texts(column)
    if pa.types.is_nested(kind):
        return pa.array([_json(name, value, step_id) for value in as_objects(column)], pa.string())
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if not any(is_kind(kind) for is_kind in _WRITABLE):
        raise SinkError(
            f"step {step_id!r}: field {name!r} is {kind}, which has no form in CSV: "
            "map it to text before the output, or write another format"
        )
    return column


def _json(name: str, value: Any, step_id: str) -> str | None:
    try:
        return None if value is None else json_text(value)
    except (TypeError, ValueError) as error:
        raise SinkError(f"step {step_id!r}: field {name!r}: {error}") from error
