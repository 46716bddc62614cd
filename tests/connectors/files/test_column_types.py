"""Types of the columns of file sinks, values that do not fit them, and dictionaries of Parquet."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from flow.connectors.files import CsvSink, JsonLinesSink, ParquetSink
from flow.connectors.files.file_sinks import dictionary_columns
from flow.connectors.formats import columns
from flow.errors import SinkError
from tests.support.writing import opened, parquet_rows, publish, tree, write

AT = datetime(2013, 1, 1, 5, tzinfo=UTC)
NAIVE = AT.replace(tzinfo=None)
ZONED = datetime(2024, 1, 1, tzinfo=UTC)
DIGITS = Decimal("123456789012345678901")
CENTS = pa.decimal128(10, 2)


@pytest.mark.parametrize(
    ("first", "later", "problem"),
    [
        ({"JFK": 1}, {"JFK": 2, "LGA": 7}, "its part 'LGA' is not among the parts"),
        ({"n": 1, "note": None}, {"n": 2, "note": "x"}, "its part 'note' is not among the parts"),
        ([{"a": {"b": 1}}], [{"a": {"b": 1, "c": 2}}], "its part 'a.c' is not among the parts"),
        ([{"a": 1}], [{"a": "1"}], "its part 'a' is text, and not a number"),
        (ZONED, ZONED.replace(tzinfo=None), "that is a time without a zone, and not a time with"),
        ([ZONED], [ZONED.replace(tzinfo=None)], "that is a time without a zone, and not a time"),
        (ZONED, 1_704_067_200, "that is a number, and not a time with a zone"),
        (True, 7, "that is a number, and not bool"),
        (1, True, "that is bool, and not a number"),
        (date(2024, 1, 1), ZONED.replace(tzinfo=None), "that is a time without a zone, and not a"),
        (1, "2", "that is text, and not a number"),
        ("a", 2, "that is a number, and not text"),
        (1, 1.5, "truncated"),
        (b"a", "a", "that is text, and not bytes"),
        (Decimal("1e-30"), 2**63 - 1, rf"value {2**63 - 1}: decimal128\(38, 30\) has no room"),
        (Decimal("1.5"), 0.25, r"double here, .* decimal128\(38, 1\), .*: value 0.25: Rescaling"),
        (0.5, DIGITS, rf"value Decimal\('{DIGITS}'\): the cast of .* to double changes it"),
    ],
)
def test_values_are_not_converted_to_the_type_of_earlier_values(
    tmp_path: Path, first: Any, later: Any, problem: str
) -> None:
    sink = opened(ParquetSink(tmp_path))
    publish(sink, 0, [{"x": first}])
    with pytest.raises(SinkError, match=rf"step 'out': field 'x' .*{problem}"):
        publish(sink, 1, [{"x": later}])


@pytest.mark.parametrize(
    ("values", "read"),
    [
        ([Decimal("1.5"), Decimal("12.5")], [Decimal("1.5"), Decimal("12.5")]),
        ([1.5, 1], [1.5, 1.0]),
        ([ZONED, datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))], [ZONED, ZONED]),
        ([{"a": 1, "b": 2}, {"a": 3}], [{"a": 1, "b": 2}, {"a": 3, "b": None}]),
        ([[], [1]], [[], [1]]),
        ([{"a": 1, "b": []}, {"a": 2, "b": []}], [{"a": 1}, {"a": 2}]),
        ([None, "x"], [None, "x"]),
        ([Decimal("1.5"), 0.5], [Decimal("1.5"), Decimal("0.5")]),
        ([0.5, Decimal("0.3")], [0.5, 0.3]),
        ([[0.5], [Decimal("0.3")]], [[0.5], [0.3]]),
    ],
)
def test_a_lossless_cast_fits_a_column(tmp_path: Path, values: list[Any], read: list[Any]) -> None:
    sink = opened(ParquetSink(tmp_path))
    for epoch, value in enumerate(values):
        publish(sink, epoch, [{"n": epoch, "x": value}])
    table = ds.dataset(tmp_path, schema=pq_schema(tmp_path), exclude_invalid_files=True).to_table()
    found = [row["x"] for row in table.sort_by("n").to_pylist()]
    assert [one or None for one in found] == [one or None for one in read]


def pq_schema(path: Path) -> pa.Schema:
    """The columns of the last file."""
    return pq.read_schema(max(path.glob("epoch=*/*.parquet")))


def test_a_given_schema_parses_text_and_drops_fields(tmp_path: Path) -> None:
    schema = {"at": pa.timestamp("us", "UTC"), "by": pa.struct([("a", pa.int64())])}
    sink = opened(ParquetSink(tmp_path, schema=schema))
    publish(sink, 0, [{"at": "2024-01-01T00:00:00Z", "by": {"a": "7", "b": 1}, "c": 1}])
    (file,) = tmp_path.glob("epoch=*/*.parquet")
    assert pq.read_table(file).to_pylist() == [{"at": ZONED, "by": {"a": 7}}]
    with pytest.raises(SinkError, match="field 'at': 2024-01-01T00:00:00 has no time zone"):
        publish(sink, 1, [{"at": ZONED.replace(tzinfo=None)}])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (CENTS, 0.125),
        (CENTS, 1e300),
        (CENTS, "3402823669209384634633746074317682114.56"),
        (pa.decimal128(38, 30), 2**63 - 1),
        (pa.float64(), "1e400"),
        (pa.float64(), "1e-400"),
        (pa.float64(), DIGITS),
        (pa.float32(), 1e300),
        (pa.float32(), 1e-300),
        (pa.float16(), 70000),
        (pa.float16(), 70000.0),
        (pa.float16(), 2049),
        (pa.uint64(), 2**64),
        (pa.float64(), 2**70 + 1),
        (pa.struct([("a", pa.list_(CENTS))]), {"a": [0.125]}),
        (pa.map_(pa.string(), pa.int64()), {"a": 1.5}),
        (pa.map_(pa.string(), pa.string()), ["ab"]),
        (pa.list_(pa.map_(pa.string(), CENTS)), [{"a": 0.125}]),
    ],
)
@pytest.mark.parametrize("sink", [ParquetSink, CsvSink])
def test_a_schema_refuses_values_that_it_would_change(
    tmp_path: Path, sink: Any, kind: Any, value: Any
) -> None:
    problem = rf"{type(value).__name__} {re.escape(repr(value))}, which cannot be written as "
    with pytest.raises(SinkError, match=rf"step 'out': field 'x' holds {problem}"):
        write(opened(sink(tmp_path, schema={"x": kind})), 0, 0, [{"x": None}, {"x": value}])


@pytest.mark.parametrize(
    ("kind", "values", "read"),
    [
        (CENTS, [Decimal("1.5"), 0.25, 1], [Decimal("1.5"), Decimal("0.25"), Decimal(1)]),
        (CENTS, [1, None], [Decimal(1), None]),
        (pa.uint64(), [2**64 - 1, None, 2], [2**64 - 1, None, 2]),
        (pa.decimal128(38, 0), [-(2**70), 5], [Decimal(-(2**70)), Decimal(5)]),
        (pa.float32(), [float("inf"), 0.1], [float("inf"), np.float32(0.1)]),
        (pa.float64(), ["inf", "0.1", "-0e5"], [float("inf"), 0.1, 0.0]),
        (pa.map_(pa.string(), pa.int64()), [{"a": 1.0}, None], [[("a", 1)], None]),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None], [[("a", 1)], None]),
        (pa.duration("us"), [pd.Timedelta(1, "s"), None], [timedelta(seconds=1), None]),
    ],
)
def test_a_schema_takes_values_that_keep_their_value(
    tmp_path: Path, kind: Any, values: Any, read: Any
) -> None:
    sink = opened(ParquetSink(tmp_path, schema={"x": kind}))
    publish(sink, 0, [{"x": value} for value in values])
    assert [row["x"] for row in parquet_rows(tmp_path)] == read


@pytest.mark.parametrize(
    ("column", "kind", "problem"),
    [
        (pa.array([0.25, 0.125]), CENTS, "value 0.125: Rescaling"),
        (pa.array([0.5, 1e300]).dictionary_encode(), pa.float32(), "value 1e[+]300: the cast"),
        (pa.array([1, 2**63 - 1]), pa.decimal128(38, 30), f"value {2**63 - 1}: .* has no room"),
        (
            pa.array([Decimal(1), Decimal(2**63 - 1)], pa.decimal128(38, 0)),
            *(pa.decimal128(38, 30), r"value Decimal\('9223372036854775807'\): .* has no room"),
        ),
        (pa.array([[0.5], [1e300]]), pa.list_(pa.float32()), r"value \[1e[+]300\]: the cast"),
    ],
)
def test_a_column_that_a_schema_would_change_is_refused(
    tmp_path: Path, column: Any, kind: Any, problem: str
) -> None:
    sink = opened(ParquetSink(tmp_path, schema={"x": kind}))
    batch = pa.record_batch({"x": column})
    publish(sink, 0, batch.slice(0, 1))
    assert parquet_rows(tmp_path) == batch.slice(0, 1).to_pylist()
    with pytest.raises(
        SinkError, match=rf"field 'x' is .* fit {re.escape(str(kind))}, .*{problem}"
    ):
        publish(sink, 1, batch)


def test_floats_fit_narrower_columns_that_were_inferred_only_unrounded(tmp_path: Path) -> None:
    sink = opened(ParquetSink(tmp_path))
    publish(sink, 0, pa.record_batch({"x": pa.array([0.5], pa.float32())}))
    publish(sink, 1, [{"x": 0.25}, {"x": float("nan")}, {"x": None}], [{"x": None}])
    with pytest.raises(SinkError, match=r"value 0.1: the cast of double to float changes it"):
        publish(sink, 2, [{"x": 0.1}])


@pytest.mark.parametrize("kind", [ParquetSink, JsonLinesSink])
def test_times_of_numpy_are_refused(tmp_path: Path, kind: Any) -> None:
    sink = opened(kind(tmp_path))
    for value in (np.datetime64(0, "ns"), np.timedelta64(1, "ns"), np.array([0], "M8[ns]")):
        with pytest.raises(SinkError, match="field 'at'"):
            publish(sink, 0, [{"at": value}])


def test_a_schema_decides_the_columns(tmp_path: Path) -> None:
    schema = {"n": pa.int32(), "x": pa.float64()}
    sink = opened(ParquetSink(tmp_path, schema=schema))
    publish(sink, 0, [{"n": 1, "other": "left out"}], pa.record_batch({"x": [2], "n": [3]}))
    assert pq.read_table(tmp_path).drop(["epoch"]).schema == pa.schema(schema)
    assert parquet_rows(tmp_path) == [{"n": 1, "x": None}, {"n": 3, "x": 2.0}]


def test_a_schema_keeps_its_metadata(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())], metadata={"unit": "ms"})
    publish(opened(ParquetSink(tmp_path, schema=schema)), 0, [{"n": 1}])
    (file,) = tmp_path.glob("epoch=*/*.parquet")
    assert pq.read_schema(file).metadata[b"unit"] == b"ms"


def test_files_of_an_epoch_have_the_same_columns(tmp_path: Path) -> None:
    sink = opened(ParquetSink(tmp_path))
    publish(
        sink,
        0,
        [{"k": "a", "ids": [], "x": None, "inner": {"p": None, "q": 1}}],
        [{"k": "b", "ids": [1], "x": 1, "inner": {"p": "t", "q": 2}}],
        [{"x": 1.5, "k": "c"}],
    )
    publish(sink, 1, [{"k": "d", "ids": [], "x": 2}])
    assert parquet_rows(tmp_path) == [
        {"k": "a", "ids": None, "x": None, "inner": {"p": None, "q": 1}},
        {"k": "b", "ids": [1], "x": 1.0, "inner": {"p": "t", "q": 2}},
        {"k": "c", "ids": None, "x": 1.5, "inner": None},
        {"k": "d", "ids": [], "x": 2.0, "inner": None},
    ]
    files = sorted(tmp_path.glob("epoch=*/*.parquet"))
    assert len({str(pq.read_schema(file)) for file in files}) == 1


def test_columns_keep_their_types_in_a_resumed_run(tmp_path: Path) -> None:
    publish(opened(ParquetSink(tmp_path)), 0, [{"x": 1.5}])
    again = opened(ParquetSink(tmp_path), resuming=True)
    publish(again, 1, [{"x": None}], [{"x": 2}])
    assert parquet_rows(tmp_path) == [{"x": 1.5}, {"x": None}, {"x": 2.0}]


def test_a_new_column_makes_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MERGED_ROWS", 1)
    sink = opened(ParquetSink(tmp_path))
    sink.commit(0, [write(sink, 0, 4, [{"x": 1}], [{"x": 2}], [{"x": 2.5, "y": "new"}])])
    assert tree(tmp_path) == [
        "_flow.json",
        "epoch=00000000-<run-one>/part-00004-1.parquet",
        "epoch=00000000-<run-one>/part-00004.parquet",
    ]
    assert sorted(row["x"] for row in parquet_rows(tmp_path)) == [1.0, 2.0, 2.5]


@pytest.mark.parametrize(
    ("schema", "items", "message"),
    [
        (None, [{"a": 1}, {"a": "x"}], "field 'a' holds int and str, which do not fit one column"),
        (None, [{"a": 1j}], "field 'a' holds complex 1j, which cannot be written as a column"),
        (None, [{"a": 2**70}], "field 'a' holds int 1180591620717411303424, which cannot be"),
        ({"a": pa.int64()}, [{"a": 1.5}], "'a' holds float 1.5, which cannot be written as int64"),
        ({"a": pa.int64()}, pa.record_batch({"a": ["x"]}), "'a' is string here, which does not"),
        (None, [{"a": AT}, {"a": NAIVE}], "field 'a': 2013-01-01T05:00:00 has no time zone"),
        ({"a": pa.timestamp("us", "UTC")}, [{"a": NAIVE}], "'a': 2013-01-01T05:00:00 has no time"),
        (None, [{"a": DIGITS}, {"a": 0.5}], "'a' holds Decimal and float, which do not fit one"),
        (
            None,
            [{"a": date(2024, 1, 1)}, {"a": NAIVE}],
            "'a' holds date and datetime, which do not",
        ),
        (None, [{"a": date(2024, 1, 1)}, {"a": 0.5}], "'a' holds date and float, which do not fit"),
        (None, [{"a": [AT, None, 3]}], r"'a' holds list \[.*, None, 3\], which cannot be written"),
        (
            None,
            [{"a": {"b": 0.5}}, {"a": {"b": True}}],
            "as a column, bool and float do not fit one",
        ),
        (None, [{"a": b"x"}, {"a": "x"}], "'a' holds bytes and str, which do not fit one column"),
        (None, [{"a": time(1, tzinfo=UTC)}], "'a' holds time .*, which cannot be written"),
        (None, [{"a": pd.Timestamp(1, tz="UTC")}], "'a' holds Timestamp .*, which cannot be"),
        (None, [{"a": pd.Timedelta(1)}], "'a' holds Timedelta .*, which cannot be written"),
        ({"a": pa.timestamp("us")}, [{"a": date(2024, 1, 1)}, {"a": NAIVE}], "date and datetime"),
        (None, [{1: 2}], "the names of fields must be text, got int 1"),
        (None, [{}], "{} has no field to write: give the sink a schema"),
        (None, [{"a": None, "b": []}], r"no item has a value in any field, .* \['a', 'b'\]"),
        (None, [{"epoch": 1}], "field 'epoch' cannot be written: the directories of the output"),
        (None, pa.record_batch({"epoch": [1]}), "field 'epoch' cannot be written"),
    ],
)
def test_a_value_that_does_not_fit_its_column_names_the_field(
    tmp_path: Path, schema: Any, items: Any, message: str
) -> None:
    with pytest.raises(SinkError, match=f"step 'out': .*{message}"):
        write(opened(ParquetSink(tmp_path, schema=schema)), 0, 0, items)


def test_a_column_that_changes_its_type_later_is_an_error_with_advice(tmp_path: Path) -> None:
    sink = opened(ParquetSink(tmp_path))
    publish(sink, 0, [{"x": 1}])
    with pytest.raises(
        SinkError, match=r"field 'x' is double here, which does not fit int64, .*: "
    ):
        publish(sink, 1, [{"x": 1.5}])
    fixed = opened(ParquetSink(tmp_path, schema={"x": pa.float64()}), resuming=True)
    publish(fixed, 1, [{"x": 1.5}])
    types = [pq.read_schema(file).field("x").type for file in sorted(tmp_path.rglob("*.parquet"))]
    assert types == [pa.int64(), pa.float64()]


def test_different_types_in_tasks_of_the_first_epoch_are_an_error(tmp_path: Path) -> None:
    sink = opened(ParquetSink(tmp_path))
    with pytest.raises(SinkError, match="field 'x' is int64 in some items and string in others"):
        publish(sink, 0, [{"x": 1}], [{"x": "1"}])
    assert not list(tmp_path.glob("epoch=*"))


ROWS = 20_000
NUMBERS = np.arange(ROWS)

COLUMNS: dict[str, tuple[Any, bool]] = {
    "distinct text": ([f"event-{number}" for number in NUMBERS], False),
    "distinct numbers": (NUMBERS * 0.5, False),
    "few values": ([f"user-{number % 100}" for number in NUMBERS], True),
    "runs of a value": (NUMBERS // 4, True),
    "values that come again later": (NUMBERS % 5_000, True),
    "nulls": ([None] * ROWS, True),
    "truth": (NUMBERS % 2 == 0, True),
    "lists": ([[number] for number in NUMBERS], True),
}


@pytest.mark.parametrize(("values", "has"), COLUMNS.values(), ids=COLUMNS)
def test_a_column_of_values_that_repeat_has_a_dictionary(values: Any, has: bool) -> None:
    rows = pa.table({"a.b": pa.array(values), "one": pa.array(np.ones(ROWS))})
    assert dictionary_columns(rows) == (True if has else ["one"])
    # A few rows say too little.
    assert dictionary_columns(rows.slice(0, 100)) is True


def test_the_sink_writes_dictionaries_of_values_that_repeat(tmp_path: Path) -> None:
    columns = {"a.b": [f"event-{number}" for number in NUMBERS], "few": NUMBERS % 100}
    publish(opened(ParquetSink(tmp_path)), 0, pa.table(columns).to_pylist())
    (file,) = tmp_path.glob("epoch=*/*.parquet")
    group = pq.ParquetFile(file).metadata.row_group(0)
    has = {group.column(at).path_in_schema: group.column(at).has_dictionary_page for at in (0, 1)}
    assert has == {"a.b": False, "few": True}
    assert pq.ParquetFile(file).read()["a.b"].to_pylist() == columns["a.b"]


def test_only_the_merged_ids_of_windows_are_numbers_while_they_are_empty() -> None:
    window = {"window_id": 1, "open_time": None, "close_time": None, "merged_ids": []}
    of_window = columns.inferred_columns([window], "out").schema
    of_others = columns.inferred_columns([{"merged_ids": []}], "out").schema
    assert of_window.field("merged_ids").type == pa.list_(pa.int64())
    assert of_others.field("merged_ids").type == pa.list_(pa.null())


def test_maps_are_widened_without_loss(tmp_path: Path) -> None:
    narrow, wide = (pa.map_(pa.string(), kind) for kind in (pa.int16(), pa.int32()))
    rows = pa.record_batch({"x": pa.array([[("a", 1)], [("b", 300)]], narrow)})
    sink = opened(ParquetSink(tmp_path / "out", schema={"x": wide}))
    publish(sink, 0, rows)
    (file,) = tmp_path.glob("out/epoch=*/*.parquet")
    assert pq.read_table(file).column("x").to_pylist() == [[("a", 1)], [("b", 300)]]
    tight = opened(ParquetSink(tmp_path / "tight", schema={"x": pa.map_(pa.string(), pa.int8())}))
    with pytest.raises(SinkError, match=r"value \[\('b', 300\)\]: Integer value 300 not in range"):
        publish(tight, 0, rows)
