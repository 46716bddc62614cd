"""A table of Delta Lake: its place, its data files, and its types.

A table is a directory of Parquet files, with a log of commits in ``_delta_log``. Each commit is a
version, and a file of JSON that adds and removes data files.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs
from typing_extensions import override

from flow.connectors.files.filesystems import (
    absolute,
    as_path,
    is_local,
    locate,
    without_credentials,
)
from flow.connectors.lakehouse.lake_place import TABLE_TYPES, LakePlace, StoredTypes
from flow.errors import FlowError, package_of_extra

if TYPE_CHECKING:
    from deltalake import DeltaTable

_STATISTICS_COLUMNS = 32
"""Columns with statistics, as other writers of Delta have."""


def as_table_uri(uri: object) -> str:
    """Return the `uri` argument as a URI, or a path from the root."""
    return absolute(as_path(uri)).rstrip("/")


@dataclass(frozen=True)
class TablePlace(LakePlace):
    """Place of a table.

    Attributes:
        uri: a URI, or a path from the root.
        options: options of the store, such as credentials, by name.
    """

    uri: str
    options: Mapping[str, str]
    error: type[FlowError]

    def __str__(self) -> str:
        return f"Delta table {without_credentials(self.uri)}"

    @override
    def open(self, version: int | None = None) -> DeltaTable | None:
        """Return the table at a version, by default the newest; ``None`` if there is no table."""
        with package_of_extra("delta", "deltalake", type(self).__name__, on_workers=True):
            from deltalake import DeltaTable
        options = dict(self.options)
        with self.explained(f"{self} cannot be opened"):
            if not DeltaTable.is_deltatable(self.uri, options):
                return None
            return DeltaTable(self.uri, version=version, storage_options=options)

    @override
    def secrets(self) -> Collection[str]:
        return self.options.values()

    def filesystem(self) -> Any:
        """Return the `pyarrow.fs.FileSystem` in which names are relative to the table.

        The directory of a table on this machine is created.
        """
        if is_local(self.uri):
            local, path = fs.LocalFileSystem(), locate(self.uri).path
            local.create_dir(path, recursive=True)
            return fs.SubTreeFileSystem(path, local)
        with package_of_extra("delta", "deltalake", type(self).__name__, on_workers=True):
            from deltalake.fs import DeltaStorageHandler
        return fs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options)))


def columns_of(table: DeltaTable | None) -> pa.Schema:
    """Return the columns of a table; no columns if there is no table."""
    return pa.schema([]) if table is None else pa.schema(table.schema().to_arrow())


# --- types ---------------------------------------------------------------------------------------

TYPES = StoredTypes("Delta", TABLE_TYPES)
"""Types of Delta."""

# --- values of partitions, and statistics --------------------------------------------------------


def partition_text(value: Any) -> str | None:
    """Return a value of a partition column as the log has it.

    >>> partition_text(True), partition_text(date(2026, 1, 2)), partition_text(None)
    ('true', '2026-01-02', None)
    """
    match value:
        case None | "":
            return None
        case bool():
            return str(value).lower()
        case datetime():
            return value.replace(tzinfo=None).isoformat(" ", "microseconds")
        case bytes():
            raise ValueError("partition_by cannot name a column of bytes")
    return str(value)


def partition_column(text: str | None, kind: Any, rows: int) -> Any:
    """Return a column of a partition's value, which the log has as text."""
    if not text:  # The format takes an empty text for null.
        return pa.nulls(rows, kind)
    if pa.types.is_timestamp(kind):  # Writers differ in the separator and in the zone's mark.
        instant = pa.scalar(text.replace("T", " ").removesuffix("Z")).cast(pa.timestamp("us"))
        return pa.repeat(pa.scalar(instant.value, kind), rows)
    return pa.repeat(pa.scalar(text).cast(kind), rows)


def statistics(metadata: Any, schema: pa.Schema) -> str:
    """Return the statistics of a Parquet file as the log has them, by which readers skip files.

    Columns of whole numbers, dates, times and short texts have bounds.

    Args:
        metadata: the metadata of the file, a `pyarrow.parquet.FileMetaData`.
        schema: the columns of the file.
    """
    least, most, nulls = dict[str, Any](), dict[str, Any](), dict[str, int]()
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    leaves = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    for number, name in enumerate(leaves[:_STATISTICS_COLUMNS]):
        at = schema.get_field_index(name) if leaves.count(name) == 1 else -1
        found = [group.column(number).statistics for group in groups]
        if at < 0 or not found or not all(one and one.has_null_count for one in found):
            continue
        nulls[name] = sum(one.null_count for one in found)
        bounds = [one for one in found if one.has_min_max]
        # A group of only nulls has no bounds.
        if bounds and all(one.has_min_max or not one.num_values for one in found):
            ends = [_bound(min(o.min for o in bounds)), _bound(max(o.max for o in bounds))]
            if None not in ends:
                least[name], most[name] = ends
    content = {"minValues": least, "maxValues": most, "nullCount": nulls}
    return json.dumps({"numRecords": metadata.num_rows, **content})


def _bound(value: Any) -> Any:
    """Return a bound as JSON; ``None`` for a value that has no exact form."""
    match value:
        case datetime():
            zone = "Z" if value.tzinfo else ""
            return value.replace(tzinfo=None).isoformat("T", "microseconds") + zone
        case date():
            return value.isoformat()
        case str() if value.isascii() and len(value) <= _STATISTICS_COLUMNS:
            return value
    return value if type(value) is int else None
