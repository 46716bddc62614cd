"""Points in time in Parquet files that Spark has written.

Spark writes a timestamp as INT96 unless `spark.sql.parquet.outputTimestampType` says otherwise: a
type from before Parquet had timestamps, which does not say of which time zone it is. Others have
put local time in it. In a file of Spark's it is in UTC: what has no zone is never written so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

_BY_SPARK = b"org.apache.spark.version"
_INSTANT = pa.timestamp("us", "UTC")


def instants_of(parquet: Any) -> pa.Schema | None:
    """The columns of an open file with such times as points in time; `None` if it has none."""
    columns = [parquet.schema.column(number) for number in range(len(parquet.schema))]
    found = [column.physical_type == "INT96" for column in columns]
    if not any(found) or _BY_SPARK not in (parquet.metadata.metadata or {}):
        return None
    leaves = iter(found)
    return pa.schema(
        [field.with_type(_typed(field.type, leaves)) for field in parquet.schema_arrow]
    )


def _typed(kind: Any, leaves: Iterator[bool]) -> Any:
    """A type with its leaves that are INT96 as instants; leaves are asked for in order."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_typed(field.type, leaves)) for field in kind])
    if pa.types.is_map(kind):
        key = _typed(kind.key_type, leaves)
        return pa.map_(key, kind.item_field.with_type(_typed(kind.item_type, leaves)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_typed(kind.value_type, leaves)))
    return _INSTANT if next(leaves) else kind
