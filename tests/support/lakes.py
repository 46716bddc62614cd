"""Tables of Delta Lake for tests, and a reader of them that shares no code with deltalake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq


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
