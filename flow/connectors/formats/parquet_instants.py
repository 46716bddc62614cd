"""Points in time in Parquet files that Spark has written.

Spark writes a timestamp as INT96 unless `spark.sql.parquet.outputTimestampType` says otherwise: a
type from before Parquet had timestamps, which does not say of which time zone it is. Others have
put local time in it. In a file of Spark's it is in UTC: what has no zone is never written so.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from flow.columns.arrow_types import with_leaves

_BY_SPARK = b"org.apache.spark.version"
_INSTANT = pa.timestamp("us", "UTC")


def instants_of(parquet: Any) -> pa.Schema | None:
    """The columns of an open file with such times as points in time; `None` if it has none."""
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
