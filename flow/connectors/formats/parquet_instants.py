"""Instants in Parquet files that Spark wrote.

Spark writes a timestamp as INT96 unless `spark.sql.parquet.outputTimestampType` says otherwise. The
type is older than Parquet's timestamps and names no time zone. Other writers put local time in it;
Spark always writes UTC, and never a time without a zone.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from flow.columns.arrow_types import with_leaves

_BY_SPARK = b"org.apache.spark.version"
_INSTANT = pa.timestamp("us", "UTC")


def instants_of(parquet: Any) -> pa.Schema | None:
    """Return an open file's schema with INT96 columns as instants; `None` if it has none."""
    columns = [parquet.schema.column(number) for number in range(len(parquet.schema))]
    found = [column.physical_type == "INT96" for column in columns]
    if not any(found) or _BY_SPARK not in (parquet.metadata.metadata or {}):
        return None
    leaves = iter(found)

    def instant(kind: Any) -> Any:
        return _INSTANT if next(leaves) else kind

    return pa.schema(
        [field.with_type(with_leaves(field.type, instant)) for field in parquet.schema_arrow]
    )
