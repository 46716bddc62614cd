"""Errors of windows over all keys, when the flow is built and when it runs."""

from __future__ import annotations

from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.errors import FlowBuildError, FlowTypeError, StepError
from flow.testing import TestDriver, TestingSource
from flow_windowing import EventClock, TumblingWindower
from tests.support.all_keys_flows import all_keys_flow, ranked
from tests.support.window_names import MarkerClock

CLOCK, WINDOWER = EventClock("at", "0s"), TumblingWindower("10s")


def aggregate(clock: Any = CLOCK, windower: Any = WINDOWER, **aggregates: Any) -> Any:
    stream = op.input("in", Dataflow("f"), TestingSource([]))
    return win.aggregate_window_all("w", stream, clock, windower, **aggregates)


def rank(
    n: Any = 2, by: Any = None, clock: Any = CLOCK, windower: Any = WINDOWER, **more: Any
) -> Any:
    stream = op.input("in", Dataflow("f"), TestingSource([]))
    return win.top_n("w", more.pop("up", stream), clock, windower, n, by, **more)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (aggregate, "step 'w': aggregate_window_all needs at least one aggregate, e.g. total="),
        (
            lambda: aggregate(timestamp=win.Count()),
            "step 'w': 'timestamp' is an argument of aggregate_window_all, so no aggregate can be",
        ),
        (
            lambda: aggregate(first=win.First("page")),
            "step 'w': first: First goes by the order of arrival, which does not span keys: use "
            "Earliest or Latest, or give all items one key with op.key_on",
        ),
        (
            lambda: aggregate(pages=win.CollectUnique("page")),
            "step 'w': pages: CollectUnique goes by the order of arrival, which does not span keys",
        ),
        (
            lambda: aggregate(windower=win.SessionWindower("5s"), n=win.Count()),
            "step 'w': the windows of SessionWindower differ from key to key: use TumblingWindower",
        ),
        (
            lambda: rank(windower=win.CountWindower(5)),
            "step 'w': the windows of CountWindower differ from key to key: use TumblingWindower",
        ),
        (
            lambda: rank(clock=MarkerClock()),
            "step 'w': a window over all keys needs one watermark for all keys, and MarkerClock "
            "has one for each: use EventClock or SystemClock, or give the clock a `progress`",
        ),
        (lambda: rank(timestamp="end"), "step 'w': timestamp must be 'open', 'close' or 'last'"),
        (lambda: rank(0), "step 'w': n must be a whole number of at least 1, got 0"),
    ],
)
def test_an_invalid_argument(make: Any, problem: str) -> None:
    with pytest.raises(FlowBuildError) as caught:
        make()
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: aggregate(n="x"), "step 'w': n must be an Aggregator such as Sum('amount'), got"),
        (lambda: rank(by=win.Count), "step 'w': by must be an Aggregator such as Sum('amount')"),
        (lambda: rank(clock=5), "step 'w': clock must be a Clock such as EventClock(...), got int"),
        (lambda: rank(up=[1]), "step 'w' must read a Stream, got list [1]"),
        (lambda: rank(windower=5), "step 'w': windower must be a Windower such as Tumbling"),
    ],
)
def test_an_argument_of_a_wrong_type(make: Any, problem: str) -> None:
    with pytest.raises(FlowTypeError) as caught:
        make()
    assert str(caught.value).startswith(problem)


def test_forget_after_is_left_out_as_no_key_has_a_clock() -> None:
    out = rank(clock=EventClock("at", "0s", forget_after="1h"))
    (step,) = (one for one in out.down.flow.steps if one.step_id == "w.by_key")
    assert step.operator.builder.clock == EventClock("at", "0s", scope="stream")


def test_results_that_have_no_order_name_the_step_and_the_result() -> None:
    flow = all_keys_flow(ranked(CLOCK, WINDOWER, 2, win.Max("n")))
    with TestDriver(flow, now="1970-01-01T00:00Z", shards=1) as t:
        t.send("in", [{"user": "a", "at": 1.0, "n": "x"}, {"user": "b", "at": 1.0, "n": 5}])
        with pytest.raises(StepError) as caught:
            t.end()
    assert str(caught.value).splitlines()[0] == (
        "step 'w.rank': top_n ranks keys by their results, and cannot compare 'x' (str) with "
        "5 (int)"
    )
