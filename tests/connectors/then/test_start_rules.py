"""Rules that take the start of a live source from a history, over objects and columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from flow.connectors.then import AfterOffsets, FromTime, StartRule
from flow.errors import FlowBuildError, FlowTypeError, SourceError

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
