"""Reading of Parquet files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from flow.connectors.files import ParquetSource, parquet_source
from flow.errors import SourceError, StepError
from flow.testing import run_source
from tests.support.reading_files import (
    JsonLog,
    Run,
    collect,
    first_slice,
    parquet,
    run,
    sampled_reads,
    split_sizes,
    write,
)


def test_parquet_gives_the_columns_asked_for_in_that_order(tmp_path: Path) -> None:
    table = pa.table({"n": [0, 1], "m": [0, 0], "text": ["0", "1"]}, metadata={"more": "than data"})
    pq.write_table(table, tmp_path / "a.parquet")
    source = ParquetSource(tmp_path, columns=["text", "n"])
    planned = first_slice(source)
    (batch,) = source.read(planned.splits[0])
    assert batch.to_pydict() == {"text": ["0", "1"], "n": [0, 1]}
    assert batch.schema == pa.schema({"text": pa.string(), "n": pa.int64()})
    assert batch.schema.metadata is None


@pytest.mark.parametrize(
    ("columns", "record"),
    [
        (["a.b"], {"a.b": 1}),
        (["a"], {"a": {"b": 2, "c": 3}}),
        (["z", "a.b"], {"z": 4, "a.b": 1}),
        (["a", "twice"], None),
        (None, None),
    ],
)
def test_a_column_has_exactly_the_name_asked_for(
    tmp_path: Path, columns: list[str] | None, record: dict[str, Any] | None
) -> None:
    values = [pa.array([one]) for one in (1, {"b": 2, "c": 3}, 4, 5, 6)]
    table = pa.Table.from_arrays(values, ["a.b", "a", "z", "twice", "twice"])
    pq.write_table(table, tmp_path / "a.parquet")
    source = ParquetSource(tmp_path, columns=columns)
    if record is None:
        with pytest.raises(StepError, match="2 fields have the name 'twice': rename them"):
            run_source(source)
    else:
        assert run_source(source) == [record]
        assert source.record_columns().names == list(record)


@pytest.mark.parametrize(
    ("columns", "fields", "read"),
    [
        (None, {"b", "missing"}, ["b"]),
        (["c", "a", "b"], {"a", "b"}, ["a", "b"]),
        (None, {"missing"}, ["a"]),  # to count rows by
    ],
)
def test_parquet_columns_that_no_step_reads_are_left_out(
    tmp_path: Path, columns: list[str] | None, fields: set[str], read: list[str]
) -> None:
    pq.write_table(pa.table({"a": [1, 2], "b": [3, 4], "c": [5, 6]}), tmp_path / "a.parquet")
    source = ParquetSource(tmp_path, columns=columns)
    planned = first_slice(source)
    batches = [
        batch for split in planned.splits for batch in source.read_fields(split, frozenset(fields))
    ]
    assert [(batch.schema.names, batch.num_rows) for batch in batches] == [(read, 2)]  # type: ignore[union-attr,arg-type]


@given(
    sizes=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15)), min_size=1, max_size=4),
    rows_per_epoch=st.integers(1, 50),
    parallelism=st.integers(1, 7),
    rows=st.integers(1, 9),
)
@sampled_reads
def test_parquet_rows_are_read_once_in_order_for_any_splits(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[tuple[int, int]],
    rows_per_epoch: int,
    parallelism: int,
    rows: int,
) -> None:
    folder, total = tmp_path_factory.mktemp("parquet"), 0
    for number, (size, group) in enumerate(sizes):
        parquet(folder / f"{number}.parquet", total, total + size, group)
        total += size
    log = JsonLog()
    source = ParquetSource(folder, rows_per_epoch=rows_per_epoch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_source, "ROWS", rows)
        done = run(source, parallelism, log)
        for end, count in list(zip(done.ends, done.items_at_end, strict=True))[::3]:
            assert run(source, 2, log, start=end).items == done.items[count:]
    assert [row["n"] for row in done.items] == list(range(total))
    assert all(sum(sizes) <= rows_per_epoch for sizes in split_sizes(done))


def test_a_single_row_group_is_cut_for_all_tasks_and_epochs(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", 0, 1000, 1000)
    done = run(ParquetSource(path, rows_per_epoch=600), 3)
    assert split_sizes(done) == [[200, 200, 200], [133, 133, 134]]


def test_parquet_is_split_between_row_groups_of_similar_size(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", 0, 1000, 110)
    done = run(ParquetSource(path, rows_per_epoch=500), 2)
    assert split_sizes(done) == [[220, 220], [220, 220], [60, 60]]


def damaged(path: Path, rows: int, group: int) -> Path:
    """Write a file whose first row group cannot be read."""
    content = bytearray(parquet(path, 0, rows, group).read_bytes())
    content[4:60] = b"\xff" * 56
    return write(path, bytes(content))


def test_a_file_that_is_damaged_or_not_parquet_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", "this is no Parquet file")
    with pytest.raises(SourceError, match=r"a\.parquet cannot be read: .*Parquet"):
        run(ParquetSource(path))
    with pytest.raises(SourceError, match=r"a\.parquet cannot be read: "):
        run(ParquetSource(damaged(path, 100, 100)))


def test_a_split_reads_only_its_row_groups(tmp_path: Path) -> None:
    source = ParquetSource(damaged(tmp_path / "a.parquet", 200, 100))
    done = Run()
    collect(source, first_slice(source, 2).splits[1], done)
    assert [row["n"] for row in done.items] == list(range(100, 200))


def test_a_parquet_file_without_a_column_is_an_error_that_names_both(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", 0, 1, 1)
    with pytest.raises(SourceError, match=r"a\.parquet has no column 'm': it has \['n', 'text'\]"):
        run(ParquetSource(path, columns=["m"]))


@pytest.mark.spark
@pytest.mark.parametrize("written_as", ["INT96", "TIMESTAMP_MICROS"])
def test_timestamps_written_by_spark_are_instants_and_those_of_others_have_no_zone(
    spark: SparkSession, tmp_path: Path, written_as: str
) -> None:
    frame = spark.sql(
        "select timestamp'2024-05-01 12:00:00.123456Z' at,"
        " timestamp_ntz'2024-05-01 12:00:00' clock,"
        " named_struct('n', 1, 'at', timestamp'2024-05-01 12:00:00Z') inner,"
        " array(timestamp'1500-01-01 00:00:00Z') list,"
        " map('k', timestamp'9999-01-01 00:00:00Z') map"
    )
    spark.conf.set("spark.sql.parquet.outputTimestampType", written_as)
    frame.write.parquet(str(tmp_path / "made"))
    spark.conf.unset("spark.sql.parquet.outputTimestampType")
    (found,) = run_source(ParquetSource(tmp_path / "made"))
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert found == {
        "at": noon.replace(microsecond=123_456),
        "clock": noon.replace(tzinfo=None),
        "inner": {"n": 1, "at": noon},
        "list": [datetime(1500, 1, 1, tzinfo=UTC)],
        "map": [("k", datetime(9999, 1, 1, tzinfo=UTC))],
    }
    table = pa.table({"at": pa.array([noon.replace(tzinfo=None)], pa.timestamp("ns"))})
    other = tmp_path / "other.parquet"
    pq.write_table(table, other, use_deprecated_int96_timestamps=written_as == "INT96")
    assert list(run_source(ParquetSource(other))) == [{"at": noon.replace(tzinfo=None)}]
