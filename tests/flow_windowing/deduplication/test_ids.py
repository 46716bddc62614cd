"""Ids of `flow_windowing.dedup` of any type: both paths agree, and each restores the other's."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.errors import StepError
from flow.testing import TestDriver, TestingSink, TestingSource
from flow_windowing import EventClock
from flow_windowing.deduplication.ids import passing
from tests.support.own_clock import own
from tests.support.sampling import sampled

WAIT, TTL = 4, 10


def a_driver(scope: Any, is_own: bool = False) -> TestDriver:
    """Return a driver of a flow that keys records by the field `key`."""
    flow = Dataflow("dedup")
    keyed = op.key_on("key", op.input("in", flow, TestingSource([])), "key")
    clock: EventClock[Any] = EventClock("at", f"{WAIT}s", scope=scope)
    out = win.dedup("once", keyed, own(clock) if is_own else clock, "id", ttl=f"{TTL}s")
    for name, stream in out._asdict().items():
        op.output(name, stream, TestingSink([]))
    return TestDriver(flow, now=0)


NUMBERS = st.sampled_from([0, 1, 1.0, True, False, -0.0, 2.5, 1 << 70])
IDS: dict[str, st.SearchStrategy[Any]] = {
    "text": st.sampled_from(["x", "y", ""]),
    "int": st.integers(0, 2),
    "float": st.sampled_from([0.0, -0.0, 1.0, 2.5]),
    "bool": st.booleans(),
    "none": st.none(),
    "text or none": st.sampled_from(["x", None]),
    "int or none": st.sampled_from([1, None]),
    "equal numbers": NUMBERS,
    "mixed": NUMBERS | st.sampled_from(["x", "1", None, (1, 2)]),
    "the key": st.just("key"),
    "the key or another": st.sampled_from(["key", "key", "key", "a"]),
}
COLUMNS: dict[str, pa.DataType] = {
    "text": pa.string(),
    "int": pa.int32(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "text or none": pa.large_string(),
    "int or none": pa.int64(),
    "the key": pa.string(),
    "the key or another": pa.string(),
}


@pytest.mark.parametrize("kind", IDS)
@sampled(80, by_default=1)
@given(data=st.data(), scope=st.sampled_from(["key", "stream"]))
def test_a_clock_of_ones_own_gives_the_same(kind: str, data: Any, scope: str) -> None:
    row = st.tuples(st.sampled_from("abc"), st.integers(0, 40), IDS[kind])
    epochs = data.draw(st.lists(st.lists(row, min_size=1, max_size=6), min_size=1, max_size=5))
    as_records = kind in COLUMNS and data.draw(st.booleans())

    def sent(rows: list[Any]) -> Any:
        values = [
            {"key": key, "at": at, "id": key if found == "key" else found}
            for key, at, found in rows
        ]
        if not as_records:
            return values
        types = [("key", pa.string()), ("at", pa.int64()), ("id", COLUMNS[kind])]
        return pa.RecordBatch.from_pylist(values, pa.schema(types))

    def play(is_own: bool) -> Any:
        seen: list[Any] = []
        with a_driver(scope, is_own=is_own) as t:
            for rows in epochs:
                t.send("in", sent(rows))
                taken = {name: t.take(name) for name in ("down", "late", "duplicates")}
                seen.append(
                    (
                        {
                            name: {key: [repr(v) for k, v in of if k == key] for key in "abc"}
                            for name, of in taken.items()
                        },
                        t.stats.gauges["once", "keys"],
                        dict(t.stats.counts),
                    )
                )
        return seen

    assert play(is_own=True) == play(is_own=False)


@pytest.mark.parametrize("is_own", [False, True])
def test_equal_numbers_of_several_types_are_one_id_after_a_restore(is_own: bool) -> None:
    def click(found: Any) -> dict[str, Any]:
        return {"key": "k", "at": 1, "id": found}

    with a_driver("key", is_own=is_own) as t:
        t.send("in", [click(1), click("x")])
        t.send("in", [click(1.0), click(True), click("1"), click(0), click(False)])
        t.send("in", [click(1), click(0.0), click(True)])
        assert [value["id"] for _, value in t.received("down")] == [1, "x", "1", 0]


def test_repeats_of_an_id_that_passed_long_ago_cost_no_rounds() -> None:
    # 5 000 values of one id passed, two seconds apart; two more are near the last, two pass
    times = np.array([*range(0, 10_000, 2), 9_999, 9_997, 20_000, 30_000])
    with mock.patch.object(np, "full", wraps=np.full) as rounds:
        found = passing(np.zeros(len(times), np.int64), times, 5_000, 2)
    assert found.tolist() == [False, False, True, True]
    assert rounds.call_count < 10


@pytest.mark.parametrize("as_records", [False, True])
def test_a_value_whose_struct_is_null_has_no_id(as_records: bool) -> None:
    flow = Dataflow("dedup")
    keyed = op.key_on("key", op.input("in", flow, TestingSource([])), "key")
    once = win.dedup("once", keyed, win.SystemClock(), "user.id", ttl="10s")
    op.output("out", once.down, TestingSink([]))
    records = pa.RecordBatch.from_pylist(
        [{"key": "k", "user": {"id": 1}}, {"key": "k", "user": {"id": None}}]
    )
    nulls = pa.RecordBatch.from_pylist([{"key": "k", "user": None}], records.schema)
    with TestDriver(flow) as t:
        t.send("in", records if as_records else records.to_pylist())
        assert [value["user"]["id"] for _, value in t.received("out")] == [1, None]
        with pytest.raises(StepError, match=r"there is no field 'id' .*: 'user' is None"):
            t.send("in", nulls if as_records else nulls.to_pylist())
