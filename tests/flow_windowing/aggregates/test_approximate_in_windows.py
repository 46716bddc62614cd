"""Approximate aggregates in windows: the same results on both paths, for any cut."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key
from flow_windowing import ApproxCountDistinct, ApproxQuantile, ApproxTopK, EventClock
from tests.support.sampling import sampled

SCHEMA = pa.schema([("user", pa.string()), ("at", pa.float64()), ("n", pa.int64())])
AGGREGATES = {
    "different": ApproxCountDistinct("n", precision=5),
    "median": ApproxQuantile("n", 0.5, accuracy=0.2),
    "often": ApproxTopK("n", 2, counters=3),
}
"""Sketches so small that a few values are more than they hold."""

rows = st.builds(
    lambda user, at, n: {"user": user, "at": at / 2, "n": n},
    st.sampled_from("ab"),
    st.integers(0, 60),
    st.integers(0, 300).map(lambda n: n % 7 if n % 3 == 0 else n),
)
windowers = st.sampled_from(
    [
        win.TumblingWindower("20s"),
        win.SlidingWindower("20s", "5s"),
        win.SessionWindower("1s"),
        win.CountWindower(20, 7),
    ]
)


def make_flow(windower: Any, ordered: bool | None) -> Dataflow:
    flow = Dataflow("sketches")
    stream = op.key_on("key", op.input("in", flow, TestingSource([])), "user")
    clock = EventClock("at", "10s", on_idle="hold")
    out = win.aggregate_window("w", stream, clock, windower, ordered, **AGGREGATES)
    op.output("down", out.down, TestingSink([]))
    return flow


def results(flow: Dataflow, epochs: list[list[Any]], form: Any, resumes: bool = False) -> Any:
    found: dict[str, list[str]] = {}
    with TestDriver(flow, now="1970-01-01T00:00Z", shards=2) as t:
        for epoch in epochs:
            t.send("in", form(epoch))
            if resumes:
                t.restart()
        t.end()
        for key, item in t.received("down"):
            found.setdefault(key, []).append(repr(item))
    return found


def as_records(some: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(some, schema=SCHEMA)


@sampled(150, by_default=8)
@given(
    windowers,
    st.sampled_from([None, True, False]),
    st.lists(rows, max_size=120),
    st.lists(st.integers(0, 120), max_size=5),
)
def test_results_depend_neither_on_the_path_nor_on_the_cut_nor_on_a_stop(
    windower: Any, ordered: bool | None, values: list[Any], cuts: list[int]
) -> None:
    flow = make_flow(windower, ordered)
    bounds = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    epochs = [values[first:last] for first, last in pairwise(bounds)]
    with key_by_key():
        expected = results(flow, [values], list)
    assert results(flow, [values], as_records) == expected
    for alone in (True, False):
        with key_by_key() if alone else nullcontext():
            assert results(flow, epochs, list, resumes=True) == expected
            assert results(flow, epochs, as_records) == expected


@pytest.mark.parametrize(("ordered", "often"), [(None, "c"), (True, "c"), (False, "b")])
def test_values_are_counted_in_order_of_time_by_default(ordered: bool | None, often: str) -> None:
    # One counter cannot hold three values that are equally frequent: the last one remains.
    values = [(1, "a"), (2, "a"), (5, "c"), (6, "c"), (3, "b"), (4, "b")]
    clock, windower = EventClock("at", "10s", on_idle="hold"), win.TumblingWindower("20s")
    flow = Dataflow("order")
    stream = op.input("in", flow, TestingSource([]))
    one = ApproxTopK("n", 1, counters=1)
    out = win.aggregate_window("w", stream, clock, windower, ordered, often=one)
    op.output("down", out.down, TestingSink([]))
    with TestDriver(flow, now="1970-01-01T00:00Z") as t:
        t.send("in", [("k", {"at": at, "n": n}) for at, n in values])
        t.end()
        ((_, (_, result)),) = t.take("down")
    assert result == {"often": [often]}
