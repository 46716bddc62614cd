"""The operator `join_asof`: arguments, metadata, late values and state."""

from __future__ import annotations

import re
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, FlowBuildError
from flow.engine.plan.compiler import compile_flow
from flow.errors import DurationError, FlowTypeError
from flow.instants import from_us
from flow.reports.graph import to_mermaid
from flow.testing import TestDriver, TestingSource, key_by_key
from flow_windowing import EventClock, LateReason, SystemClock, WindowMetadata
from recovery.identity.fingerprint import Effect, compare, fingerprint
from tests.support.asof_flows import asof_flow

SECOND = 1_000_000


def clock(wait: str = "100s", **options: Any) -> Any:
    """Return a clock of values that are ``(seconds, name)``."""
    return EventClock(lambda value: value[0], wait, **options)


@pytest.fixture(params=["over columns", "key by key"])
def path(request: pytest.FixtureRequest) -> Any:
    """The test runs over columns and key by key."""
    with nullcontext() if request.param == "over columns" else key_by_key():
        yield


def window(at: int, first: int, last: int) -> WindowMetadata:
    """Return the window of a value at a second, with bounds in seconds."""
    time = from_us(at * SECOND)
    return WindowMetadata(
        at * SECOND, from_us(first * SECOND), from_us(last * SECOND), timestamp=time
    )


# --- metadata and late values ---------------------------------------------------------------------


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("direction", "bounds"), [("backward", (5, 10)), ("forward", (10, 15)), ("nearest", (5, 15))]
)
def test_the_window_of_an_item_is_the_interval_of_its_partners(
    direction: Any, bounds: tuple[int, int]
) -> None:
    with TestDriver(asof_flow(clock(), "5s", direction=direction)) as t:
        t.send("left", [("k", (10, "a"))])
        t.send("right", [("k", (10, "x"))])
        t.end()
        ((_, (found, pair)),) = t.received("down")
        assert t.received("closed") == [("k", found)]
    assert pair == ((10, "a"), (10, "x"))
    assert (found, found.timestamp) == (window(10, *bounds), from_us(10 * SECOND))


@pytest.mark.usefixtures("path")
def test_bounds_beyond_the_calendar_are_clipped() -> None:
    for tolerance in (None, timedelta.max):
        with TestDriver(asof_flow(clock(), tolerance, direction="nearest")) as t:
            t.send("right", [("k", (-1_000_000_000, "x"))])
            t.send("left", [("k", (10, "a"))])
            t.end()
            ((_, (found, pair)),) = t.received("down")
        assert pair[1] == (-1_000_000_000, "x")
        assert (found.open_time.year, found.close_time.year) == (1, 9999)


@pytest.mark.usefixtures("path")
def test_a_late_value_is_whole_and_says_its_side_and_its_interval() -> None:
    flow = asof_flow(clock("0s"), "5s", right_value=lambda quote: quote[1])
    with TestDriver(flow) as t:
        t.send("left", [("k", (20, "a"))])
        t.send("right", [("k", (3, "x"))])
        t.send("left", [("k", (4, "b"))])
        (_, right), (_, left) = t.received("late")
    assert (right.side, right.value, left.side, left.value) == (1, (3, "x"), 0, (4, "b"))
    assert (right.windows, left.windows) == ((window(3, 3, 8),), (window(4, -1, 4),))
    assert right.late_by == timedelta(seconds=17)
    assert {right.reason, left.reason} == {LateReason.LATE}


@pytest.mark.usefixtures("path")
def test_a_left_value_of_none_leaves_as_any_other() -> None:
    with TestDriver(asof_flow(SystemClock(), "5s"), now=0) as t:
        t.send("right", [("k", "x")])
        t.send("left", [("k", None)])
        t.end()
        assert [pair for _, (_, pair) in t.received("down")] == [(None, "x")]


# --- state ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("path")
def test_the_state_has_the_right_value_at_the_watermark_and_what_is_newer() -> None:
    #  watermark 10: right values at 8, 12 and 14, left values at 11 and 15
    with TestDriver(asof_flow(clock("5s"), "5s"), now=0) as t:
        t.send("right", [("k", (at, "x")) for at in (6, 8, 12, 14)])
        t.send("left", [("k", (11, "a")), ("k", (15, "b"))])
        assert t.state("w", "k") == {
            "watermark": from_us(10 * SECOND),
            "left": [(11, "a"), (15, "b")],
            "right": [(8, "x"), (12, "x"), (14, "x")],
        }


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("direction", "deletes", "last_us"),
    [
        ("backward", False, 15_000_000),
        ("nearest", False, 15_000_000),
        ("nearest", True, 15_000_000),
        ("forward", False, 10_000_000),
        # A left value at the time of a deletion has no partner, with or without it.
        ("backward", True, 9_999_999),
    ],
)
def test_the_last_right_value_expires_to_the_microsecond(
    direction: Any, deletes: bool, last_us: int
) -> None:
    # The watermark is at 9 s at first. Values of the right side leave the key as time passes.
    options = {"direction": direction, "right_value": lambda _: None if deletes else "x"}
    with TestDriver(asof_flow(clock("1s"), "5s", **options), now=0) as t:
        t.send("right", [("k", (10, "x"))])
        t.advance(timedelta(microseconds=last_us - 9_000_000))
        assert len(t.state("w", "k")["right"]) == 1
        t.advance(timedelta(microseconds=1))
        assert t.state("w", "k")["right"] == []


@pytest.mark.usefixtures("path")
def test_a_key_whose_values_have_left_has_no_state_with_the_system_clock() -> None:
    with TestDriver(asof_flow(SystemClock(), "5s"), now=0) as t:
        t.send("right", [("k", "x")])
        t.send("left", [("k", "a")])
        t.advance("5s")
        assert t.stats.gauges["w", "keys"] == 1
        t.advance("1s")
        assert (t.stats.gauges["w", "keys"], t.stats.gauges["w", "state_bytes"]) == (0, 0)


@pytest.mark.usefixtures("path")
def test_a_key_keeps_one_right_value_of_many() -> None:
    with TestDriver(asof_flow(clock("0s"), None), now=0) as t:
        t.send("right", [("k", (at, "x")) for at in range(500)])
        assert t.state("w", "k")["right"] == [(499, "x")]


# --- arguments -----------------------------------------------------------------------------------


def a_stream(name: str = "in") -> Any:
    return op.input(name, Dataflow("f"), TestingSource([]))


REFUSED = [
    ({"tolerance": "5 parsecs"}, DurationError, "tolerance '5 parsecs' is not a duration"),
    ({"tolerance": 5}, DurationError, "tolerance must be a duration, got int 5"),
    ({"tolerance": "-1s"}, FlowBuildError, "tolerance must not be negative, got '-1s'"),
    (
        {"direction": "up"},
        FlowBuildError,
        "direction must be 'backward', 'forward' or 'nearest', got 'up'",
    ),
    ({"how": "outer"}, FlowBuildError, "how must be 'left' or 'inner', got 'outer'"),
    ({"emit": "close"}, FlowBuildError, "emit must be 'complete' or 'now', got 'close'"),
    (
        {"right_value": 7},
        FlowTypeError,
        "right_value must be a function of a right value, or the path of a field, got int 7",
    ),
    ({"clock": "5m"}, FlowTypeError, "clock must be a Clock such as EventClock(...), got str '5m'"),
    ({"left": [1]}, FlowTypeError, "left must be a stream, got list [1]"),
    ({"right": None}, FlowTypeError, "right must be a stream, got NoneType None"),
]


@pytest.mark.parametrize(("wrong", "error", "text"), REFUSED, ids=[str(one[0]) for one in REFUSED])
def test_wrong_arguments_are_named_with_their_step(
    wrong: dict[str, Any], error: type[Exception], text: str
) -> None:
    stream = a_stream()
    given = {"left": stream, "right": stream, "clock": clock(), "tolerance": "5s"}
    with pytest.raises(error, match=re.escape(f"step 'j': {text}")):
        win.join_asof("j", **{**given, **wrong})


@pytest.mark.parametrize("name", ["asof_join", "merge_asof", "temporal_join"])
def test_names_of_other_libraries_lead_to_the_operator(name: str) -> None:
    with pytest.raises(AttributeError, match="use join_asof"):
        getattr(win, name)
    with pytest.raises(AttributeError, match=r"win\.join_asof"):
        getattr(op, name)


def test_the_picture_of_a_flow_names_the_operator() -> None:
    assert "join_asof" in to_mermaid(asof_flow(clock(), "5s"))


# --- a checkpoint of another flow -----------------------------------------------------------------


def changes(before: Dataflow, now: Dataflow) -> list[tuple[Effect, str]]:
    found = compare(*(fingerprint(compile_flow(one)) for one in (before, now)))
    return [(one.effect, one.what) for one in found if one.step_id == "w"]


def test_another_tolerance_or_direction_is_refused_and_another_how_or_emit_is_not() -> None:
    flow = asof_flow(clock(), "5s")
    assert changes(flow, asof_flow(clock(), "5000ms", how="inner", emit="now")) == []
    assert changes(flow, asof_flow(clock(), "6s", direction="forward")) == [
        (Effect.WRONG_STATE, "tolerance was '5s' and is '6s'"),
        (Effect.WRONG_STATE, "direction was 'backward' and is 'forward'"),
    ]


def test_values_that_wait_leave_with_their_partners_after_a_change_of_emit() -> None:
    first = TestDriver(asof_flow(clock("0s"), "5s"), now=0)
    first.send("right", [("k", (8, "x"))])
    first.send("left", [("k", (10, "a"))])
    second = TestDriver(asof_flow(clock("0s"), "5s", emit="now"), now=0)
    second._engine._stores = first._engine._stores
    second.send("left", [("k", (12, "b"))])
    assert sorted(pair for _, (_, pair) in second.received("down")) == [
        ((10, "a"), (8, "x")),
        ((12, "b"), (8, "x")),
    ]
