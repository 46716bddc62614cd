"""Operators over columns: functions of Arrow batches, and items as records of tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Stream
from flow.columns.chunks import Chunk, Records
from flow.connectors.sink import to_record
from flow.engine.steps import pipeline
from flow.engine.steps.kernels import run_step
from flow.errors import FlowBuildError, FlowTypeError, StepError
from flow.operators.stateless import ToRecords
from flow.testing import key_by_key, run_once
from flow_windowing import WindowMetadata
from tests.support.one_stream import driver
from tests.support.sampling import sampled


def over(fn: Any, **options: Any) -> Callable[[Stream[Any]], Stream[Any]]:
    return lambda s: op.map_batches("batch", s, fn, **options)


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def test_a_function_gets_at_most_size_rows() -> None:
    sizes: list[int] = []

    def note(batch: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(batch.num_rows)
        return batch

    assert len(run_once([{"n": n} for n in range(7)], over(note, size=3))) == 7
    assert sizes == [3, 3, 1]


def test_records_reach_the_function_with_the_types_of_their_columns() -> None:
    types: list[Any] = []

    def note(batch: pa.RecordBatch) -> pa.RecordBatch:
        types.extend(batch.schema.types)
        return batch

    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.int16())], names=["n"])
    assert run_once(batch, over(note)) == [{"n": 1}]
    assert types == [pa.int16()]


def test_a_table_may_be_returned() -> None:
    def fn(batch: pa.RecordBatch) -> pa.Table:
        return pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)])

    assert run_once([{"n": 1}, {"n": 2}], over(fn)) == [{"n": 1}, {"n": 2}]


def test_a_column_of_nulls_takes_the_type_of_the_other_batches() -> None:
    def fn(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(0, "n", pa.array([n or None for n in batch["n"].to_pylist()]))

    rows = run_once([{"n": 0}, {"n": 2}], over(fn, size=1))
    assert rows == [{"n": None}, {"n": 2}]


def test_results_of_windows_are_columns_and_keep_their_keys() -> None:
    schemas: list[pa.Schema] = []

    def rate(batch: pa.RecordBatch) -> pa.RecordBatch:
        schemas.append(batch.schema)
        return batch.select(["open_time"]).append_column("twice", pc.multiply(batch["n"], 2))

    def build(s: Stream[Any]) -> Stream[Any]:
        clock, hours = win.EventClock("at", "0s"), win.TumblingWindower("1h")
        keyed = op.key_on("by_name", s, "name")
        return over(rate)(win.aggregate_window("w", keyed, clock, hours, n=win.Count()).down)

    (result,) = run_once([{"name": "a", "at": 5.0}], build)
    assert result == ("a", {"open_time": datetime(1970, 1, 1, tzinfo=UTC), "twice": 2})
    with key_by_key():
        assert run_once([{"name": "a", "at": 5.0}], build) == [result]
    at, ids = pa.timestamp("us", "UTC"), pa.list_(pa.int64())
    window = {"window_id": pa.int64(), "open_time": at, "close_time": at, "merged_ids": ids}
    assert schemas == [pa.schema({**window, "is_retraction": pa.bool_(), "n": pa.int64()})] * 2


@sampled(100, by_default=30)
@given(st.lists(st.lists(st.integers(-99, 99), max_size=9), max_size=4), st.integers(1, 5))
def test_the_cut_into_epochs_and_batches_changes_nothing_for_a_function_of_rows(
    epochs: list[list[int]], size: int
) -> None:
    def square(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("square", pc.multiply(batch["value"], batch["value"]))

    with driver(over(square, size=size)) as t:
        for items in epochs:
            t.send("in", items)
        expected = [{"value": n, "square": n * n} for items in epochs for n in items]
        assert t.received("out") == expected


# --- errors -----------------------------------------------------------------------------------


def twice_as_many(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch, batch])


def of_other_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    value = batch["n"][0].as_py()
    return pa.RecordBatch.from_pylist([{"n": "text" if value else 1.5}])


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda batch: 1 / 0, "raised ZeroDivisionError: division by zero for a batch of 2 rows"),
        (lambda batch: [1, 2], r"must return a pyarrow\.RecordBatch or a pyarrow\.Table, got list"),
        (lambda b: b.slice(1), "must return a row for each row, got 1 rows for 2: use op.filter"),
        (twice_as_many, "must return a row for each row, got 4 rows for 2"),
        (lambda batch: batch.select([]), "must return at least one column, got none"),
    ],
)
def test_a_function_that_fails_names_the_step(fn: Any, message: str) -> None:
    with pytest.raises(StepError, match=f"^step 'batch': the function {message}"):
        run_once([{"n": 1}, {"n": 2}], over(fn))


def test_batches_whose_columns_have_different_types_are_an_error() -> None:
    with pytest.raises(StepError, match="returned batches whose columns differ in their types"):
        run_once([{"n": 0}, {"n": 1}], over(of_other_types, size=1))


def test_items_that_do_not_fit_into_columns_are_an_error_with_advice() -> None:
    with pytest.raises(StepError) as caught:
        run_once([{"n": 1}, {"n": "x"}], over(same))
    assert str(caught.value) == (
        "step 'batch': field 'n' holds int and str, which do not fit one column: map the items to "
        "records whose fields have one type each before the step"
    )


@pytest.mark.parametrize(
    ("fn", "size", "error", "message"),
    [
        (3, None, FlowTypeError, "fn must be a function, got int 3"),
        (same, 0, FlowBuildError, "size must be a whole number of at least 1, got 0"),
    ],
)
def test_a_wrong_argument_is_an_error_of_the_build(
    fn: Any, size: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"step 'batch': {message}"):
        run_once([], over(fn, size=size))


# --- records -------------------------------------------------------------------------------------

HOUR = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS = [{"name": "a", "n": 1, "at": 5.0}, {"name": "a", "n": 2, "at": 4000.0}]


def totals(s: Stream[Any]) -> win.WindowOut[Any, Any]:
    clock, hours = win.EventClock("at", "0s"), win.TumblingWindower("1h")
    return win.aggregate_window("w", op.key_on("by_name", s, "name"), clock, hours, n=win.Sum("n"))


def records(s: Stream[Any]) -> Stream[Any]:
    return op.records("rows", s)


EXPECTED = [
    {
        "key": "a",
        "window_id": number,
        "open_time": EPOCH + number * HOUR,
        "close_time": EPOCH + (number + 1) * HOUR,
        "merged_ids": [],
        "is_retraction": False,
        "n": number + 1,
    }
    for number in range(2)
]


def test_a_record_of_a_window_is_the_same_over_columns_and_key_by_key() -> None:
    assert run_once(ROWS, lambda s: records(totals(s).down)) == EXPECTED
    with key_by_key():
        assert run_once(ROWS, lambda s: records(totals(s).down)) == EXPECTED


# a    10 20   15      15 makes one session of two that have emitted.
SESSIONS = [{"name": "a", "n": n, "at": at} for at, n in ((10.0, 1), (20.0, 5), (15.0, 3))]


@pytest.mark.parametrize("name", ["n", "value"])
def test_a_retraction_is_marked_and_has_the_columns_of_its_result(name: str) -> None:
    def build(s: Stream[Any]) -> Stream[Any]:
        clock, gap = win.EventClock("at", "60s"), win.SessionWindower("5s")
        step = ("w", op.key_on("by_name", s, "name"), clock, gap)
        if name == "value":
            return records(win.sum_window(*step, "n", emit="update").down)
        return records(win.aggregate_window(*step, emit="update", n=win.Sum("n")).down)

    for rows in (SESSIONS, pa.RecordBatch.from_pylist(SESSIONS)):
        made = run_once(rows, build)
        assert [(row["window_id"], row["is_retraction"], row[name]) for row in made] == [
            *((10_000_000, False, 1), (20_000_000, False, 5)),
            *((20_000_000, True, 5), (10_000_000, False, 9)),
        ]
        assert {tuple(row) for row in made} == {(*list(EXPECTED[0])[:-1], name)}


def test_records_of_windows_stay_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Chunk | None] = []

    def noting(kind: Any, *arguments: Any) -> Any:
        output = run_step(kind, *arguments)
        made.extend(output if isinstance(kind, ToRecords) else [])
        return output

    monkeypatch.setattr(pipeline, "run_step", noting)
    with driver(lambda s: records(totals(s).down)) as t:
        t.send("in", pa.RecordBatch.from_pylist(ROWS))
        t.end()
        assert t.received("out") == EXPECTED
    assert {type(chunk) for chunk in made} == {Records}


def test_a_late_value_becomes_a_record() -> None:
    late = [ROWS[1], ROWS[0]]
    (record,) = run_once(late, lambda s: records(totals(s).late))
    (item,) = run_once(late, lambda s: totals(s).late)
    assert record == to_record(item)
    assert (record["key"], record["reason"]) == ("a", win.LateReason.LATE)


def test_a_field_named_key_takes_the_place_of_the_key() -> None:
    assert run_once([("a", {"key": "b"})], records) == [{"key": "b"}]


@dataclass(frozen=True)
class Broken:
    def as_record(self) -> dict[str, Any]:
        raise ValueError("no")


def test_an_item_that_cannot_be_a_record_names_the_step() -> None:
    with pytest.raises(StepError, match="step 'rows': making a record raised ValueError: no"):
        run_once([Broken()], records)


# --- the layout of one item ---

NOON, ONE = (datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in (12, 13))


def test_a_window_is_laid_out_beside_its_value() -> None:
    window = WindowMetadata(7, NOON, ONE, frozenset({9, 8}))
    assert to_record(("k", (window, {"n": 3}))) == {
        "key": "k",
        "window_id": 7,
        "open_time": NOON,
        "close_time": ONE,
        "merged_ids": [8, 9],
        "is_retraction": False,
        "n": 3,
    }


@dataclass(frozen=True)
class Sides:
    key: str
    window_id: int


@pytest.mark.parametrize(
    ("value", "columns"),
    [
        (("b", 3), {"value": ("b", 3)}),
        ((Sides("b", 3), 3), {"value": (Sides("b", 3), 3)}),
        (win.Retracted({"n": 3}), {"is_retraction": True, "n": 3}),
        (win.Retracted(("b", 3)), {"is_retraction": True, "value": ("b", 3)}),
    ],
)
def test_the_value_of_a_window_or_a_key_is_not_taken_apart_as_an_item(
    value: Any, columns: dict[str, Any]
) -> None:
    window = WindowMetadata(7, NOON, ONE)
    assert to_record(("k", (window, value))) == {
        **{"key": "k", **window.as_record(), "is_retraction": False},
        **columns,
    }
    if not isinstance(value, tuple) or isinstance(value[0], str):
        assert to_record(("k", value)) == {"key": "k", **columns}


def test_a_window_has_a_timestamp_column_only_if_requested() -> None:
    window = WindowMetadata(7, NOON, ONE, timestamp=ONE)
    assert to_record((window, 3))["timestamp"] == ONE
    assert "timestamp" not in to_record((WindowMetadata(7, NOON, ONE), 3))
