"""Values that have waited, as columns again, where their aggregates are worked out on columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from flow_windowing.columnar.values.timestamps import Values

_TYPES: dict[type, pa.DataType] = {int: pa.int64(), float: pa.float64()}


def as_columns(values: list[Any], fields: tuple[str, ...]) -> Values:
    """Some fields of records that are dicts, as a batch; the values themselves where they must be.

    A field must hold whole numbers throughout, or floats, so that each is the same in a column.

    Args:
        values: the values.
        fields: the names of the fields that are read; without any there is nothing to gain.
    """
    if not fields or set(map(type, values)) != {dict}:
        return values
    columns = [_column([value.get(field) for value in values]) for field in fields]
    if any(column is None for column in columns):
        return values
    return pa.RecordBatch.from_arrays(columns, names=list(fields))


def _column(values: list[Any]) -> pa.Array | None:
    kinds = set(map(type, values)) - {type(None)}
    kind = _TYPES.get(kinds.pop()) if len(kinds) == 1 else None
    if kind is None:
        return None
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError):
        return None  # a number of more than 64 bits
