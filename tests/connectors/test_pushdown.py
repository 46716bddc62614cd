"""Predicates that sources are told: no record that meets one is left out, and others often are."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from flow.columns.predicate import ColumnPredicate
from flow.connectors.files import ParquetSource
from flow.connectors.source import MemoryLog, Source
from flow.testing import run_source
from tests.support import delta, iceberg

field = pc.field

DAYS = [date(2026, 11, 1) + timedelta(n) for n in range(3)]
AT = datetime(2026, 11, 1, tzinfo=UTC)


def rows_of_day(number: int) -> pa.Table:
    """Some 40 rows of a day, in files and row groups with bounds of their own."""
    chance, first = random.Random(number), 40 * number
    return pa.table(
        {
            "n": pa.array([n if chance.random() < 0.8 else None for n in range(first, first + 40)]),
            "name": pa.array([f"é{n // 7:03}" for n in range(first, first + 40)]),
            "at": pa.array([AT + timedelta(minutes=n) for n in range(first, first + 40)]),
            "x": pa.array([math.nan if n % 13 == 0 else 1.0 for n in range(40)]),
            "is_open": pa.array([n < 20 for n in range(40)]),
            "day": pa.array([DAYS[number] if number else None] * 40, pa.date32()),
        }
    )


def parquet(place: Path) -> Source[Any]:
    for number, day in enumerate(DAYS):
        name = f"day={day if number else '__HIVE_DEFAULT_PARTITION__'}"
        (place / name).mkdir(parents=True)
        rows = rows_of_day(number).drop_columns(["day"])
        pq.write_table(rows, place / name / "a.parquet", row_group_size=5)
    return ParquetSource(place, partition_columns={"day": pa.date32()}, rows_per_epoch=17)


def delta_table(place: Path) -> Source[Any]:
    pytest.importorskip("deltalake")
    for number in range(3):
        delta.append(place, rows_of_day(number), partition_by=["day"])
    return delta.source_of(place, rows_per_epoch=17)


def iceberg_table(place: Path) -> Source[Any]:
    pytest.importorskip("pyiceberg")
    for number in range(3):
        iceberg.append(place, rows_of_day(number))
    return iceberg.source_of(place, rows_per_epoch=17)


def minute(number: int) -> Any:
    return pa.scalar(AT + timedelta(minutes=number))


SOURCES = [parquet, delta_table, iceberg_table]
CONDITIONS = [
    field("n") > 90,
    field("n") == 3,
    ~(field("n") <= 90),
    field("n").is_null(),
    field("name") == "é003",
    field("name").isin(["é001", "é009"]),
    field("at") < minute(9),
    field("x") != 1.0,
    ~(field("x") <= 5.0),
    field("is_open"),
    field("day") == pa.scalar(DAYS[1]),
    field("day").is_null(),
    field("day") > pa.scalar(DAYS[1]),
    pc.starts_with(field("name"), "é00"),
    field("n") + 1 > 90,
]


def told(source: Source[Any], expression: Any) -> list[Any]:
    return run_source(source.keeping(ColumnPredicate(expression)))


def meeting(records: list[Any], expression: Any) -> list[Any]:
    batch = pa.RecordBatch.from_pylist(records, rows_of_day(0).schema) if records else []
    mask = ColumnPredicate(expression).selects(batch)
    # Text, as no NaN equals another.
    return [str(record) for record, is_met in zip(records, mask, strict=True) if is_met]


@pytest.mark.parametrize("make", SOURCES)
def test_no_record_that_meets_a_predicate_is_left_out(
    make: Callable[[Path], Source[Any]], tmp_path: Path
) -> None:
    source, chance = make(tmp_path / "t"), random.Random(7)
    records = run_source(source)
    assert len(records) == 120
    pairs = [chance.sample(CONDITIONS, 2) for _ in range(10)]
    cases = [*CONDITIONS, *(a & b for a, b in pairs[:6]), *(a | ~b for a, b in pairs[6:])]
    for expression in cases:
        found = told(source, expression)
        assert meeting(found, expression) == meeting(records, expression), expression


@pytest.mark.parametrize(
    ("make", "expression", "count"),
    [
        (parquet, field("at") >= minute(110), 10),
        (parquet, (field("day") == pa.scalar(DAYS[1])) & (field("at") < minute(48)), 10),
        (parquet, field("x") != 1.0, 120),
        (delta_table, field("day") == pa.scalar(DAYS[1]), 40),
        (delta_table, (field("day") == pa.scalar(DAYS[1])) & (field("at") < minute(9)), 0),
        (iceberg_table, field("at") >= minute(110), 40),
        (iceberg_table, field("unknown") > 110, 120),
    ],
)
def test_rows_that_bounds_rule_out_are_not_read(
    make: Callable[[Path], Source[Any]], expression: Any, count: int, tmp_path: Path
) -> None:
    assert len(told(make(tmp_path / "t"), expression)) == count


class TenTimes(ParquetSource):
    """A user's source, which gives other records than its files have."""

    def read_piece(self, *arguments: Any) -> Any:
        for rows in super().read_piece(*arguments):
            yield rows.set_column(0, "n", pc.multiply(rows.column("n"), 10))


def test_a_subclass_of_a_source_reads_all_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": range(10)}), tmp_path / "a.parquet")
    assert len(told(TenTimes(tmp_path), field("n") > 50)) == 10


def test_files_that_are_ruled_out_take_no_part_of_an_epoch(tmp_path: Path) -> None:
    source = delta_table(tmp_path / "t")
    wanted = source.keeping(ColumnPredicate(field("day") == pa.scalar(DAYS[2])))
    planner = wanted.planner(MemoryLog(), 1)
    sizes = []
    at = None
    while (found := planner.next(at)) is not None:
        sizes.append(
            sum(end - start for one in found.splits for _, start, end, _ in one.what["pieces"])
        )
        at = found.end
    assert sum(sizes) == 40
    assert len([size for size in sizes if size]) == 3
    assert planner.finished(at)


def test_an_offset_goes_on_with_another_predicate(tmp_path: Path) -> None:
    source = delta_table(tmp_path / "t")
    planner = source.keeping(ColumnPredicate(field("n") < 70)).planner(MemoryLog(), 1)
    first = planner.next(None)
    assert first is not None
    other = source.keeping(ColumnPredicate(field("day").is_null())).planner(MemoryLog(), 1)
    at, rest = first.end, []
    while (found := other.next(at)) is not None:
        rest += [
            row["n"]
            for one in found.splits
            for batch in source.read(one)
            for row in batch.to_pylist()
        ]
        at = found.end
    assert len(rest) == 40 - 17
    assert all(n is None or n < 40 for n in rest)


def test_a_column_that_took_the_name_of_another_is_read(tmp_path: Path) -> None:
    """Bounds of a file are those of the column that had the name when the file was written."""
    pytest.importorskip("pyiceberg")
    iceberg.append(tmp_path, [{"old": 1, "new": -1}])
    for name, to in [("old", "older"), ("new", "old")]:
        with iceberg.opened(tmp_path) as table, table.update_schema() as change:
            change.rename_column(name, to)
    iceberg.append(tmp_path, [{"older": 2, "old": -2}])
    source = iceberg.source_of(tmp_path)
    found = told(source, field("old") < 0)
    assert found == [{"older": 1, "old": -1}, {"older": 2, "old": -2}]
