"""Values as plain data, and values and columns as JSON text.

Columns are encoded without a Python object for each row. The texts equal those of the records
encoded one by one; a number may have another notation, such as 1e+10. A column whose values Arrow
cannot format as JSON (nested values, durations, characters to escape) is encoded value by value.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flow.columns.record_batches import as_objects
from flow.errors import SinkError, shorten


def plain(value: Any) -> Any:
    """Return a value with its dataclasses, sets, tuples and enums as dicts, lists and values.

    >>> plain({"ids": {3, 1, 2}, "at": (1, 2)})
    {'ids': [1, 2, 3], 'at': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, (set, frozenset)):
        return [plain(part) for part in _sorted(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, (np.generic, np.ndarray)):
        if value.dtype.kind in "mM":
            raise TypeError(
                f"{value.dtype} has no time zone or unit: map it to datetime or timedelta"
            )
        return value.tolist()
    return value


def instant_text(value: datetime) -> str:
    """Return an aware datetime as RFC 3339 text.

    >>> instant_text(datetime(2013, 1, 1, tzinfo=UTC))
    '2013-01-01T00:00:00Z'
    """
    offset = value.utcoffset()
    if offset is None:
        raise ValueError(naive_problem(value.isoformat()))
    if offset % timedelta(minutes=1):
        value, offset = value.astimezone(UTC), timedelta(0)
    text = value.isoformat()
    return text if offset else text.removesuffix("+00:00") + "Z"


def naive_problem(what: str) -> str:
    """Return the error text of a datetime without a time zone."""
    return f"{what} has no time zone, so it names no point in time: give it one"


def _default(value: Any) -> Any:
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return str(value)
    laid_out = plain(value)
    if laid_out is value:
        raise TypeError(f"a value of type {type(value).__name__} cannot be written as JSON")
    return laid_out


json_text: Callable[[Any], str] = json.JSONEncoder(
    default=_default, ensure_ascii=False, allow_nan=False
).encode
"""Encoder of a value as JSON; raises TypeError or ValueError for a value without a form in JSON."""


def _sorted(values: set[Any] | frozenset[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=lambda value: (type(value).__name__, repr(value)))


_NULL = "null"
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
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


def instant_texts(column: Any) -> Any:
    """Return instants as RFC 3339 text in UTC, with a fraction only if it is not zero."""
    unit = column.type.unit
    # Arrow formats a time without a zone forty times as fast as one in UTC.
    bare = column.cast(pa.timestamp(unit, "UTC")).cast(pa.int64()).cast(pa.timestamp(unit))
    texts = pc.replace_substring(bare.cast(pa.string()), " ", "T", max_replacements=1)
    zeros = "." + "0" * _DIGITS[unit]
    if _DIGITS[unit]:
        whole = pc.utf8_slice_codeunits(texts, 0, -len(zeros))
        texts = pc.if_else(pc.ends_with(texts, zeros), whole, texts)
    return pc.binary_join_element_wise(texts, "Z", "")


def _field_texts(name: str, column: pa.Array, step_id: str) -> pa.Array:
    try:
        return json_values(column)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise SinkError(
            f"step {step_id!r}: field {shorten(name)} ({column.type}) cannot be written as JSON: "
            f"{error}. Map it to text, numbers, lists or dicts before the output"
        ) from error


def _one_by_one(column: pa.Array) -> pa.Array:
    return pa.array([json_text(value) for value in as_objects(column)], pa.string())


def _joined(*pieces: Any) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, "")


def _quoted(texts: pa.Array) -> pa.Array:
    return _joined('"', texts, '"')


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


def _lists(column: pa.Array) -> pa.Array:
    if len(column.flatten()):
        return _one_by_one(column)
    return pc.if_else(column.is_valid(), "[]", _NULL)


_ENCODERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_boolean, lambda column: pc.if_else(column, "true", "false")),
    (pa.types.is_integer, lambda column: column.cast(pa.string())),
    (pa.types.is_floating, _floats),
    (pa.types.is_string, _texts),
    (pa.types.is_large_string, _texts),
    (pa.types.is_timestamp, _instants),
    (pa.types.is_date, lambda column: _quoted(column.cast(pa.string()))),
    (pa.types.is_decimal, lambda column: _quoted(column.cast(pa.string()))),
    (pa.types.is_list, _lists),
)
