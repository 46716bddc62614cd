"""The connectors of the library by the laws of `flow.testing.connectors`."""

from __future__ import annotations

import contextlib
import csv
import json
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from flow import run
from flow.connectors.files import (
    CsvSink,
    CsvSource,
    JsonLinesSink,
    JsonLinesSource,
    ParquetSink,
    ParquetSource,
    TextSink,
    TextSource,
)
from flow.connectors.sql import SqliteSink
from flow.testing.connectors import check_sink, check_source
from recovery import RecoveryConfig
from tests.support.databases import Postgres

Rows = list[tuple[str, int]]

# --- sinks ---------------------------------------------------------------------------------------


def parquet_rows(place: Path) -> Rows:
    tables = [pq.ParquetFile(path).read() for path in place.glob("out/epoch=*/*.parquet")]
    return [(row["key"], row["n"]) for table in tables for row in table.to_pylist()]


def json_rows(place: Path) -> Rows:
    files = place.glob("out/epoch=*/*")
    lines = [line for path in files for line in path.read_text().splitlines()]
    return [(row["key"], row["n"]) for row in map(json.loads, lines)]


def text_rows(place: Path) -> Rows:
    files = place.glob("out/epoch=*/*")
    lines = [line for path in files for line in path.read_text().split("\n")[:-1]]
    return [(key, int(n)) for n, _, key in (line.partition(" ") for line in lines)]


def csv_rows(place: Path) -> Rows:
    rows: Rows = []
    for path in place.glob("out/epoch=*/*"):
        with path.open(newline="") as file:
            rows += [(row["key"], int(row["n"])) for row in csv.DictReader(file)]
    return rows


def sqlite_rows(place: Path) -> Rows:
    with contextlib.closing(sqlite3.connect(place / "out.db")) as connection:
        has_table = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 't'").fetchall()
        return connection.execute("SELECT key, n FROM t").fetchall() if has_table else []


def sqlite(place: Path, **options: Any) -> SqliteSink:
    return SqliteSink(place / "out.db", "t", **options)


INSERT = {"schema": "key text, n bigint"}
UPSERT = {"schema": "key text PRIMARY KEY, n bigint", "mode": "upsert", "key": "key"}


@pytest.mark.parametrize(
    ("make", "read"),
    [
        pytest.param(lambda place: ParquetSink(place / "out"), parquet_rows, id="Parquet"),
        pytest.param(lambda place: JsonLinesSink(place / "out"), json_rows, id="JSON lines"),
        pytest.param(lambda place: CsvSink(place / "out"), csv_rows, id="CSV"),
        pytest.param(partial(sqlite, **INSERT), sqlite_rows, id="SQLite, insert"),
        pytest.param(partial(sqlite, **UPSERT), sqlite_rows, id="SQLite, upsert"),
    ],
)
def test_a_sink_keeps_the_laws(make: Callable[[Path], Any], read: Callable[[Path], Rows]) -> None:
    check_sink(make, read)


def test_a_sink_of_text_keeps_the_laws() -> None:
    check_sink(lambda place: TextSink(place / "out"), text_rows, item=lambda key, n: f"{n} {key}")


@pytest.mark.parametrize("options", [INSERT, UPSERT], ids=["insert", "upsert"])
def test_postgres_keeps_the_laws(options: dict[str, Any]) -> None:
    db = Postgres()

    def read(place: Path) -> Rows:
        with contextlib.suppress(Exception):  # The table does not exist before the first run.
            return [(key, n) for key, n in db.ask(f'SELECT key, n FROM "{place.name}"')]
        return []

    check_sink(lambda place: db.sink(place.name, **options), read)


# --- sources -------------------------------------------------------------------------------------


def records(part: int, half: int) -> list[dict[str, Any]]:
    return [{"key": f"{part} é{half}", "n": n} for n in range(10)]


def fill(write: Callable[[Path, list[Any]], Any], suffix: str, place: Path, part: int) -> list[Any]:
    """Write two files for each part, and return their records."""
    for half in (0, 1):
        write(place / f"{part}{half}{suffix}", records(part, half))
    return records(part, 0) + records(part, 1)


def write_json(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def write_csv(path: Path, rows: list[Any]) -> None:
    path.write_text("key,n\n" + "".join(f"{row['key']},{row['n']}\n" for row in rows))


def write_parquet(path: Path, rows: list[Any]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=4)


def fill_text(place: Path, part: int) -> list[str]:
    lines = [f"é {part} {n}" for n in range(20)]
    (place / f"{part}.txt").write_text("\n".join(lines))
    return lines


SCHEMA = {"key": pa.string(), "n": pa.int64()}
JSON = (partial(JsonLinesSource, bytes_per_epoch=90), partial(fill, write_json, ".jsonl"), None)
CSV = (
    partial(CsvSource, schema=SCHEMA, bytes_per_epoch=50),
    partial(fill, write_csv, ".csv"),
    None,
)
PARQUET = (partial(ParquetSource, rows_per_epoch=7), partial(fill, write_parquet, ".parquet"), 7)
TEXT = (partial(TextSource, bytes_per_epoch=30), fill_text, None)


@pytest.mark.parametrize("order", ["sequence", "parallel"])
@pytest.mark.parametrize(
    ("kind", "fill", "per_epoch"),
    [
        pytest.param(*JSON, id="JSON lines"),
        pytest.param(*CSV, id="CSV"),
        pytest.param(*PARQUET, id="Parquet"),
        pytest.param(*TEXT, id="text"),
    ],
)
def test_a_source_keeps_the_laws(kind: Any, fill: Any, per_epoch: int | None, order: str) -> None:
    check_source(lambda place: kind(place, order=order), fill, per_epoch=per_epoch)


# --- on Spark ------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.extended
def test_a_sink_keeps_the_laws_on_spark(spark: SparkSession) -> None:
    def on_spark(flow: Any, path: str) -> None:
        run(flow, recovery=RecoveryConfig(path), spark=spark, shards=2, partitions=1)

    check_sink(partial(sqlite, **INSERT), sqlite_rows, run=on_spark)


@pytest.mark.spark
@pytest.mark.extended
def test_a_source_keeps_the_laws_on_spark(spark: SparkSession) -> None:
    def on_spark(flow: Any, path: str) -> None:
        run(flow, recovery=RecoveryConfig(path), spark=spark, shards=2, partitions=1)

    kind, fill, _ = JSON
    check_source(lambda place: kind(place / "*.jsonl"), fill, run=on_spark)
