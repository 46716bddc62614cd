"""Approximate aggregates in windows: the same results on both paths, for any cut, and resumed."""

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
from flow import Dataflow, run
from flow.testing import ABORT, EOF, TestDriver, TestingSink, TestingSource, key_by_key
from flow_windowing import ApproxCountDistinct, ApproxQuantile, ApproxTopK, EventClock
from recovery import RecoveryConfig
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


@sampled(150, by_default=40)
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


FLOWS = 300
VISITS = [("k", (at % 40, at * at % 997)) for at in range(FLOWS)]


def flow_of(items: list[Any], found: list[Any]) -> Dataflow:
    """Aggregate values, which are pairs of a time and a number, for each key and over all keys."""
    flow = Dataflow("sketches")
    source = op.input("in", flow, TestingSource(items, batch_size=50))
    clock = EventClock(lambda value: value[0], "1m", on_idle="hold")
    windower = win.TumblingWindower("20s")
    number = {
        "different": ApproxCountDistinct(lambda value: value[1], precision=5),
        "median": ApproxQuantile(lambda value: value[1], 0.5),
        "often": ApproxTopK(lambda value: value[1] % 13, 3, counters=4),
    }
    each = win.aggregate_window("w", source, clock, windower, **number)
    spread = op.map("spread", source, lambda item: (str(item[1][1] % 7), item[1]))
    total = win.aggregate_window_all("all", spread, clock, windower, **number)
    op.output("out", op.merge("both", each.down, total.down), TestingSink(found))
    return flow


@pytest.mark.spark
def test_a_run_that_crashes_and_stops_within_windows_has_the_results_of_the_driver(
    spark: Any, tmp_path: Any
) -> None:
    with TestDriver(flow_of([], []), now="1970-01-01T00:00Z") as t:
        t.send("in", VISITS)
        t.end()
        expected = sorted(map(repr, t.received("out")))
    found: list[Any] = []
    flow = flow_of([*VISITS[:120], ABORT(), *VISITS[120:200], EOF(), *VISITS[200:]], found)
    recovery = RecoveryConfig(tmp_path)
    options = {"spark": spark, "recovery": recovery, "system_time": "1970-01-01T00:00Z"}
    runs = [run(flow, drain=last, **options) for last in (False, False, True)]
    assert runs[0].aborted
    assert sorted(map(repr, found)) == expected
    found = []
    run(flow_of(VISITS, found), spark=spark, system_time="1970-01-01T00:00Z")
    assert sorted(map(repr, found)) == expected
