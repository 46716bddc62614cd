"""Check that records of two sources have columns of the same kinds."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from flow.connectors.source import Source
from flow.errors import SourceError

_KINDS = (
    ("whole numbers", pa.types.is_integer),
    ("floats", pa.types.is_floating),
    ("text", lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind)),
    ("bytes", lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind)),
    ("instants", lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None),
    ("datetimes without a zone", lambda kind: pa.types.is_timestamp(kind) and kind.tz is None),
    ("nested values", pa.types.is_nested),
)
"""Kinds of types, whose values look the same to a function, each with its test."""


def check_columns(history: Source[Any], live: Source[Any]) -> None:
    """Check that columns of the same name have types of the same kind, where they are known.

    Raises:
        SourceError: a column has types of different kinds, or the history cannot be read.
    """
    new, old = live.record_columns(), history.record_columns()
    if new is None or old is None:
        return
    for name in old.names:
        if name in new.names and kind_of(old.field(name).type) != kind_of(new.field(name).type):
            raise SourceError(
                f"the column {name!r} is {old.field(name).type} in the history and "
                f"{new.field(name).type} in the live source: read both with types of the same kind"
            )


def kind_of(column: pa.DataType) -> str:
    """Return the kind of values of a column.

    >>> kind_of(pa.int32()) == kind_of(pa.int64()), kind_of(pa.float32())
    (True, 'floats')
    """
    values = column.value_type if pa.types.is_dictionary(column) else column
    return next((kind for kind, fits in _KINDS if fits(values)), str(values))
