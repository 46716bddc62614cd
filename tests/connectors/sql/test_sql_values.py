"""Values in the columns of a table, and refused values, on every database."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from flow.errors import SinkError
from tests.support.databases import Postgres, Sqlite, TestDatabase, rows_after
from tests.support.writing import write

IN_PARIS = timezone(timedelta(hours=1))


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass(frozen=True)
class Point:
    x: int
    y: int


AT = datetime(2024, 1, 1, 12, 30, tzinfo=IN_PARIS)
AT_UTC = datetime(2024, 1, 1, 11, 30, tzinfo=UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)

# the column's type, what is written, what SQLite has then, what PostgreSQL has
VALUES: list[tuple[Any, Any, Any, Any]] = [
    (pa.int64(), 1, 1, 1),
    (pa.int64(), None, None, None),
    (pa.int64(), (1 << 63) - 1, (1 << 63) - 1, (1 << 63) - 1),
    (pa.int64(), -(1 << 63), -(1 << 63), -(1 << 63)),
    (pa.int8(), -128, -128, -128),
    (pa.uint16(), 65535, 65535, 65535),
    (pa.int64(), np.int32(5), 5, 5),
    (pa.int64(), Level.HIGH, 3, 3),
    (pa.float64(), 0.1, 0.1, 0.1),
    (pa.float64(), 5e-324, 5e-324, 5e-324),
    (pa.float64(), -1.7976931348623157e308, -1.7976931348623157e308, -1.7976931348623157e308),
    (pa.float64(), 3, 3.0, 3.0),
    (pa.float64(), np.float64(2.5), 2.5, 2.5),
    (pa.float32(), 0.5, 0.5, 0.5),
    (pa.bool_(), True, 1, True),
    (pa.bool_(), np.bool_(False), 0, False),
    (pa.string(), "", "", ""),
    (pa.string(), *["tab\t line\n back\\slash \\N 'ü' 🦔"] * 3),
    (pa.string(), "\\.", "\\.", "\\."),
    (pa.dictionary(pa.int32(), pa.string()), Color.RED, "red", "red"),
    (pa.string(), UUID(int=1), *["00000000-0000-0000-0000-000000000001"] * 2),
    (pa.binary(), b"\x00\xff\\x", b"\x00\xff\\x", b"\x00\xff\\x"),
    (pa.binary(), bytearray(b"ab"), b"ab", b"ab"),
    (pa.timestamp("us", "UTC"), AT, "2024-01-01T11:30:00.000000Z", AT_UTC),
    (pa.timestamp("us", "UTC"), pd.Timestamp(AT), "2024-01-01T11:30:00.000000Z", AT_UTC),
    (pa.timestamp("us", "UTC"), FIRST, "0001-01-01T00:00:00.000000Z", FIRST),
    (pa.date32(), date(2024, 2, 29), "2024-02-29", date(2024, 2, 29)),
    (pa.time64("us"), time(1, 2, 3, 4), "01:02:03.000004", time(1, 2, 3, 4)),
    (pa.decimal128(10, 0), 7, "7", Decimal(7)),
    (pa.decimal128(38, 10), Decimal("12345678901234567890.1234567890"), None, None),
    (pa.duration("us"), timedelta(hours=1, microseconds=500000), 3600.5, None),
    (pa.duration("us"), timedelta(days=-1, microseconds=1), -86399.999999, None),
    (pa.struct([("a", pa.int64())]), {"a": [1, None, "ü"]}, '{"a": [1, null, "ü"]}', None),
    (pa.list_(pa.int64()), [1, 2], "[1, 2]", [1, 2]),
    (pa.list_(pa.int64()), (1, 2), "[1, 2]", [1, 2]),
    (pa.list_(pa.int64()), {2, 1}, "[1, 2]", [1, 2]),
    (pa.list_(pa.int64()), np.array([1, 2]), "[1, 2]", [1, 2]),
    (pa.struct([("x", pa.int64())]), Point(1, 2), '{"x": 1, "y": 2}', {"x": 1, "y": 2}),
]


@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_values_survive_a_round_trip(db: TestDatabase, mode: str) -> None:
    """None stands above where PostgreSQL has just the value, or SQLite its digits.

    For upserts PostgreSQL is given parameters, and no text to copy.
    """
    schema = pa.schema([(f"c{n}", kind) for n, (kind, *_) in enumerate(VALUES)])
    record = {f"c{n}": value for n, (_, value, *_) in enumerate(VALUES)}
    key = ("c0",) if mode == "upsert" else ()
    (row,) = rows_after(db, [record], schema=schema, mode=mode, key=key)
    for found, (kind, value, in_sqlite, in_postgres) in zip(row, VALUES, strict=True):
        exact = str(value) if isinstance(value, Decimal) else in_sqlite
        expected = exact
        if isinstance(db, Postgres):
            expected = value if in_postgres is None else in_postgres
        assert (found, type(found)) == (expected, type(expected)), kind


def test_a_record_batch_is_written_like_its_records(db: TestDatabase) -> None:
    columns: dict[str, tuple[Any, Any, Any]] = {  # type, value, what SQLite has then
        "at": (pa.timestamp("ms", "UTC"), AT_UTC, "2024-01-01T11:30:00.000000Z"),
        "day": (pa.date32(), date(2024, 1, 1), "2024-01-01"),
        "cents": (pa.decimal128(10, 2), Decimal("1.50"), "1.50"),
        "took": (pa.duration("s"), timedelta(seconds=90), 90.0),
        "tags": (pa.list_(pa.string()), ["a", "b"], '["a", "b"]'),
        "who": (pa.dictionary(pa.int32(), pa.string()), "ann", "ann"),
    }
    schema = pa.schema([(name, kind) for name, (kind, *_) in columns.items()])
    batch = pa.RecordBatch.from_pylist([{name: one[1] for name, one in columns.items()}], schema)
    (row,) = rows_after(db, batch, schema=schema)
    assert row == tuple(one[1 if isinstance(db, Postgres) else 2] for one in columns.values())


def test_text_in_sqlite_sorts_by_time(tmp_path: Path) -> None:
    times = [AT_UTC, AT_UTC + timedelta(microseconds=500), AT_UTC + timedelta(seconds=1)]
    items = [{"at": at} for at in reversed(times)]
    schema = {"at": pa.timestamp("us", "UTC")}
    rows = rows_after(Sqlite(tmp_path / "out.db"), items, schema=schema)
    assert [datetime.fromisoformat(at) for (at,) in rows] == times


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (float("nan"), "float nan: it is not a finite number: map it to None or to text"),
        (float("-inf"), "float -inf: it is not a finite number"),
        (np.float32("nan"), "float32 .*nan.*: it is not a finite number"),
        (Decimal("NaN"), r"Decimal Decimal\('NaN'\): it is not a finite number"),
        (1 << 63, "int 9223372036854775808: it exceeds 64 bits: map it to a Decimal"),
        (-(1 << 63) - 1, "int -9223372036854775809: it exceeds 64 bits"),
        (datetime(2024, 1, 1), "datetime .*: it has no time zone, so it names no point in time"),  # noqa: DTZ001
        (pd.NaT, "NaTType NaT: it is not a time: map it to None"),
        (datetime.min.replace(tzinfo=IN_PARIS), "datetime .*: date value out of range"),
        (np.datetime64("2024-01-01", "ns"), "datetime64 .*: map it to an aware datetime"),
        (np.timedelta64(1, "s"), "timedelta64 .*: map it to an aware datetime, or to a timedelta"),
        ("half \ud800 a pair", "str .*: .*surrogates not allowed"),
        ({"x": float("nan")}, "dict .*: Out of range float values are not JSON compliant"),
        ({"x": [object()]}, "dict .*: a value of type object cannot be written as JSON"),
        ([datetime(2024, 1, 1)], "list .*: .* has no time zone"),  # noqa: DTZ001
        (object(), "object .*: no column can hold it: map it to text"),
        (1j, "complex 1j: no column can hold it"),
    ],
)
@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_a_value_without_a_form_is_an_error_that_names_its_column(
    db: TestDatabase, mode: Any, value: Any, problem: str
) -> None:
    sink = db.sink(schema="k bigint, v text", mode=mode, key="k" if mode == "upsert" else ())
    with pytest.raises(SinkError, match=f"step 'out': column 'v' cannot hold {problem}"):
        write(sink, 0, 0, [{"k": 1, "v": "good"}, {"k": 2, "v": value}])


def test_text_with_nul_is_accepted_by_sqlite_only(db: TestDatabase) -> None:
    items = [{"v": "a\0b"}]
    if isinstance(db, Sqlite):
        assert rows_after(db, items, schema="v text") == [("a\0b",)]
    else:
        message = r"column 'v' cannot hold str 'a\\x00b': PostgreSQL has"
        with pytest.raises(SinkError, match=message):
            rows_after(db, items, schema="v text")


@pytest.mark.parametrize("mode", ["insert", "upsert"])
@pytest.mark.parametrize("value", [1.5, "many", b"1"])
def test_a_value_that_does_not_fit_is_not_rounded(db: TestDatabase, mode: Any, value: Any) -> None:
    items = [{"k": "a", "n": 1}, {"k": "b", "n": value}]
    key = "k" if mode == "upsert" else ()
    with pytest.raises(SinkError, match="step 'out': epoch 0 could not be written"):
        rows_after(db, items, schema={"k": pa.string(), "n": pa.int32()}, mode=mode, key=key)
    assert db.rows() == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.decimal128(10, 2), 0.125),
        (pa.decimal128(10, 2), Decimal("0.125")),
        (pa.float64(), Decimal("123456789012345678901")),
        (pa.float64(), 2**60 + 1),
        (pa.float32(), 1e300),
    ],
)
def test_a_database_does_not_round_to_the_types_of_a_schema(
    db: TestDatabase, kind: Any, value: Any
) -> None:
    message = rf"step 'out': field 'n' holds {type(value).__name__} .*, which cannot be written as"
    with pytest.raises(SinkError, match=message):
        rows_after(db, [{"n": None}, {"n": value}], schema={"n": kind})
    assert db.rows() == []
