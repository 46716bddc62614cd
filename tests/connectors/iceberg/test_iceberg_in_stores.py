"""Iceberg tables whose files are in an object store, also in a REST catalog."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from flow.connectors.iceberg import IcebergSink, IcebergSource
from flow.testing.connectors import check_sink, check_source
from tests.support.stores import SECRET, WEED, iceberg_server, s3_properties, s3_server

pytest.importorskip("pyiceberg")

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(WEED is None, reason="needs SeaweedFS"),
]

PropertiesOf: TypeAlias = Callable[[Path], dict[str, str]]


@contextlib.contextmanager
def sql_catalogs(folder: Path) -> Iterator[PropertiesOf]:
    """A catalog for each place, with its tables in the store."""
    with s3_server(folder) as variables:
        yield lambda place: {
            "type": "sql",
            "uri": f"sqlite:///{place}/catalog.db",
            "warehouse": f"s3://bucket/{place.name}",
            **s3_properties(variables),
        }


@contextlib.contextmanager
def rest_catalog(folder: Path) -> Iterator[PropertiesOf]:
    """One catalog for all places."""
    with iceberg_server(folder) as properties:
        yield lambda _: properties


def namespace_of(place: Path) -> str:
    return f"at{place.name.encode().hex()}"


def table_of(place: Path) -> str:
    return f"{namespace_of(place)}.t"


@pytest.mark.parametrize("catalogs", [sql_catalogs, rest_catalog])
def test_connectors_keep_the_laws_in_an_object_store(
    tmp_path: Path, catalogs: Callable[[Path], Any]
) -> None:
    from pyiceberg.catalog import load_catalog

    @contextlib.contextmanager
    def opened(place: Path) -> Iterator[Any]:
        with contextlib.closing(load_catalog("default", **properties_of(place))) as catalog:
            catalog.create_namespace_if_not_exists(namespace_of(place))
            yield catalog

    def read(place: Path) -> list[tuple[str, int]]:
        with opened(place) as catalog:
            if not catalog.table_exists(table_of(place)):
                return []
            rows = catalog.load_table(table_of(place)).scan().to_arrow().to_pylist()
            return [(row["key"], row["n"]) for row in rows]

    def fill(place: Path, part: int) -> list[Any]:
        rows = pa.Table.from_pylist([{"key": f"é {part}", "n": n} for n in range(9)])
        with opened(place) as catalog:
            catalog.create_table_if_not_exists(table_of(place), rows.schema).append(rows)
        return rows.to_pylist()

    def sink(place: Path) -> IcebergSink:
        with opened(place):
            return IcebergSink(properties_of(place), table_of(place), mode="upsert", key="key")

    def source(place: Path) -> IcebergSource:
        return IcebergSource(properties_of(place), table_of(place), rows_per_epoch=4)

    with catalogs(tmp_path) as properties_of:
        check_sink(sink, read, secrets=[SECRET])
        check_source(source, fill, per_epoch=4, secrets=[SECRET])
