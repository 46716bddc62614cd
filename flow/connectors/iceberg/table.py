"""A table of Apache Iceberg: its place in a catalog, its history, and its types."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
from typing_extensions import override

from flow.columns.arrow_types import with_leaves
from flow.connectors.files.filesystems import without_credentials
from flow.connectors.lakehouse.lake_place import TABLE_TYPES, LakePlace, StoredTypes, as_options
from flow.connectors.source import Dataset
from flow.errors import FlowBuildError, FlowError, package_of_extra, shorten

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

COMPACT = "rewrite the table's files (rewrite_data_files of Spark, with delete-file-threshold=1)"
"""Advice where a table has files of deleted rows."""

_OPEN = ("name", "type", "uri", "warehouse")
"""Properties of a catalog that errors may show, but for credentials in a URI."""

_DEFAULT = "default"
"""Name of a catalog that is given by properties, as pyiceberg has it."""


def as_catalog(catalog: object) -> str | dict[str, str]:
    """Return the `catalog` argument: a name, or properties."""
    if isinstance(catalog, str) and catalog:
        return catalog
    return as_options("catalog must be a name, or", catalog)


def check_table(table: object) -> None:
    """Raise a `FlowBuildError` unless a table is named with its namespace."""
    if not isinstance(table, str) or not all(table.rpartition(".")):
        raise FlowBuildError(
            f"table must be text such as 'db.hours', with a namespace, got {shorten(table)}"
        )


@dataclass(frozen=True)
class CatalogPlace(LakePlace):
    """Place of a table in a catalog.

    Attributes:
        catalog: the name of the catalog in pyiceberg's configuration, or its properties.
        table: the name of the table, with its namespace.
    """

    catalog: str | Mapping[str, str]
    table: str
    error: type[FlowError]

    def __str__(self) -> str:
        return f"Iceberg table {self.table}"

    @property
    def _named(self) -> tuple[str, dict[str, str]]:
        """The name and the properties of the catalog."""
        if isinstance(self.catalog, str):
            return self.catalog, {}
        properties = dict(self.catalog)
        return properties.pop("name", _DEFAULT), properties

    def connect(self) -> Catalog:
        """Return the catalog, which the caller closes."""
        with package_of_extra("iceberg", "pyiceberg", type(self).__name__, on_workers=True):
            import pyiceberg.io.pyarrow  # noqa: F401  (a later import would fail unexplained)
            from pyiceberg.catalog import load_catalog
        name, properties = self._named
        with self.explained(f"the catalog of {self} cannot be opened"):
            return load_catalog(name, **properties)

    @override
    def open(self) -> Table | None:
        catalog, found = self.connect(), None
        from pyiceberg.exceptions import NoSuchTableError

        try:
            with self.explained(f"{self} cannot be opened"):
                try:
                    found = catalog.load_table(self.table)
                except NoSuchTableError:
                    return None
        finally:
            if found is None:
                catalog.close()
        return found

    @override
    def close(self, table: Table) -> None:
        table.catalog.close()

    @override
    def secrets(self) -> Collection[str]:
        from pyiceberg.utils.config import Config

        name, properties = self._named
        known = {**(Config().get_catalog_config(name) or {}), **properties}
        password = urlsplit(str(known.get("uri", ""))).password
        hidden = [str(value) for option, value in known.items() if option not in _OPEN]
        return [*hidden, *([password] if password else [])]

    def datasets(self) -> Sequence[Dataset]:
        """Return the name of the table for lineage."""
        name, properties = self._named
        uri, _, _ = without_credentials(properties.get("uri", name)).partition("?")
        return (Dataset(uri, self.table),)


def lineage(table: Table) -> Iterator[Snapshot]:
    """Yield the snapshots that led to the present one, newest first, until one has expired."""
    by_id = {one.snapshot_id: one for one in table.snapshots()}
    at = table.current_snapshot()
    while at is not None:
        yield at
        at = by_id.get(at.parent_snapshot_id)


# --- types ---------------------------------------------------------------------------------------

_SMALL = (pa.int8(), pa.int16(), pa.uint8(), pa.uint16())

TYPES = StoredTypes(
    "Iceberg", TABLE_TYPES | dict.fromkeys(_SMALL, pa.int32()), has_clock_times=True
)
"""Types of Iceberg."""


def arrow_columns(schema: Schema) -> pa.Schema:
    """Return the columns of a table as those of records."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    def small(kind: Any) -> Any:
        if pa.types.is_large_list(kind):
            return pa.list_(with_leaves(kind.value_type, small))
        return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)

    found = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.schema([(one.name, with_leaves(one.type, small)) for one in found])
