"""Deduplication by system time: the operator and its state."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow.errors import FlowBuildError, FlowTypeError, StepError
from flow.testing import run_once
from recovery.reading.epoch_state import decode_segment, load_snapshot
from tests.support.one_stream import Build, driver
from tests.support.sampling import sampled

MICRO = timedelta(microseconds=1)


def dedup(step_id: str, stream: Any, *args: Any, **options: Any) -> Any:
    """Return the values that pass by system time."""
    return win.dedup(step_id, stream, win.SystemClock(), *args, **options).down


def once(step: Any) -> Any:
    return dedup("once", step, "id", ttl="10s")


def test_the_first_value_of_each_key_and_id_passes() -> None:
    items = [("a", {"id": 1, "n": 0}), ("b", {"id": 1, "n": 1}), ("a", {"id": 1, "n": 2})]
    with driver(once) as t:
        t.send("in", items)
        assert t.received("out") == items[:2]
        assert t.stats.counts["once", "duplicates"] == 1


@pytest.mark.parametrize(
    ("after", "passes"),
    [("9.999999s", False), ("10s", True), ("10.000001s", True)],
)
def test_an_id_expires_at_exactly_its_time_to_live(after: str, passes: bool) -> None:
    with driver(once) as t:
        t.send("in", [("a", {"id": 1})])
        t.advance(after)
        t.send("in", [("a", {"id": 1})])
        assert len(t.received("out")) == 1 + passes


def test_expired_keys_leave_nothing_behind() -> None:
    with driver(once) as t:
        t.send("in", [("a", {"id": 1}), ("b", {"id": 2})])
        t.advance("5s")
        t.send("in", [("a", {"id": 3})])
        t.advance("5s")
        assert t.stats.gauges["once", "keys"] == 1
        t.advance("5s")
        assert t.stats.gauges["once", "keys"] == 0
        assert t.stats.gauges["once", "state_bytes"] == 0


IDS: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "the whole value": (None, [1, 2, 1], [1, 2]),
    "a whole record": (None, [{"x": [1], "y": {2}}, {"y": {2}, "x": [1]}], [{"x": [1], "y": {2}}]),
    "a nested field": ("a.b", [{"a": {"b": 1}}, {"a": {"b": 1}}], [{"a": {"b": 1}}]),
    "a function": (abs, [1, -1, 2], [1, 2]),
    "text": (None, ["x", "y", "x"], ["x", "y"]),
    "none": (None, [None, None], [None]),
    "equal numbers of two types": (None, [1, 1.0, True, 2.5], [1, 2.5]),
    "great numbers": (None, [1 << 70, 1 << 70, 1], [1 << 70, 1]),
    "tuples of lists": (None, [(1, [2]), (1, [2]), (1, (2,))], [(1, [2]), (1, (2,))]),
}


@pytest.mark.parametrize(("getter", "values", "passing"), IDS.values(), ids=IDS)
def test_ids(getter: Any, values: list[Any], passing: list[Any]) -> None:
    items = [("k", value) for value in values]
    with driver(lambda s: dedup("once", s, getter, ttl="1h")) as t:
        t.send("in", items)
        assert [value for _, value in t.take("out")] == passing
        t.send("in", items)
        assert t.take("out") == []


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["x", None, "x", None, "y"]),
        pa.array(["x", None, "x", None, "y"]).dictionary_encode(),
        pa.array([1, None, 1, None, 2], pa.int16()),
        pa.array([1, None, 1, None, 2], pa.uint64()),
        pa.array([0.5, None, 0.5, None, 2.0]),
        pa.array([[1], None, [1], None, [2]]),
    ],
)
def test_ids_in_columns(column: pa.Array) -> None:
    table = pa.RecordBatch.from_arrays([pa.array(list("kkkkk")), column], names=["key", "id"])

    def build(stream: Any) -> Any:
        return dedup("once", op.key_on("key", stream, "key"), "id", ttl="1h")

    with driver(build) as t:
        t.send("in", table)
        assert [value["id"] for _, value in t.take("out")] == [
            column[row].as_py() for row in (0, 1, 4)
        ]
        t.send("in", table)
        assert t.take("out") == []


REFUSED: dict[str, tuple[Any, str]] = {
    "a missing field": ({}, "id 'id' gave no id"),
    "an object without a hash": ({"id": bytearray()}, "cannot be hashed"),
    "not a number": ({"id": float("nan")}, "differs from itself"),
}


@pytest.mark.parametrize(("value", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_value_without_an_id_stops_the_flow(value: Any, problem: str) -> None:
    with driver(once) as t, pytest.raises(StepError, match=problem) as caught:
        t.send("in", [("a", {"id": 1}), ("b", value)])
    assert "step 'once'" in str(caught.value)
    assert "key:  'b'" in str(caught.value)


WRONG: dict[str, tuple[Build, type[Exception], str]] = {
    "no time": (lambda s: dedup("d", s, ttl="0s"), FlowBuildError, "ttl must be positive"),
    "a wrong time": (lambda s: dedup("d", s, ttl="soon"), ValueError, "ttl"),
    "no path": (lambda s: dedup("d", s, "a..b", ttl="1s"), FlowBuildError, "a field's path"),
    "no id": (lambda s: dedup("d", s, 5, ttl="1s"), FlowTypeError, "id must be a function"),
}


@pytest.mark.parametrize(("build", "error", "problem"), WRONG.values(), ids=WRONG)
def test_wrong_arguments(build: Build, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        run_once([], build)


@pytest.mark.parametrize(("before", "after", "keys"), [("10s", "5s", 0), ("5s", "10s", 1)])
def test_a_changed_time_to_live_holds_for_restored_ids(before: str, after: str, keys: int) -> None:
    first = driver(lambda s: dedup("once", s, ttl=before))
    first.send("in", [("a", 1)])
    second = driver(lambda s: dedup("once", s, ttl=after))
    second._engine._stores = first._engine._stores
    second._now_us = first._now_us
    second.advance("5s")
    assert second.stats.gauges["once", "keys"] == keys


def test_the_tools_of_recovery_read_the_ids_of_a_key() -> None:
    with driver(once) as t:
        t.send("in", [("a", {"id": 1}), ("a", {"id": "x"}), ("b", {"id": 2})])
        stores = t._engine._stores
        contents = [one for store in stores.values() for one in store.read_segments("once", [0])]
        kept = [
            found
            for content in contents
            if content is not None
            for found in decode_segment(content, 0, 0, "once")
        ]
    states = {one.key: load_snapshot(one, "once")[1] for one in kept}
    assert states == {"a": [1, "x"], "b": [2]}


# --- against the definition -------------------------------------------------------------------

EPOCHS = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), max_size=6),
    ),
    max_size=12,
)
"""Each epoch: the seconds that pass before it, and its items: keys and ids."""


@sampled(100, by_default=8)
@given(EPOCHS, st.sampled_from([-1, 0, 1]))
def test_values_pass_as_defined(epochs: list[Any], micros: int) -> None:
    """A value passes unless its id passed less than ten seconds before."""
    ttl = timedelta(seconds=10) + micros * MICRO
    now, last, passing = timedelta(0), dict[Any, timedelta](), list[Any]()
    with driver(lambda s: dedup("once", s, ttl=ttl)) as t:
        for seconds, items in epochs:
            now += timedelta(seconds=seconds)
            for item in items:
                if item not in last or now - last[item] >= ttl:
                    last[item] = now
                    passing.append(item)
            t.advance(timedelta(seconds=seconds))
            t.send("in", items)
        remembered = {key for (key, _), at in last.items() if now - at < ttl}
        received = t.received("out")
        keys = t.stats.gauges["once", "keys"]
    assert sorted(received) == sorted(passing)
    for key in "ab":
        assert [one for one in received if one[0] == key] == [p for p in passing if p[0] == key]
    assert keys == len(remembered)
