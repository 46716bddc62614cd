"""Columns as the cells of a CSV file."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flow.connectors.files.plain_values import json_text, naive_problem
from flow.errors import SinkError

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


def _cells(name: str, column: Any, step_id: str) -> Any:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _cells(name, column.dictionary_decode(), step_id)
    if pa.types.is_timestamp(kind):
        if kind.tz is None:
            raise SinkError(f"step {step_id!r}: field {name!r}: {naive_problem(str(kind))}")
        return _instants(column)
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


def _instants(column: Any) -> Any:
    """RFC 3339, as in JSON lines: with a fraction only where there is one."""
    text = column.cast(pa.timestamp(column.type.unit, "UTC")).cast(pa.string())
    text = pc.replace_substring(text, " ", "T")
    return pc.replace_substring_regex(text, r"\.0+Z$", "Z")


def _json(name: str, value: Any, step_id: str) -> str | None:
    try:
        return None if value is None else json_text(value)
    except (TypeError, ValueError) as error:
        raise SinkError(f"step {step_id!r}: field {name!r}: {error}") from error
