"""Windowing over columns, compared with key by key, for records and objects."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.errors import StepError
from flow.testing import TestDriver, TestingSink, TestingSource
from tests.support.columns import (
    SCHEMA,
    Epoch,
    Step,
    as_dicts,
    as_records,
    equal_rows,
    outcome,
)
from tests.support.window_flow import START

# --- what random rows would rarely be ------------------------------------------------------------


@pytest.mark.parametrize("keys", [1, 70_000], ids=["one key", "more keys than 16 bits tell apart"])
def test_few_keys_and_many(keys: int) -> None:
    users = [f"user {number % keys}" for number in range(70_000)]
    batch = pa.table(
        {
            "user": users,
            "ts": pa.array([START] * len(users), pa.timestamp("us", tz="UTC")),
            "whole": list(range(len(users))),
        }
    ).to_batches()[0]
    step = Step(win.EventClock("ts", "5s"), win.TumblingWindower("1m"), {"total": win.Sum("whole")})
    with TestDriver(step.flow(), now=START, shards=1) as t:
        t.send("in", batch)
        t.send("in", batch)
        t.end()
        totals = {key: value["total"] for key, (_, value) in t.received("down")}
    expected: dict[str, int] = {}
    for number, user in enumerate(users):
        expected[user] = expected.get(user, 0) + 2 * number
    assert totals == expected


def test_whole_numbers_beyond_64_bits_stay_exact() -> None:
    step = Step(win.EventClock("ts", "5s"), win.TumblingWindower("1m"), {"total": win.Sum("whole")})
    epochs = [Epoch(equal_rows(3, whole=2**62)), Epoch(equal_rows(2, whole=2**62))]
    (value,) = outcome(step, epochs, as_records)["down"]["a"]
    assert f"'total': {5 * 2**62}" in value


def test_floats_of_very_different_size_add_up_exactly() -> None:
    step = Step(win.EventClock("ts", "5s"), win.TumblingWindower("1m"), {"total": win.Sum("real")})
    rows = [
        *equal_rows(1, real=1e300),
        *equal_rows(1, real=0.1),
        *equal_rows(1, real=1e-300),
        *equal_rows(1, real=-1e300),
    ]
    (value,) = outcome(step, [Epoch(rows)], as_records)["down"]["a"]
    assert "'total': 0.1}" in value


@pytest.mark.parametrize("form", [as_dicts, as_records], ids=["objects", "records"])
@pytest.mark.parametrize(
    "aggregate", [win.Sum, win.Mean, win.Min, win.Last, win.Count], ids=lambda one: one.__name__
)
def test_a_window_without_values_of_the_field_has_the_empty_result(
    aggregate: Any, form: Any
) -> None:
    step = Step(win.EventClock("ts", "5s"), win.TumblingWindower("1m"), {"of": aggregate("real")})
    (value,) = outcome(step, [Epoch(equal_rows(2, real=None))], form)["down"]["a"]
    assert f"'of': {aggregate('real').empty_result()}}}" in value


@pytest.mark.parametrize("form", [as_dicts, as_records], ids=["objects", "records"])
def test_the_first_of_equal_values_is_kept_over_epochs(form: Any) -> None:
    step = Step(win.EventClock("ts", "1m"), win.TumblingWindower("1m"), {"low": win.Min("real")})
    epochs = [
        Epoch([*equal_rows(3, real=None), *equal_rows(1, real=0.0)]),
        Epoch(equal_rows(2, real=-0.0)),
    ]
    (value,) = outcome(step, epochs, form)["down"]["a"]
    assert "{'low': 0.0}" in value


def test_a_value_without_a_timestamp_stops_the_flow_and_is_named() -> None:
    step = Step(win.EventClock("ts", "5s"), win.TumblingWindower("1m"))
    rows = [*equal_rows(2), *equal_rows(1, user="b", ts=None)]
    with TestDriver(step.flow(), now=START) as t, pytest.raises(StepError) as raised:
        t.send("in", as_records(rows))
    assert (raised.value.step_id, raised.value.key) == ("w", "b")
    assert "ts_getter 'ts' gave no timestamp" in str(raised.value)


def test_a_value_that_cannot_be_added_up_stops_the_flow_and_is_named() -> None:
    step = Step(win.EventClock("ts", "5s"), win.TumblingWindower("1m"), {"total": win.Sum("text")})
    with TestDriver(step.flow(), now=START) as t, pytest.raises(StepError) as raised:
        t.send("in", as_records(equal_rows(1)))
    assert (raised.value.step_id, raised.value.key) == ("w", "a")
    assert "Sum('text') cannot add 'x' (str)" in str(raised.value)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1_702_549_800, 1_702_549_812], pa.int32()),
        pa.array([1_702_549_800.25, 1_702_549_812.5], pa.float64()),
        pa.array(["2023-12-14T10:30:00Z", "2023-12-14T10:30:12+00:00"]),
        pa.array([START, START + timedelta(seconds=12)], pa.timestamp("ms", tz="Europe/London")),
        pa.array([START, START + timedelta(seconds=12)], pa.timestamp("ns", tz="UTC")),
    ],
    ids=["whole seconds", "seconds", "text", "milliseconds elsewhere", "nanoseconds"],
)
def test_timestamps_are_read_from_any_column_that_holds_them(column: pa.Array) -> None:
    batch = pa.RecordBatch.from_pydict({"user": ["a", "a"], "ts": column})
    step = Step(win.EventClock("ts", "1m"), win.TumblingWindower("10s"), {"n": win.Count()})
    with TestDriver(step.flow(), now=START) as t:
        t.send("in", batch)
        t.end()
        starts = [meta.open_time.second for _, (meta, _) in t.received("down")]
    assert starts == [0, 10]


def test_a_timestamp_inside_a_record_is_found_by_its_path() -> None:
    at = pa.array([{"at": START}, {"at": START}], pa.struct([("at", SCHEMA.field("ts").type)]))
    batch = pa.RecordBatch.from_pydict({"user": ["a", "b"], "details": at})
    step = Step(win.EventClock("details.at", "1m"), win.TumblingWindower("10s"), {"n": win.Count()})
    with TestDriver(step.flow(), now=START) as t:
        t.send("in", batch)
        t.end()
        assert sorted(key for key, _ in t.received("down")) == ["a", "b"]


def test_a_state_that_cannot_be_pickled_names_the_step() -> None:
    step = Step(win.EventClock("ts", "5s"), win.TumblingWindower("1m"))
    made = Dataflow("f")
    keyed = op.key_on("key", op.input("in", made, TestingSource([])), "user")
    folded = win.fold_window(
        "w",
        keyed,
        step.clock,
        step.windower,
        lambda: lambda: None,
        lambda kept, _: kept,
        ordered=False,
    )
    op.output("out", folded.down, TestingSink([]))
    with TestDriver(made, now=START) as t, pytest.raises(StepError, match="pickle") as raised:
        t.send("in", as_records(equal_rows(1)))
    assert raised.value.step_id == "w"
