"""Values of a step, as records of an Arrow schema or as Python objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa

from flow.columns.arrays import Ints
from flow.columns.chunks import pick, rows_of
from flow.columns.sided_records import SidedRecords

Values: TypeAlias = "pa.RecordBatch | SidedRecords | list[Any]"
"""The values of a step: rows of an Arrow schema, Python objects, or records of several streams."""

_TYPES: dict[type, pa.DataType] = {int: pa.int64(), float: pa.float64()}


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
    kind = _TYPES.get(kinds.pop()) if len(kinds) == 1 else None
    if kind is None:
        return None
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError):
        return None  # A number has more than 64 bits.
