"""Columns in the names of directories, written by a sink and read by a source and by others."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from flow.connectors.files import ParquetSink, ParquetSource, file_sinks
from flow.connectors.sink import WriteContext
from flow.errors import FlowBuildError, FlowError, FlowTypeError, SinkError, SourceError
from flow.testing.connectors import check_sink
from tests.support.reading_files import first_slice, run
from tests.support.writing import opened, publish, tree

DAY = date(2026, 11, 26)
ODD = ["a", "", "10:30 é/=%+{}[]", "?*#'\"\\^\n", "__HIVE", ".", "ä b"]
SHOPS = {"dt": pa.date32(), "shop": pa.int64()}


def sold(shop: int | None, n: int, day: date = DAY) -> dict[str, Any]:
    return {"dt": day, "n": n, "shop": shop}


def rows_of(source: ParquetSource) -> list[dict[str, Any]]:
    return [row for batch in run(source).items for row in as_rows(batch)]


def as_rows(batch: Any) -> list[dict[str, Any]]:
    return batch.to_pylist() if isinstance(batch, pa.RecordBatch) else [batch]


def by_all(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


def test_files_lie_in_directories_of_their_values(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = opened(ParquetSink(out, partition_by=["dt", "shop"]))
    publish(sink, 3, [sold(1, 1), sold(None, 2), sold(1, 3)], [sold(1, 4)])
    assert tree(out) == [
        "_flow.json",
        "epoch=00000003-<run-one>/dt=2026-11-26/shop=1/part-00000.parquet",
        "epoch=00000003-<run-one>/dt=2026-11-26/shop=1/part-00001.parquet",
        "epoch=00000003-<run-one>/dt=2026-11-26/shop=__HIVE_DEFAULT_PARTITION__/part-00000-1"
        ".parquet",
    ]
    assert pq.ParquetFile(next(out.glob("epoch*/*/shop=1/*"))).schema_arrow.names == ["n"]
    publish(sink, 3, [sold(2, 5)])
    (file,) = tree(out)[1:]
    assert file.endswith("/shop=2/part-00000.parquet"), "a replay replaces all"


def test_the_source_and_other_readers_read_the_written_values(tmp_path: Path) -> None:
    names = [name for name in ODD if name] + [None]
    written = [{"name": name, "open": n % 2 == 0, "n": n} for n, name in enumerate(names)]
    publish(opened(ParquetSink(tmp_path / "out", partition_by=["name", "open"])), 0, written)
    files = f"{tmp_path}/out/**/*.parquet"
    columns = {"name": pa.string(), "open": pa.bool_()}
    source = ParquetSource(files, partition_columns=columns)
    assert sorted(rows_of(source), key=by_all) == sorted(written, key=by_all)
    hive = ds.partitioning(pa.schema([("epoch", pa.string()), *columns.items()]), flavor="hive")
    others = [
        ds.dataset(tmp_path / "out", partitioning=hive).to_table(),
        duckdb.sql(f"FROM read_parquet('{files}', hive_partitioning=true)").to_arrow_table(),
    ]
    for table in others:
        found = [(row["n"], row["name"]) for row in table.to_pylist()]
        assert sorted(found) == list(enumerate(names))


@pytest.mark.spark
@pytest.mark.extended
def test_spark_and_the_source_read_what_the_other_writes(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = [name for name in ODD if name] + [None]
    written = [{"name": name, "n": n} for n, name in enumerate(names)]
    publish(opened(ParquetSink(tmp_path / "out", partition_by="name")), 0, written)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert sorted((row.n, row.name) for row in found.collect()) == list(enumerate(names))
    found.drop("epoch").write.partitionBy("name").parquet(str(tmp_path / "theirs"))
    source = ParquetSource(tmp_path / "theirs", partition_columns="name")
    assert sorted(rows_of(source), key=by_all) == sorted(written, key=by_all)


def test_the_sink_keeps_the_laws() -> None:
    def read(place: Path) -> list[tuple[str, int]]:
        tables = [pq.ParquetFile(path).read() for path in place.glob("out/epoch=*/p=*/*")]
        return [(row["key"], row["n"]) for table in tables for row in table.to_pylist()]

    def item(key: str, n: int) -> dict[str, Any]:
        return {"key": key, "n": n, "p": n % 3}

    check_sink(lambda place: ParquetSink(place / "out", partition_by="p"), read, item=item)


def test_a_wider_type_rewrites_files_in_their_directories(tmp_path: Path) -> None:
    sink = opened(ParquetSink(tmp_path / "out", partition_by="shop"))
    publish(sink, 0, [sold(1, 1)], [{**sold(1, 0), "n": 0.5}, sold(2, 2)])
    source = ParquetSource(tmp_path / "out", partition_columns={"shop": pa.int64()})
    assert [(row["shop"], row["n"]) for row in rows_of(source)] == [(1, 1.0), (1, 0.5), (2, 2.0)]


def test_a_task_holds_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sinks, "_HELD_BYTES", 1)
    monkeypatch.setattr(file_sinks, "merge_small", lambda batches: batches)
    sink = opened(ParquetSink(tmp_path / "out", partition_by="shop"))
    write = pa.RecordBatch.from_pylist([{"shop": 1, "n": 1}, {"shop": 2, "n": 2}])
    parts = sink.write(WriteContext("out", 0, 0, "run-one", 0), iter([write, write]))
    assert [part.directory for part in parts] == ["shop=1", "shop=2"] * 2


@pytest.mark.parametrize(
    ("columns", "fields", "read"),
    [
        (None, None, ["n", "shop"]),
        (["shop"], None, ["shop"]),
        (["n"], None, ["n"]),
        (["shop", "n"], None, ["shop", "n"]),
        (["shop", "n"], {"shop"}, ["shop", "n"]),
        (None, {"n"}, ["n"]),
        (["shop"], set(), ["n"]),
    ],
)
def test_only_columns_that_are_read_are_added(
    columns: Any, fields: Any, read: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "shop=4" / "a.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table({"n": [1, 2]}), file)
    source = ParquetSource(tmp_path, columns=columns, partition_columns={"shop": pa.int32()})
    wanted = fields if fields is None else frozenset(fields)
    (batch,) = source.read_fields(first_slice(source).splits[0], wanted)
    assert (batch.schema.names, batch.num_rows) == (read, 2)
    if "shop" in read:
        assert batch.column("shop").equals(pa.array([4, 4], pa.int32()))
    named = [name for name in ("n", "shop") if columns is None or name in columns]
    assert sorted(source.record_columns().names) == named


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ({"shop": pa.int64()}, "lies in shop=x, which is no int64"),
        ("day", r"lies in no directory day=\.\.\., which partition_columns names"),
        ("n", "has a column 'n', and lies in n=1"),
    ],
)
def test_a_file_in_a_wrong_directory_is_named(kind: Any, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "shop=x" / "n=1" / "a.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1, 2]}), file)
    with pytest.raises(SourceError, match=f"a.parquet {problem}"):
        rows_of(ParquetSource(tmp_path, partition_columns=kind))


@pytest.mark.parametrize(
    ("items", "by", "problem"),
    [
        (
            [{"at": datetime(2026, 1, 1, tzinfo=UTC), "n": 1}],
            "at",
            "'at' of type timestamp",
        ),
        ([{"x": 0.5, "n": 1}], "x", "names 'x' of type double"),
        ([{"n": 1}], "x", r"names 'x', and the fields with values are \['n'\]"),
        ([{"n": 1}], "n", "names all fields"),
        ([{"a": "", "n": 1}], "a", "'a' of partition_by is an empty text"),
        ([{"a": "é" * 130, "n": 1}], "a", "value of 'a' in partition_by is too long for the name"),
    ],
)
def test_values_without_a_directory_are_refused(
    items: list[Any], by: str, problem: str, tmp_path: Path
) -> None:
    sink = opened(ParquetSink(tmp_path / "out", partition_by=by))
    with pytest.raises(SinkError, match=f"step 'out': .*{problem}"):
        publish(sink, 0, items)


@pytest.mark.parametrize(
    ("make", "error", "problem"),
    [
        (lambda: ParquetSink("a", partition_by=["n", "n"]), FlowBuildError, "each column once"),
        (
            lambda: ParquetSink("a", partition_by="Epoch"),
            FlowBuildError,
            "cannot be called 'Epoch'",
        ),
        (
            lambda: ParquetSink("a", partition_by="_day"),
            FlowBuildError,
            "'_day', and readers skip",
        ),
        (lambda: ParquetSink("a", partition_by=1), FlowTypeError, "must name columns, got int 1"),
        (
            lambda: ParquetSink("a", schema=SHOPS, partition_by="day"),
            FlowBuildError,
            "schema: partition_by names 'day'",
        ),
        (lambda: ParquetSource("a", partition_columns=1), FlowTypeError, "must name directories"),
        (
            lambda: ParquetSource("a", partition_columns={"a": "int"}),
            FlowTypeError,
            "partition_columns must map names to pyarrow types",
        ),
    ],
)
def test_arguments_are_checked(make: Any, error: type[FlowError], problem: str) -> None:
    with pytest.raises(error, match=problem):
        make()
