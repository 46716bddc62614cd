"""Arguments of a `Then`, and rules that take the start of a live source from a history."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
from flow import Dataflow
from flow.connectors.dataframe import DataFrameSource
from flow.connectors.files import JsonLinesSource, ParquetSource, TextSource
from flow.connectors.items import from_items
from flow.connectors.kafka import KafkaSource
from flow.connectors.then import AfterOffsets, FromTime, StartRule, Then
from flow.errors import FlowBuildError, FlowTypeError, SourceError
from flow.testing import run_source


def test_a_history_without_an_end_is_refused() -> None:
    with pytest.raises(FlowBuildError, match=r"history must end by itself.*unbounded TextSource"):
        Then(TextSource("in/", follow=True), from_items([]))


def test_both_must_be_sources_that_python_reads() -> None:
    with pytest.raises(FlowTypeError, match="Then: live must be a Source, got list"):
        Then(from_items([1]), [2])  # type: ignore[arg-type]
    frame: Any = DataFrameSource.__new__(DataFrameSource)
    with pytest.raises(FlowBuildError, match="Then: history must not be a data frame"):
        Then(frame, from_items([1]))


def test_records_and_messages_do_not_fit_together() -> None:
    live = KafkaSource("localhost:9092", "orders", value="json")
    with pytest.raises(FlowBuildError, match="history are records and those of live are KafkaMess"):
        Then(ParquetSource("history/"), live)
    with pytest.raises(FlowBuildError, match="history are str and those of live are records"):
        Then(TextSource("a"), JsonLinesSource("b", schema={"n": pa.int64()}))


def test_a_rule_needs_a_live_source_that_starts_at_a_position() -> None:
    with pytest.raises(FlowBuildError, match="TextSource does not: leave out start="):
        Then(TextSource("a"), TextSource("b", follow=True), start=AfterOffsets())
    live = KafkaSource("localhost:9092", "orders", value="json", schema={"n": pa.int64()})
    with pytest.raises(
        FlowTypeError, match=r"start must be a rule .* got 'earliest'; a start that"
    ):
        Then(ParquetSource("a"), live, start="earliest")  # type: ignore[arg-type]
    with pytest.raises(FlowBuildError, match="ItemsSource does not start at a position, got 3"):
        from_items([]).starting_at(3)


def test_each_source_handles_its_own_bad_input(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad", tmp_path / "good"
    bad.write_text('{"n": 1}\nno\n')
    good.write_text('{"n": 2}\n')
    schema = {"n": pa.int64()}
    dropping = JsonLinesSource(bad, schema=schema, on_invalid="drop")
    strict = JsonLinesSource(good, schema=schema)
    assert Then(dropping, strict).on_invalid == "drop"
    broken = Then(JsonLinesSource(bad, schema=schema), dropping)
    with pytest.raises(SourceError, match=r"bad, line 2: .*on_invalid='drop' leaves it out"):
        run_source(broken)
    with pytest.raises(FlowBuildError, match="must not mix on_invalid='drop' and 'errors'"):
        Then(dropping, JsonLinesSource(good, schema=schema, on_invalid="errors"))


def test_an_input_of_errors_is_read_with_try_input() -> None:
    source = Then(from_items([]), JsonLinesSource("a", on_invalid="errors"))
    with pytest.raises(FlowBuildError, match=r"a source with on_invalid=.errors. makes"):
        op.input("in", Dataflow("f"), source)
    assert op.try_input("in", Dataflow("f"), source).errors is not None


def test_columns_are_known_if_both_have_the_same(tmp_path: Path) -> None:
    same = JsonLinesSource(tmp_path, schema={"n": pa.int64()})
    other = JsonLinesSource(tmp_path, schema={"n": pa.int64(), "m": pa.int64()})
    assert Then(same, same).record_columns().names == ["n"]
    assert Then(same, other).record_columns() is None


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def start_of(rule: StartRule, *batches: Any) -> Any:
    position = None
    for batch in batches:
        position = rule.after(position, batch)
    return None if position is None else rule.start(position)


ROWS = [
    {"topic": "a", "partition": 0, "offset": 5},
    {"topic": "a", "partition": 1, "offset": 9},
    {"topic": "b", "partition": 0, "offset": 0},
    {"topic": "a", "partition": 0, "offset": 4},
]


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("cut", [1, 3, 4])
def test_partitions_start_after_their_greatest_offset(columns: bool, cut: int) -> None:
    batches: list[Any] = [ROWS[:cut], ROWS[cut:]]
    if columns:
        schema = pa.RecordBatch.from_pylist(ROWS).schema
        batches = [pa.RecordBatch.from_pylist(one, schema) for one in batches]
    assert start_of(AfterOffsets(), *batches) == {"a": {0: 6, 1: 10}, "b": {0: 1}}


def test_fields_of_offsets_have_other_names_and_places() -> None:
    rule = AfterOffsets(topic="from.topic", partition="from.part", offset="at")
    assert start_of(rule, [{"from": {"topic": "a", "part": 2}, "at": 7}]) == {"a": {2: 8}}
    assert rule.fields == {"from", "from.topic", "from.part", "at"}


@pytest.mark.parametrize(
    "bad", [{"partition": None}, {"offset": "7"}, {"topic": 3}, {"offset": -1}]
)
def test_an_item_without_a_whole_position_is_an_error(bad: dict[str, Any]) -> None:
    with pytest.raises(SourceError, match="a topic, a partition and an offset in each item"):
        start_of(AfterOffsets(), [{**ROWS[0], **bad}])


@pytest.mark.parametrize(
    "values",
    [
        ["2024-05-01T11:00:00Z", "2024-05-01T14:00:00+02:00", None],
        [NOON.timestamp() - 1, NOON.timestamp()],
        [int(NOON.timestamp()), 0],
        [NOON, None, datetime(2024, 5, 1, tzinfo=UTC)],
    ],
)
@pytest.mark.parametrize("columns", [True, False])
def test_the_greatest_time_counts(values: list[Any], columns: bool) -> None:
    rows: Any = [{"at": value} for value in values]
    batch = pa.RecordBatch.from_pylist(rows) if columns else rows
    assert start_of(FromTime("at"), batch) == NOON
    assert start_of(FromTime("at", overlap="1h"), batch) == NOON.replace(hour=11)


def test_times_of_columns_finer_than_a_millisecond_start_at_the_millisecond() -> None:
    us = int(NOON.timestamp()) * 1_000_000 + 1_999
    batch = pa.RecordBatch.from_arrays(
        [pa.array([us * 1_000 + 7], pa.timestamp("ns", "UTC"))], ["at"]
    )
    assert start_of(FromTime("at"), batch) == NOON.replace(microsecond=1_000)


def test_a_history_without_times_has_no_position() -> None:
    assert start_of(FromTime("at"), [{"at": None}], []) is None
    assert start_of(AfterOffsets(), []) is None


def test_a_time_that_is_none_is_an_error_with_the_value() -> None:
    with pytest.raises(SourceError, match=r"FromTime\('at'\): 'noon' is not an ISO 8601 timestamp"):
        start_of(FromTime("at"), [{"at": "noon"}])
    naive = pa.RecordBatch.from_pylist([{"at": NOON.replace(tzinfo=None)}])
    with pytest.raises(SourceError, match="naive datetime"):
        start_of(FromTime("at"), naive)


def test_a_column_that_is_not_there_is_an_error() -> None:
    with pytest.raises(SourceError, match=r"no field 'at'; its records have \['n'\]"):
        start_of(FromTime("at"), pa.RecordBatch.from_pylist([{"n": 1}]))


def test_arguments_are_checked() -> None:
    with pytest.raises(FlowBuildError, match="overlap must not be negative, got '-5m'"):
        FromTime("at", overlap="-5m")
    with pytest.raises(FlowTypeError, match="FromTime: field must be the name of a field, got ''"):
        FromTime("")
    with pytest.raises(FlowTypeError, match="AfterOffsets: offset must be the name of a field"):
        AfterOffsets(offset=3)  # type: ignore[arg-type]
