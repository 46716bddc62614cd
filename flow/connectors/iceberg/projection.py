"""Projection of the rows of a data file to the columns of a table, by the ids of the columns.

The module imports pyiceberg, so others import it in functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import ArrowAccessor, ArrowProjectionVisitor
from pyiceberg.schema import Schema, visit_with_partner
from typing_extensions import override


class _Projection(ArrowProjectionVisitor):  # type: ignore[misc]  # pyiceberg is not followed.
    """Projection of pyiceberg, which makes nulls empty in columns of lists or maps of structs."""

    @override
    def list(self, list_type: Any, list_array: Any, value_array: Any) -> Any:
        return _with_nulls(super().list(list_type, list_array, value_array), list_array)

    @override
    def map(self, map_type: Any, map_array: Any, key_result: Any, value_result: Any) -> Any:
        found = super().map(map_type, map_array, key_result, value_result)
        return _with_nulls(found, map_array)


def _with_nulls(found: Any, before: Any) -> Any:
    """Return a column with the nulls that it had before."""
    if found is None or found.null_count == before.null_count:
        return found
    return found.take(pc.if_else(before.is_valid(), pa.array(range(len(before))), None))


def project(
    rows: pa.RecordBatch, inside: Schema, schema: Schema, given: Mapping[str, Any]
) -> pa.RecordBatch:
    """Return rows with the columns of a schema; those that a file lacks are null.

    Args:
        rows: rows of the file.
        inside: the columns of these rows.
        schema: the columns of the result.
        given: values of columns that the file lacks, by their ids.
    """
    projection = _Projection(
        inside,
        downcast_ns_timestamp_to_us=True,
        projected_missing_fields={int(number): value for number, value in given.items()},
        allow_timestamp_tz_mismatch=True,
    )
    found = visit_with_partner(schema, rows, projection, ArrowAccessor(inside))
    return pa.RecordBatch.from_struct_array(found)
