"""Columns of streams that are found in the graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, Stream
from flow.columns.known_columns import KnownColumns, UnknownColumns
from flow.connectors.files import CsvSource, JsonLinesSource, ParquetSource
from flow.connectors.kafka import KafkaSource
from flow.connectors.source import Source
from flow.engine.plan.declared_columns import columns_of, needless_functions
from flow.errors import SourceError

FIELDS = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int32()),
        ("at", pa.timestamp("ms", "Europe/Paris")),
        ("price", pa.decimal128(7, 2)),
        ("code", pa.string_view()),
        ("nothing", pa.null()),
    ]
)
RECORDS = [
    ("id", pa.string()),
    ("n", pa.int32()),
    ("at", pa.timestamp("ms", "UTC")),
    ("price", pa.decimal128(38, 2)),
    ("code", pa.string()),
]
KEYED = [("key", pa.string()), *RECORDS]


def found(stream: Stream[Any]) -> Any:
    """Return the columns of a stream by name, or the reason why they are not known."""
    columns = columns_of({step.step_id: step for step in stream.flow.steps}, stream.stream_id)
    if isinstance(columns, UnknownColumns):
        return columns.reason
    return list(zip(columns.schema.names, columns.schema.types, strict=True))


class Known(Source[Any]):
    """A source of records with the columns of `FIELDS`."""

    def record_columns(self) -> Any:
        return FIELDS

    def planner(self, log: Any, parallelism: int) -> Any: ...

    def read(self, split: Any) -> Any: ...


def records(flow: Dataflow | None = None, step_id: str = "in") -> Stream[Any]:
    return op.input(step_id, flow or Dataflow("columns"), Known())


def keyed() -> Stream[Any]:
    return op.key_on("by_id", records(), "id")


def test_records_have_the_columns_of_their_source() -> None:
    """Without those that hold only nulls, and with instants in UTC, as in Parquet files."""
    assert found(records()) == RECORDS


@pytest.mark.parametrize(
    ("make", "columns"),
    [
        (lambda: op.filter("f", records(), bool), RECORDS),
        (lambda: op.branch("b", records(), bool).falses, RECORDS),
        (lambda: op.redistribute("r", records()), RECORDS),
        (lambda: op.inspect("i", records()), RECORDS),
        (keyed, KEYED),
        (lambda: op.filter_value("f", keyed(), bool), KEYED),
        (lambda: op.key_rm("rm", keyed()), RECORDS),
        (lambda: op.records("r", records()), RECORDS),
        (lambda: op.key_rm("rm", op.key_on("k", op.records("r", keyed()), "key")), KEYED),
    ],
)
def test_kept_items_keep_their_columns(make: Callable[[], Stream[Any]], columns: list[Any]) -> None:
    assert found(make()) == columns


def test_a_field_called_key_takes_the_place_of_the_key() -> None:
    columns = KnownColumns(pa.schema([("n", pa.int64()), ("key", pa.int8())]), has_key=True)
    assert columns.schema == pa.schema([("key", pa.int8()), ("n", pa.int64())])


def test_streams_of_equal_columns_merge() -> None:
    flow = Dataflow("merged")
    same = op.merge("same", records(flow, "a"), records(flow, "b"))
    assert found(same) == RECORDS
    other = op.merge("other", same, op.key_on("k", same, "id"))
    assert found(other) == "the streams that step 'other' merges have different columns"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: op.map("m", records(), str), "step 'm' makes its items with a function"),
        (lambda: op.filter("f", op.map("m", records(), str), bool), "step 'm' makes its items"),
        (lambda: op.key_on("k", keyed(), str), "the items of step 'k' are pairs in pairs"),
        (lambda: op.map_batches("b", records(), str), "step 'b' makes its items with a function"),
        (lambda: op.try_map("t", records(), str).ok, "the items of step 't' are Python objects"),
        (lambda: op.reduce_final("r", keyed(), max), "of step 'r': it calls Python for each key"),
        (
            lambda: op.input("in", Dataflow("list"), [1]),
            "the source of step 'in' does not know the columns of its records",
        ),
    ],
)
def test_unknown_columns_have_a_reason(make: Callable[[], Stream[Any]], reason: str) -> None:
    assert found(make()).startswith(reason)


SCHEMA = {"id": pa.string(), "n": pa.int64()}


@pytest.mark.parametrize("source_class", [JsonLinesSource, CsvSource])
def test_sources_with_a_schema_know_their_columns(source_class: Any) -> None:
    source = source_class("*", schema=SCHEMA)
    assert found(op.input("in", Dataflow("files"), source)) == list(SCHEMA.items())


def test_sources_without_a_schema_do_not() -> None:
    assert JsonLinesSource("*").record_columns() is None
    assert CsvSource("*").record_columns() is None
    assert KafkaSource("localhost:9092", "t", value="json").record_columns() is None


def test_a_parquet_source_has_the_columns_of_its_first_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1], "id": ["a"]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"n": [1.5], "id": ["a"]}), tmp_path / "a.parquet")
    assert ParquetSource(str(tmp_path)).record_columns() == pa.schema(
        [("n", pa.float64()), ("id", pa.string())]
    )
    assert ParquetSource(str(tmp_path), columns=["id"]).record_columns().names == ["id"]


def test_a_parquet_source_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    gone = op.input("in", Dataflow("gone"), ParquetSource(str(tmp_path / "gone")))
    with pytest.raises(SourceError, match=r"^step 'in': .*gone"):
        found(gone)
    assert ParquetSource(str(tmp_path), follow=True).record_columns() is None


def test_a_kafka_source_has_the_columns_of_values_and_messages() -> None:
    schema = {"user": pa.string(), "tags": pa.list_(pa.string())}
    source = KafkaSource("localhost:9092", "t", value="json", schema=schema)
    columns = source.record_columns()
    assert columns.names == [
        *("user", "tags", "key", "topic", "partition", "offset"),
        *("timestamp", "timestamp_type", "headers"),
    ]
    assert columns.field("tags").type == pa.list_(pa.string())


def test_bad_input_has_columns() -> None:
    source = JsonLinesSource("*", on_invalid="errors")
    out = op.try_input("in", Dataflow("bad"), source)
    assert found(out.errors) == [(name, pa.string()) for name in ("where", "text", "reason")]


def windows(source: Source[Any], key: Any, at: Any, field: Any) -> list[tuple[str, str]]:
    flow = Dataflow("windows")
    keyed = op.key_on("by", op.input("in", flow, source), key)
    clock, hours = win.EventClock(at, "0s"), win.TumblingWindower("1h")
    win.aggregate_window("sums", keyed, clock, hours, n=win.Sum(field), m=win.Count())
    return list(needless_functions({step.step_id: step for step in flow.steps}))


def key_of(row: Any) -> Any:
    return row["id"]


@pytest.mark.parametrize("key", [key_of, lambda row: row["id"], lambda r: str(r["id"])])
def test_a_function_that_only_reads_a_field_of_known_columns_is_needless(key: Any) -> None:
    found = windows(Known(), key, lambda row: row["at"], lambda value: value["n"])
    assert found == [("by", "id"), ("sums", "at"), ("sums", "n")]


@pytest.mark.parametrize(
    "key",
    [
        "id",
        lambda row: row["id"].lower(),
        lambda row: row["other"],
        lambda row: repr(row["id"]),
        lambda row: row.get("id"),
        str,
    ],
)
def test_a_path_and_any_other_function_is_not_needless(key: Any) -> None:
    assert windows(Known(), key, "at", "n") == []


def test_a_function_of_unknown_columns_is_not_needless(tmp_path: Path) -> None:
    for source in (JsonLinesSource(tmp_path / "a.jsonl"), ParquetSource(tmp_path / "no.parquet")):
        assert windows(source, lambda row: row["id"], "at", "n") == []
