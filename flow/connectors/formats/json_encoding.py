"""Columns as JSON text, one text for each row, without a Python object for each row.

The values equal those of the records encoded one by one; a number may have another notation, such
as 1e+10. A column whose values Arrow cannot format as JSON (nested values, durations, characters to
escape) is encoded value by value.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flow.connectors.formats.csv_text import instant_texts
from flow.connectors.formats.plain_values import json_text, naive_problem
from flow.errors import SinkError, shorten

_NULL = "null"
_ESCAPED = r'["\\\x00-\x1f]'


def json_objects(batch: pa.RecordBatch, step_id: str) -> pa.Array:
    """Return each row as a JSON object.

    Raises:
        SinkError: a field has no form in JSON; the error names it.
    """
    if not batch.num_columns:
        return pa.array(["{}"] * batch.num_rows, pa.string())
    pieces: list[Any] = []
    for number, name in enumerate(batch.schema.names):
        pieces.append(("{" if not number else ", ") + json_text(name) + ": ")
        pieces.append(_field_texts(name, batch.column(number), step_id))
    return _joined(*pieces, "}")


def json_values(column: pa.Array) -> pa.Array:
    """Return each value as JSON; null becomes the text ``null``.

    Raises:
        ValueError: a value has no form in JSON.
        TypeError: a value has no form in JSON.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return json_values(column.dictionary).take(column.indices).fill_null(_NULL)
    for is_kind, texts in _ENCODERS:
        if is_kind(kind):
            found = texts(column)
            return found.fill_null(_NULL) if found.null_count else found
    return _one_by_one(column)


def _field_texts(name: str, column: pa.Array, step_id: str) -> pa.Array:
    try:
        return json_values(column)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise SinkError(
            f"step {step_id!r}: field {shorten(name)} ({column.type}) cannot be written as JSON: "
            f"{error}. Map it to text, numbers, lists or dicts before the output"
        ) from error


def _one_by_one(column: pa.Array) -> pa.Array:
    return pa.array([json_text(value) for value in column.to_pylist()], pa.string())


def _joined(*pieces: Any) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, "")


def _quoted(texts: pa.Array) -> pa.Array:
    return _joined('"', texts, '"')


def _numbers(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _booleans(column: pa.Array) -> pa.Array:
    return pc.if_else(column, "true", "false")


def _floats(column: pa.Array) -> pa.Array:
    numbers = column.cast(pa.float64())
    if not pc.all(pc.is_finite(numbers)).as_py() and numbers.null_count < len(numbers):
        raise ValueError("the column has a number that is not finite: map it to None or to text")
    texts = numbers.cast(pa.string())
    bare = pc.invert(pc.match_substring_regex(texts, "[.e]"))
    return pc.if_else(bare, _joined(texts, ".0"), texts) if pc.any(bare).as_py() else texts


def _texts(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    if pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
        return _one_by_one(texts)
    return _quoted(texts)


def _instants(column: pa.Array) -> pa.Array:
    if column.type.tz is None:
        raise ValueError(naive_problem(str(column.type)))
    return _quoted(instant_texts(column))


def _quoted_casts(column: pa.Array) -> pa.Array:
    return _quoted(column.cast(pa.string()))


def _lists(column: pa.Array) -> pa.Array:
    if len(column.flatten()):
        return _one_by_one(column)
    return pc.if_else(column.is_valid(), "[]", _NULL)


_ENCODERS = (
    (pa.types.is_boolean, _booleans),
    (pa.types.is_integer, _numbers),
    (pa.types.is_floating, _floats),
    (pa.types.is_string, _texts),
    (pa.types.is_large_string, _texts),
    (pa.types.is_timestamp, _instants),
    (pa.types.is_date, _quoted_casts),
    (pa.types.is_decimal, _quoted_casts),
    (pa.types.is_list, _lists),
)
