"""Values of a step, as records of an Arrow schema or as Python objects.

*Plain records* are the form in which segments hold records: columns of int64, float64, bool, text
and UTC times in µs. Both directions keep the Python value of each field, so the other path restores
the same dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flow.columns.arrays import Ints
from flow.columns.chunks import null_mask, pick
from flow.columns.plain_columns import PlainColumns
from flow.columns.record_batches import SidedRecords, join_batches, rows_of
from flow.instants import MAX_US, MIN_US

Values: TypeAlias = "pa.RecordBatch | SidedRecords | list[Any]"
"""The values of a step: rows of an Arrow schema, Python objects, or records of several streams."""

_NUMBERS: dict[type, pa.DataType] = {int: pa.int64(), float: pa.float64()}
_UTC = pa.timestamp("us", "UTC")
_TYPES = {"i": pa.int64(), "f": pa.float64(), "b": pa.bool_(), "s": pa.string(), "m": _UTC}
"""The type of the column of each letter of `PlainColumns`."""
_LETTERS = {kind: letter for letter, kind in _TYPES.items()}
_EMPTY: dict[str, Any] = {"i": 0, "f": 0.0, "b": False, "s": ""}
"""The element of a column of `PlainColumns` in rows without a value."""


def object_reader(values: Values) -> Callable[[Ints], list[Any]]:
    """Return a function that converts the values of given rows to Python objects."""
    if isinstance(values, pa.RecordBatch):
        return lambda rows: rows_of(values.take(pa.array(rows)))
    return lambda rows: pick(values, rows)


def fields_as_records(values: list[Any], fields: tuple[str, ...]) -> Values:
    """Return some fields of dicts as records; the values themselves if columns would change them.

    A column has the same numbers if the field's values are ``None`` and only ints, or ``None`` and
    only floats.

    Args:
        values: the values.
        fields: the names of the fields that aggregates read; if empty, the values are returned.
    """
    if not fields or set(map(type, values)) != {dict}:
        return values
    columns = [_number_column([value.get(field) for value in values]) for field in fields]
    if any(column is None for column in columns):
        return values
    return pa.RecordBatch.from_arrays(columns, names=list(fields))


def _number_column(values: list[Any]) -> pa.Array | None:
    kinds = set(map(type, values)) - {type(None)}
    kind = _NUMBERS.get(kinds.pop()) if len(kinds) == 1 else None
    if kind is None:
        return None
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError):
        return None  # A number has more than 64 bits.


def plain_records(values: SidedRecords) -> SidedRecords | None:
    """Return records with the types of plain records; ``None`` if a column has no such type."""
    batches = list[pa.RecordBatch]()
    for batch in values.batches:
        columns = [_plain_column(column) for column in batch.columns]
        if any(column is None for column in columns) or (batch.num_rows and not columns):
            return None
        batches.append(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
    return SidedRecords(tuple(batches), values.sides, values.rows)


def _plain_column(column: pa.Array) -> pa.Array | None:
    """Return a column with a plain type; ``None`` if that would change its Python values."""
    kind = _plain_type(column.type)
    if kind == _UTC and len(column):
        bounds = pc.min_max(column.cast(pa.int64())).as_py()
        if None not in bounds.values() and not MIN_US <= bounds["min"] <= bounds["max"] <= MAX_US:
            return None
    return None if kind is None else column.cast(kind)


def _plain_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of plain records with the Python values of a type, if there is one."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return pa.int64()
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return pa.float64()
    if pa.types.is_timestamp(kind) and kind.tz == "UTC" and kind.unit == "us":
        return _UTC
    return kind if pa.types.is_boolean(kind) else None


def columns_of_records(batch: pa.RecordBatch) -> PlainColumns:
    """Return plain records as columns of a segment."""
    letters, columns = "", list[npt.NDArray[Any]]()
    for column in batch.columns:
        letter = _LETTERS[column.type]
        if column.null_count:
            letters += "?"
            columns.append(~null_mask(column))
        letters += letter
        columns.append(_elements(column, letter))
    return PlainColumns(tuple(batch.schema.names), letters, tuple(columns))


def _elements(column: pa.Array, letter: str) -> npt.NDArray[Any]:
    if letter == "m":
        column, letter = column.cast(pa.int64()), "i"
    if column.null_count:
        column = column.fill_null(_EMPTY[letter])
    elements: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return elements


def records_of_columns(columns: PlainColumns) -> pa.RecordBatch | None:
    """Return columns of a segment as plain records.

    Returns:
        ``None`` if the values are no dicts, or have texts that UTF-8 cannot hold.
    """
    if not isinstance(columns.shape, tuple):
        return None
    try:
        arrays = list(_arrays(columns))
    except UnicodeEncodeError:  # A Python text may have lone surrogates.
        return None
    return pa.RecordBatch.from_arrays(arrays, names=list(columns.shape))


def _arrays(columns: PlainColumns) -> Iterator[pa.Array]:
    mask: npt.NDArray[np.bool_] | None = None
    for letter, column in zip(columns.letters, columns.columns, strict=True):
        if letter == "?":
            mask = ~column
            continue
        array = pa.array(column, pa.int64() if letter == "m" else _TYPES[letter], mask=mask)
        yield array.cast(_UTC) if letter == "m" else array
        mask = None


def joined_columns(pieces: Sequence[PlainColumns]) -> pa.RecordBatch | None:
    """Return pieces of columns as plain records; ``None`` if they have no one schema."""
    first, *others = pieces
    if all(map(first.has_layout_of, others)):
        return records_of_columns(first.concatenate(others) if others else first)
    batches = [records_of_columns(one) for one in pieces]
    filled = [one for one in batches if one is not None]
    if len(filled) < len(batches) or any(not one.schema.equals(filled[0].schema) for one in filled):
        return None
    return join_batches(filled)
