"""Encoding of items in files: text, JSON lines, Parquet and CSV."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from flow.connectors.files import (
    CsvSink,
    CsvSource,
    JsonLinesSink,
    ParquetSink,
    TextSink,
    epoch_directory,
)
from flow.errors import SinkError
from flow.testing import run_source
from tests.support.writing import RUN, lines, opened, parquet_rows, publish, write

# --- text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["a", 5], "step 'out': TextSink writes text, got int 5: map the items to text"),
        (["a", "\ud800"], "step 'out': text cannot be written as UTF-8"),
        (pa.record_batch({"n": [1]}), r"these items are records with the columns \['n'\]: map"),
    ],
)
def test_text_sink_writes_text_only(tmp_path: Path, items: Any, message: str) -> None:
    with pytest.raises(SinkError, match=message):
        write(opened(TextSink(tmp_path)), 0, 0, items)


# --- JSON lines ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    window_id: int
    open_time: datetime
    merged_ids: frozenset[int]


class Color(Enum):
    RED = "red"


PARIS = timezone(timedelta(hours=1))


AT = datetime(2013, 1, 1, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("item", "line"),
    [
        ({"a": 1, "b": None}, '{"a": 1, "b": null}'),
        (5, '{"value": 5}'),
        (("LHR", {"n": 3}), '{"key": "LHR", "n": 3}'),
        (
            ("LHR", (Window(1, AT, frozenset({3, 2})), 7)),
            '{"key": "LHR", "window_id": 1, "open_time": "2013-01-01T05:00:00Z", '
            '"merged_ids": [2, 3], "value": 7}',
        ),
        (
            {"t": datetime(2013, 1, 1, 5, 0, 0, 5, PARIS)},
            '{"t": "2013-01-01T05:00:00.000005+01:00"}',
        ),
        ({"by": timedelta(minutes=1, milliseconds=5)}, '{"by": 60.005}'),
        ({"d": date(2013, 1, 1), "x": Decimal("1.50")}, '{"d": "2013-01-01", "x": "1.50"}'),
        ({"s": {"b", "a"}, "m": {1, "a"}}, '{"s": ["a", "b"], "m": [1, "a"]}'),
        (
            {"w": [Window(1, AT, frozenset())]},
            '{"w": [{"window_id": 1, "open_time": "2013-01-01T05:00:00Z", "merged_ids": []}]}',
        ),
        ({"c": Color.RED}, '{"c": "red"}'),
        ({"u": UUID(int=1)}, '{"u": "00000000-0000-0000-0000-000000000001"}'),
        ({"n": np.int64(3), "a": np.array([1.5])}, '{"n": 3, "a": [1.5]}'),
        ({"text": "é\n"}, '{"text": "é\\n"}'),
    ],
)
def test_json_lines_are_records(tmp_path: Path, item: Any, line: str) -> None:
    publish(opened(JsonLinesSink(tmp_path)), 0, [item])
    assert lines(tmp_path) == [line]


def test_record_batches_become_json_objects(tmp_path: Path) -> None:
    batch = pa.record_batch({"n": [1, None], "t": pa.array([AT, None], pa.timestamp("us", "UTC"))})
    publish(opened(JsonLinesSink(tmp_path)), 0, batch)
    assert lines(tmp_path) == ['{"n": 1, "t": "2013-01-01T05:00:00Z"}', '{"n": null, "t": null}']


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (
            {"ok": 1, "z": 1j},
            r"step 'out': field 'z' \(complex 1j\) cannot be written as JSON: a value of type "
            r"complex cannot be written as JSON\. Map it to text, numbers, lists or dicts before",
        ),
        (
            {"t": datetime(2013, 1, 1)},  # noqa: DTZ001
            r"field 't' \(datetime .*\) cannot be .* 2013-01-01T00:00:00 has no time zone",
        ),
        ({"x": float("nan")}, r"field 'x' \(float nan\) has no form in JSON: map it to None"),
        ({"x": {(1, 2): 3}}, r"field 'x' \(dict .*\) cannot be written as JSON: keys must be"),
        ({"x": b"1"}, r"field 'x' \(bytes b'1'\) cannot be written as JSON"),
        ({"x": "\ud800"}, r"field 'x' \(str .*\) cannot be written as JSON: .*surrogates"),
        ({"Epoch": 1}, r"step 'out': field 'Epoch' cannot be written: the directories"),
    ],
)
def test_a_value_without_json_form_names_the_field(tmp_path: Path, item: Any, message: str) -> None:
    with pytest.raises(SinkError, match=message):
        write(opened(JsonLinesSink(tmp_path)), 0, 0, [item])


# --- Parquet -------------------------------------------------------------------------------------


def test_every_reader_reads_the_directory_as_a_whole(tmp_path: Path) -> None:
    sink = opened(ParquetSink(tmp_path))
    publish(sink, 0, [("a", {"n": 1})], [("b", {"n": 2})])
    publish(sink, 1, pa.record_batch({"key": ["c"], "n": [3]}))
    write(sink, 2, 0, [("hidden", {"n": 4})])
    expected = [{"key": "a", "n": 1}, {"key": "b", "n": 2}, {"key": "c", "n": 3}]
    assert parquet_rows(tmp_path) == expected
    frame = pd.read_parquet(tmp_path)
    assert frame.drop(columns="epoch").to_dict("records") == expected
    short = epoch_directory.short_name(RUN)
    assert list(frame["epoch"]) == [f"0000000{n}-{short}" for n in (0, 0, 1)]
    assert ds.dataset(tmp_path).to_table().to_pylist() == expected


def test_record_batches_are_written_as_they_are(tmp_path: Path) -> None:
    batch = pa.record_batch(
        {
            "small": pa.array([1], pa.int16()),
            "at": pa.array([AT], pa.timestamp("us", "UTC")),
            "list": pa.array([[1.5]]),
            "inner": pa.array([{"x": 1}]),
        }
    )
    publish(opened(ParquetSink(tmp_path)), 0, batch)
    assert pq.read_table(tmp_path).drop(["epoch"]).schema == batch.schema
    assert parquet_rows(tmp_path) == batch.to_pylist()


def test_objects_are_laid_out_with_times_in_utc_and_sets_sorted(tmp_path: Path) -> None:
    item = Window(1, datetime(2013, 1, 1, 6, tzinfo=PARIS), frozenset({3, 1}))
    publish(opened(ParquetSink(tmp_path)), 0, [("LHR", (item, Color.RED))])
    assert parquet_rows(tmp_path) == [
        {"key": "LHR", "window_id": 1, "open_time": AT, "merged_ids": [1, 3], "value": "red"}
    ]
    types = pq.read_table(tmp_path).schema
    assert types.field("open_time").type == pa.timestamp("us", "UTC")


def test_small_batches_make_large_row_groups(tmp_path: Path) -> None:
    sink = opened(ParquetSink(tmp_path))
    batches = [pa.record_batch({"n": [n]}) for n in range(100)]
    sink.commit(0, [write(sink, 0, 0, *batches, [{"n": 100}], [], [{"n": 101}])])
    (file,) = tmp_path.glob("epoch=*/*.parquet")
    assert pq.ParquetFile(file).metadata.num_row_groups == 1
    assert [row["n"] for row in parquet_rows(tmp_path)] == list(range(102))


# --- CSV -----------------------------------------------------------------------------------------


def test_csv_files_have_a_header_and_typed_text(tmp_path: Path) -> None:
    item = {
        "n": 1,
        "x": 0.5,
        "ok": True,
        "text": 'a"b,c',
        "none": None,
        "at": datetime(2013, 1, 1, 6, tzinfo=PARIS),
        "precise": AT.replace(microsecond=5),
        "day": date(2013, 1, 1),
        "ids": {2, 1},
        "money": Decimal("1.50"),
    }
    publish(opened(CsvSink(tmp_path)), 0, [item])
    assert lines(tmp_path) == [
        '"n","x","ok","text","none","at","precise","day","ids","money"',
        '1,0.5,true,"a""b,c",,"2013-01-01T05:00:00Z","2013-01-01T05:00:00.000005Z",2013-01-01,'
        '"[1, 2]",1.50',
    ]


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        (pa.int64(), 7, '"7"'),
        (pa.string(), "a", '"a"'),
        (pa.bool_(), True, '"true"'),
        (pa.timestamp("us", "UTC"), AT, '"2013-01-01T05:00:00Z"'),
    ],
)
def test_a_null_in_the_only_column_is_a_row_to_readers(
    tmp_path: Path, kind: Any, value: Any, cell: str
) -> None:
    values = [None, value, None]
    publish(opened(CsvSink(tmp_path, schema={"v": kind})), 0, [{"v": one} for one in values])
    (file,) = tmp_path.glob("epoch=*/*.csv")
    assert file.read_text() == f'"v"\n""\n{cell}\n""\n'
    read = run_source(CsvSource(file, schema={"v": kind}))
    assert [row["v"] or None for row in read] == values
    assert pd.read_csv(file)["v"].isna().tolist() == [True, False, True]
    assert pyarrow.csv.read_csv(file).num_rows == 3


def test_csv_record_batches_are_written_as_they_are(tmp_path: Path) -> None:
    colors = pa.array(["red", None, "red"]).dictionary_encode()
    batch = pa.record_batch({"n": [1, 2, None], "color": colors})
    publish(opened(CsvSink(tmp_path, delimiter=";")), 0, batch)
    assert lines(tmp_path) == ['"n";"color"', '1;"red"', "2;", ';"red"']


def test_csv_files_share_the_columns_and_the_order_of_the_first(tmp_path: Path) -> None:
    first = {"a": 1, "b": "x", "c,": None}
    other = {"c,": '"q",\n\n,', "b": "", "a": 1.5}
    rows = [other, {"b": None, "a": 2}]
    publish(opened(CsvSink(tmp_path)), 0, [first], rows, [{"b": "z", "c,": AT, "a": 3}])
    assert lines(tmp_path) == [
        '"a","b","c,"',
        '1,"x",',
        '"a","b","c,"',
        '1.5,"","""q"",',
        "",
        ',"',
        "2,,",
        '"a","b","c,"',
        '3,"z","2013-01-01T05:00:00Z"',
    ]
    publish(opened(CsvSink(tmp_path), resuming=True), 1, [other], [{"a": 3}])
    assert lines(tmp_path)[9:11] == ['"a","b","c,"', '1.5,"","""q"",']
    assert lines(tmp_path)[13:] == ['"a","b","c,"', "3,,"]


@pytest.mark.parametrize("delimiter", ["-", ":", ".", "1"])
def test_numbers_and_times_may_have_the_delimiter_of_csv(tmp_path: Path, delimiter: str) -> None:
    row = {"n": -1, "day": date(2026, 11, 1), "x": 1.5, "none": None, "noon": time(12)}
    publish(opened(CsvSink(tmp_path, delimiter=delimiter)), 0, [row], [dict(reversed(row.items()))])
    read = run_source(CsvSource(tmp_path, delimiter=delimiter))
    texts = {"n": "-1", "day": "2026-11-01", "x": "1.5", "none": "", "noon": "12:00:00.000000"}
    assert read == [texts, texts]


def test_a_csv_file_of_several_batches_has_one_header_of_the_schema(tmp_path: Path) -> None:
    sink = opened(CsvSink(tmp_path, schema={"b": pa.string(), "a": pa.int64()}))
    batches = [pa.record_batch({"a": [n]}) for n in range(2)]
    sink.commit(0, [write(sink, 0, 0, [{"a": 9, "other": 2}], *batches)])
    assert lines(tmp_path) == ['"b","a"', ",9", ",0", ",1"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"x", "field 'v' is binary, which has no form in CSV: map it to text"),
        (AT.replace(tzinfo=None), r"field 'v': timestamp\[us\] has no time zone"),
        ([b"x"], "field 'v': a value of type bytes cannot be written as JSON"),
        (timedelta(1), r"field 'v' is duration\[us\], which has no form in CSV"),
    ],
)
def test_a_value_without_csv_form_names_the_field(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(SinkError, match=f"step 'out': {message}"):
        write(opened(CsvSink(tmp_path)), 0, 0, [{"v": value}])


def test_a_new_csv_field_is_an_error_with_advice(tmp_path: Path) -> None:
    sink = opened(CsvSink(tmp_path))
    publish(sink, 0, [{"a": 1}])
    with pytest.raises(SinkError, match=r"field 'b' is not among the columns .* \['a'\]: give the"):
        write(sink, 1, 0, [{"a": 1, "b": 2}])
    with pytest.raises(SinkError, match=r"some items have the fields \['a'\], others \['b'\]"):
        publish(opened(CsvSink(tmp_path / "new")), 0, [{"a": 1}], [{"b": 1}])
