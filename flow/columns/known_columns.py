"""Columns of streams that are known before a flow runs, and the types of Python objects in Arrow.

The columns are those of the rows that `flow.connectors.sink.to_record` makes of a stream's items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from flow.columns.arrow_types import with_leaves
from flow.fields import field_path

DECIMAL_DIGITS = 38
"""The precision of columns of decimals, which is the greatest of Spark."""


@dataclass(frozen=True)
class KnownColumns:
    """The columns of a stream.

    Attributes:
        values: the columns of an item, or of the value of a keyed stream's item.
        has_key: True if items are ``(key, value)`` pairs.
        are_records: True if the items, or the values, are records with these columns as fields.
    """

    values: pa.Schema
    has_key: bool = False
    are_records: bool = True

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows; a field ``key`` of a value replaces the key."""
        keys = [pa.field("key", pa.string())] if self.has_key else []
        columns = {field.name: field for field in [*keys, *self.values]}
        return pa.schema(list(columns.values()))

    def type_of(self, path: str) -> Any:
        """Return the Arrow type of a field of the records; ``None`` if it is not known."""
        if not self.are_records:
            return None
        column = field_path(path).column_in(pa.RecordBatch.from_pylist([], schema=self.values))
        return None if column is None else column.type


@dataclass(frozen=True)
class UnknownColumns:
    """The absence of known columns.

    Attributes:
        reason: the reason, to be read after "because".
    """

    reason: str


StreamColumns: TypeAlias = "KnownColumns | UnknownColumns"


def object_type(kind: Any) -> Any:
    """Return the Arrow type that Python objects get which were read from a column.

    Returns:
        The type; ``None`` if the objects of such a column may get several types.

    >>> object_type(pa.int16()), object_type(pa.float32())
    (DataType(int64), DataType(double))
    >>> object_type(pa.list_(pa.date32())).value_type
    DataType(date32[day])
    """
    unknown: list[Any] = []

    def of_leaf(leaf: Any) -> Any:
        found = _type_of_objects(leaf)
        if found is None:
            unknown.append(leaf)
        return leaf if found is None else found

    changed = with_leaves(kind, of_leaf)
    return None if unknown else changed


def _type_of_objects(leaf: Any) -> Any:
    types = pa.types
    if types.is_dictionary(leaf):
        return _type_of_objects(leaf.value_type)
    if types.is_timestamp(leaf):
        return pa.timestamp("us", None if leaf.tz is None else "UTC")
    if types.is_decimal(leaf):
        return pa.decimal128(DECIMAL_DIGITS, min(leaf.scale, DECIMAL_DIGITS))
    return next((wide for is_kind, wide in _WIDE if is_kind(leaf)), None)


_WIDE = (
    (lambda kind: pa.types.is_integer(kind) and kind != pa.uint64(), pa.int64()),
    (pa.types.is_floating, pa.float64()),
    (pa.types.is_boolean, pa.bool_()),
    (pa.types.is_string, pa.string()),
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_binary, pa.binary()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_date32, pa.date32()),
    (pa.types.is_duration, pa.duration("us")),
)
