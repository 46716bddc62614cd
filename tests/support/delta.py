"""Tables of Delta Lake for tests, and a reader of them that shares no code with deltalake."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from flow.connectors.delta import DeltaSink, DeltaSource

NAME, PACKAGE, READING = "Delta", "deltalake", "flow.connectors.delta.source"
SECRET = "s3cr3t"


def sink_to(table: Path, **options: Any) -> DeltaSink:
    return DeltaSink(table, storage_options={"password": SECRET}, **options)


def source_of(table: Path, **options: Any) -> DeltaSource:
    return DeltaSource(table, storage_options={"password": SECRET}, **options)


def commits(table: Path) -> list[list[dict[str, Any]]]:
    """The actions of each version."""
    files = sorted((table / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in files]


def live_files(table: Path) -> list[dict[str, Any]]:
    """The add actions of the files in the newest version, by a replay of the whole log."""
    files: dict[str, Any] = {}
    for action in (action for commit in commits(table) for action in commit):
        if "add" in action:
            files[action["add"]["path"]] = action["add"]
        if "remove" in action:
            files.pop(action["remove"]["path"])
    return list(files.values())


def rows_of(table: Path) -> list[dict[str, Any]]:
    """The rows of the newest version; values of partitions are texts."""
    found = []
    for file in live_files(table) if table.exists() else []:
        rows = pq.ParquetFile(table / unquote(file["path"])).read().to_pylist()
        found += [{**row, **file["partitionValues"]} for row in rows]
    return found


def append(table: Path, rows: list[dict[str, Any]] | pa.Table, **options: Any) -> None:
    """Append rows by deltalake's own writer, as another program does."""
    from deltalake import write_deltalake

    data = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
    write_deltalake(str(table), data, mode="append", **options)


def versions(table: Path) -> list[int]:
    """The numbers of the versions, oldest first."""
    return list(range(len(commits(table))))


def epochs(table: Path) -> list[int]:
    """The numbers of the epochs that the commits name."""
    numbers = [[one["txn"]["version"] for one in each if "txn" in one] for each in commits(table)]
    # A commit also has the number of rewinds, 0; the first creates the table.
    return [max(pair) for pair in numbers if pair]


def table_of(table: Path) -> pa.Table:
    """The rows of the newest version, as deltalake reads them."""
    from deltalake import DeltaTable

    return DeltaTable(table).to_pyarrow_table()


def compact(table: Path) -> None:
    """Write all rows into one file, and remove the earlier versions."""
    from deltalake import DeltaTable

    found = DeltaTable(table)
    found.optimize.compact()
    found.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


def delete(table: Path, rows: str) -> None:
    from deltalake import DeltaTable

    DeltaTable(table).delete(rows)


def set_back(table: Path, version: int) -> None:
    """Return a table to an earlier version."""
    from deltalake import DeltaTable

    DeltaTable(table).restore(version)


def drop(table: Path) -> None:
    shutil.rmtree(table)
