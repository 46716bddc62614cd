"""Checks of the two sources of a `Then`, as the flow is built."""

from __future__ import annotations

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
from flow.connectors.then import AfterOffsets, Then
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


def test_a_kafka_source_starts_at_a_position() -> None:
    live = KafkaSource("localhost:9092", "orders", max_records_per_epoch=7)
    moved = live.starting_at({"orders": {0: 5}})
    assert (moved.start, moved.max_records_per_epoch) == ({"orders": {0: 5}}, 7)


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
