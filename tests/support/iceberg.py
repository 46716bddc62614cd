"""Tables of Iceberg for tests, and a reader of them that shares no code with pyiceberg."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from flow.connectors.iceberg import IcebergSink, IcebergSource

TABLE = "db.t"
NAME, PACKAGE, READING = "Iceberg", "pyiceberg", "flow.connectors.iceberg.data_files"
SECRET = "s3cr3t"


def sink_to(place: Path, **options: Any) -> IcebergSink:
    return IcebergSink(properties(place, password=SECRET), TABLE, **options)


def source_of(place: Path, **options: Any) -> IcebergSource:
    return IcebergSource(properties(place, password=SECRET), TABLE, **options)


def properties(place: Path, **more: str) -> dict[str, str]:
    """The properties of a catalog in a directory, which is made with its namespace ``db``."""
    place.mkdir(exist_ok=True)
    found = {
        "type": "sql",
        "uri": f"sqlite:///{place}/catalog.db",
        "warehouse": f"file://{place}/warehouse",
        **more,
    }
    with catalog(place) as opened:
        opened.create_namespace_if_not_exists("db")
    return found


@contextlib.contextmanager
def catalog(place: Path) -> Iterator[Any]:
    from pyiceberg.catalog import load_catalog

    named = {"type": "sql", "uri": f"sqlite:///{place}/catalog.db"}
    with contextlib.closing(
        load_catalog("default", **named, warehouse=f"file://{place}/warehouse")
    ) as found:
        yield found


@contextlib.contextmanager
def opened(place: Path) -> Iterator[Any]:
    """The table, as pyiceberg has it."""
    with catalog(place) as found:
        yield found.load_table(TABLE)


def append(place: Path, rows: list[dict[str, Any]] | pa.Table) -> None:
    """Append rows by pyiceberg's own writer, as another program does; the table is made."""
    data = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
    properties(place)
    with catalog(place) as found:
        table = found.create_table_if_not_exists(TABLE, data.schema)
        with table.update_schema() as columns:
            columns.union_by_name(data.schema)
        table.append(data)


def metadata(place: Path) -> dict[str, Any]:
    """The metadata of the table."""
    with contextlib.closing(sqlite3.connect(place / "catalog.db")) as connection:
        [[path]] = connection.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
    found: dict[str, Any] = json.loads(_local(path).read_text())
    return found


def snapshots(place: Path) -> list[dict[str, Any]]:
    """The summaries of the snapshots, oldest first."""
    return [one["summary"] for one in metadata(place)["snapshots"]]


def versions(place: Path) -> list[int]:
    """The ids of the snapshots, oldest first."""
    return [one["snapshot-id"] for one in metadata(place)["snapshots"]]


def epochs(place: Path) -> list[int]:
    """The numbers of the epochs that the snapshots name, each of which has one."""
    return [int(one["flow.epoch"]) for one in snapshots(place)]


def live_files(place: Path) -> list[Path]:
    """The data files of the newest snapshot."""
    found = metadata(place)
    by_id = {one["snapshot-id"]: one for one in found.get("snapshots", ())}
    if (newest := by_id.get(found.get("current-snapshot-id"))) is None:
        return []
    entries = [
        entry
        for manifest in _avro(newest["manifest-list"])
        for entry in _avro(manifest["manifest_path"])
    ]
    return [_local(one["data_file"]["file_path"]) for one in entries if one["status"] != 2]


def rows_of(place: Path) -> list[dict[str, Any]]:
    """The rows of the newest snapshot; none if there is no table."""
    if not list(place.glob("warehouse/**/*.metadata.json")):
        return []
    return [row for path in live_files(place) for row in pq.ParquetFile(path).read().to_pylist()]


def table_of(place: Path) -> pa.Table:
    """The rows of the newest snapshot, as pyiceberg reads them."""
    with opened(place) as table:
        return table.scan().to_arrow()


def rewrite(place: Path) -> None:
    """Write all rows into one file, in a snapshot that says that no rows change."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files
    from pyiceberg.table.snapshots import Operation, Summary

    with opened(place) as table:
        files = [task.file for task in table.scan().plan_files()]
        rows = table.scan().to_arrow()
        with table.transaction() as transaction:
            change = transaction.update_snapshot().overwrite()
            summary = change._summary
            change._summary = lambda of: Summary(
                Operation.REPLACE, **summary(of).additional_properties
            )
            for file in files:
                change.delete_data_file(file)
            for file in _dataframe_to_data_files(table.metadata, rows, table.io):
                change.append_data_file(file)
            change.commit()


def expire(place: Path, *snapshots: int) -> None:
    """Expire snapshots, by default all but the newest."""
    with opened(place) as table:
        expiry = table.maintenance.expire_snapshots()
        expiry.by_ids(list(snapshots) or versions(place)[:-1]).commit()


def compact(place: Path) -> None:
    """Write all rows into one file, and remove the earlier snapshots."""
    rewrite(place)
    expire(place)


def delete(place: Path, rows: str) -> None:
    with opened(place) as table:
        table.delete(rows)


def set_back(place: Path, version: int) -> None:
    """Return a table to an earlier snapshot."""
    with opened(place) as table:
        table.manage_snapshots().rollback_to_snapshot(version).commit()


def drop(place: Path) -> None:
    with catalog(place) as found:
        found.drop_table(TABLE)


def _avro(path: str) -> list[Any]:
    import fastavro

    with _local(path).open("rb") as file:
        return list(fastavro.reader(file))


def _local(path: str) -> Path:
    return Path(path.removeprefix("file://"))
