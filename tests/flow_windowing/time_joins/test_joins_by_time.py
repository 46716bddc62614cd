"""The operators `join_interval` and `join_asof`: metadata, state, arguments and checkpoints."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, FlowBuildError, Stream
from flow.engine.plan.compiler import compile_flow
from flow.errors import DurationError, FlowTypeError
from flow.instants import from_us
from flow.reports.graph import to_mermaid
from flow.testing import TestDriver, TestingSink, TestingSource
from flow_windowing import EventClock, SystemClock
from recovery.identity.fingerprint import Effect, compare, fingerprint
from tests.support.asof_flows import asof_flow
from tests.support.interval_flows import interval_flow

SECOND = 1_000_000


def clock(wait: str = "100s", **options: Any) -> Any:
    """Return a clock of values that are ``(seconds, name)``."""
    return EventClock(lambda value: value[0], wait, **options)


# --- metadata and values -------------------------------------------------------------------------


def test_bounds_of_an_interval_beyond_the_calendar_are_clipped() -> None:
    flow = interval_flow(clock(), timedelta.max, timedelta.max, how="left", grace=timedelta.max)
    with TestDriver(flow) as t:
        t.send("left", [("k", (10, "a"))])
        t.send("right", [("k", (1_000_000_000, "x")), ("k", (-1_000_000_000, "y"))])
        t.end()
        assert [pair[1] for _, (_, pair) in t.received("down")] == [
            (1_000_000_000, "x"),
            (-1_000_000_000, "y"),
        ]
        ((_, metadata),) = t.received("closed")
    assert (metadata.open_time.year, metadata.close_time.year) == (1, 9999)


@pytest.mark.parametrize("tolerance", [None, timedelta.max])
def test_bounds_of_a_tolerance_beyond_the_calendar_are_clipped(tolerance: Any) -> None:
    with TestDriver(asof_flow(clock(), tolerance, direction="nearest")) as t:
        t.send("right", [("k", (-1_000_000_000, "x"))])
        t.send("left", [("k", (10, "a"))])
        t.end()
        ((_, (found, pair)),) = t.received("down")
    assert pair[1] == (-1_000_000_000, "x")
    assert (found.open_time.year, found.close_time.year) == (1, 9999)


def test_a_late_right_value_is_whole_whatever_is_paired_of_it() -> None:
    with TestDriver(asof_flow(clock("0s"), "5s", right_value=lambda quote: quote[1])) as t:
        t.send("left", [("k", (20, "a"))])
        t.send("right", [("k", (3, "x"))])
        assert [late.value for _, late in t.received("late")] == [(3, "x")]


def test_a_left_value_of_none_leaves_as_any_other() -> None:
    with TestDriver(asof_flow(SystemClock(), "5s"), now=0) as t:
        t.send("right", [("k", "x")])
        t.send("left", [("k", None)])
        t.end()
        assert [pair for _, (_, pair) in t.received("down")] == [(None, "x")]


def test_values_without_a_timestamp_are_dropped_and_counted() -> None:
    drops = EventClock("at", "0s", on_invalid="drop")
    for flow in (interval_flow(drops, "5s", "2s"), asof_flow(drops, "5s")):
        with TestDriver(flow) as t:
            t.send("left", [("k", {"at": 1}), ("k", {"no": 1})])
            t.send("right", [("k", {"no": 1})])
            assert t.stats.counts["w", "dropped"] == 2


def test_streams_without_a_reader_are_counted_only() -> None:
    flow = Dataflow("f")
    sides = [op.input(name, flow, TestingSource([])) for name in ("left", "right")]
    out = win.join_interval("w", *sides, EventClock("at", "0s"), "5s", "5s", how="left")
    op.output("closed", out.closed, TestingSink([]))
    with TestDriver(flow) as t:
        t.send("left", [("k", {"at": 10}), ("k", {"at": 3})])
        t.send("right", [("k", {"at": 10})])
        t.end()
        assert len(t.received("closed")) == 1
        counts = {what: n for (step, what), n in t.stats.counts.items() if step == "w"}
    assert (counts["out"], counts["late"]) == (1, 1)


# --- state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_read", [False, True])
def test_the_state_of_a_key_shows_both_sides_and_the_watermark(is_read: bool) -> None:
    flow = interval_flow(clock("5s"), "5s", "2s")
    if is_read:
        (joined,) = [step for step in flow.steps if step.step_id == "w"]
        down: Any = Stream(flow, joined.downs[0])
        of_windows: Any = EventClock(lambda joined: joined[0].timestamp, "0s")
        read = win.collect_window("read", down, of_windows, win.TumblingWindower("1m"))
        op.output("collected", read.down, TestingSink([]))
    with TestDriver(flow) as t:
        t.send("left", [("k", (10, "a")), ("k", (8, "b"))])
        t.send("right", [("k", (9, "x"))])
        assert t.state("w", "k") == {
            "watermark": from_us(5 * SECOND),
            "left": [(8, "b"), (10, "a")],
            "right": [(9, "x")],
        }
    # An as-of join retains the right value at the watermark, 10, and what is newer.
    with TestDriver(asof_flow(clock("5s"), "5s"), now=0) as t:
        t.send("right", [("k", (at, "x")) for at in (6, 8, 12, 14)])
        t.send("left", [("k", (11, "a")), ("k", (15, "b"))])
        assert t.state("w", "k") == {
            "watermark": from_us(10 * SECOND),
            "left": [(11, "a"), (15, "b")],
            "right": [(8, "x"), (12, "x"), (14, "x")],
        }


def test_a_value_leaves_the_state_once_no_partner_can_come() -> None:
    # A left value at 10 can have partners up to 12, a right one at 10 up to 15, and the grace is 1.
    with TestDriver(interval_flow(clock("0s"), "5s", "2s", grace="1s")) as t:
        t.send("left", [("k", (10, "a"))])
        t.send("right", [("k", (10, "x"))])

        def retained(watermark: int) -> tuple[list[str], list[str]]:
            t.send("right", [("k", (watermark, "later"))])
            state = t.state("w", "k")
            return tuple([v[1] for v in state[s] if v[1] != "later"] for s in ("left", "right"))

        assert retained(13) == (["a"], ["x"])
        assert retained(14) == ([], ["x"])
        assert retained(16) == ([], ["x"])
        assert retained(17) == ([], [])


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


@pytest.mark.parametrize(
    ("flow", "last"),
    [
        (interval_flow(SystemClock(), "5s", "2s"), "2s"),
        (asof_flow(SystemClock(), "5s"), "5s"),
    ],
)
def test_a_key_without_values_has_no_state_with_the_system_clock(flow: Dataflow, last: str) -> None:
    with TestDriver(flow, now=0) as t:
        t.send("left", [("k", "a")])
        if last == "5s":
            t.send("right", [("k", "x")])
        t.advance(last)
        assert t.stats.gauges["w", "keys"] == 1
        t.advance("1s")
        assert (t.stats.gauges["w", "keys"], t.stats.gauges["w", "state_bytes"]) == (0, 0)


def test_a_key_keeps_one_right_value_of_many() -> None:
    with TestDriver(asof_flow(clock("0s"), None), now=0) as t:
        t.send("right", [("k", (at, "x")) for at in range(500)])
        assert t.state("w", "k")["right"] == [(499, "x")]


# --- arguments -----------------------------------------------------------------------------------


def a_stream(name: str = "in") -> Any:
    return op.input(name, Dataflow("f"), TestingSource([]))


INTERVAL = [
    ({"before": "5 parsecs"}, DurationError, "before '5 parsecs' is not a duration"),
    ({"after": 5}, DurationError, "after must be a duration, got int 5"),
    ({"grace": "soon"}, DurationError, "grace 'soon' is not a duration"),
    ({"grace": "-1s"}, FlowBuildError, "grace must not be negative, got '-1s'"),
    (
        {"before": "-5s", "after": "4s"},
        FlowBuildError,
        "before + after must not be negative, as no pair would match, got before='-5s', after='4s'",
    ),
    (
        {"how": "full"},
        FlowBuildError,
        "how must be 'inner', 'left', 'right' or 'outer', got 'full'",
    ),
    ({"how": None}, FlowBuildError, "how must be 'inner', 'left', 'right' or 'outer', got None"),
]
ASOF = [
    ({"tolerance": "5 parsecs"}, DurationError, "tolerance '5 parsecs' is not a duration"),
    ({"tolerance": 5}, DurationError, "tolerance must be a duration, got int 5"),
    ({"tolerance": "-1s"}, FlowBuildError, "tolerance must not be negative, got '-1s'"),
    (
        {"direction": "up"},
        FlowBuildError,
        "direction must be 'backward', 'forward' or 'nearest', got 'up'",
    ),
    ({"how": "outer"}, FlowBuildError, "how must be 'left' or 'inner', got 'outer'"),
    ({"emit": "complete"}, FlowBuildError, "emit must be 'close' or 'now', got 'complete'"),
    (
        {"right_value": 7},
        FlowTypeError,
        "right_value must be a function or a field's path such as 'rate.value', got int 7",
    ),
]
BOTH = [
    ({"clock": "5m"}, FlowTypeError, "clock must be a Clock such as EventClock(...), got str '5m'"),
    ({"left": [1]}, FlowTypeError, "left must be a stream, got list [1]"),
    ({"right": None}, FlowTypeError, "right must be a stream, got NoneType None"),
]


@pytest.mark.parametrize(
    ("join", "fit", "wrong", "error", "text"),
    [
        *((win.join_interval, {"before": "5s", "after": "1s"}, *one) for one in INTERVAL + BOTH),
        *((win.join_asof, {"tolerance": "5s"}, *one) for one in ASOF + BOTH),
    ],
)
def test_wrong_arguments_are_named_with_their_step(
    join: Any, fit: dict[str, str], wrong: dict[str, Any], error: type[Exception], text: str
) -> None:
    stream = a_stream()
    given = {"left": stream, "right": stream, "clock": clock(), **fit, **wrong}
    with pytest.raises(error, match=re.escape(f"step 'j': {text}")):
        join("j", **given)


def test_streams_of_two_flows_are_refused() -> None:
    with pytest.raises(FlowBuildError, match="streams of one flow only"):
        win.join_interval("j", a_stream(), a_stream(), clock(), "5s", "1s")


@pytest.mark.parametrize(
    ("name", "operator"),
    [("interval_join", "join_interval"), ("asof_join", "join_asof")],
)
def test_names_of_other_libraries_lead_to_the_operator(name: str, operator: str) -> None:
    with pytest.raises(AttributeError, match=f"use {operator}"):
        getattr(win, name)
    with pytest.raises(AttributeError, match=rf"win\.{operator}"):
        getattr(op, operator)


def test_the_picture_of_a_flow_names_the_operator() -> None:
    assert "join_interval" in to_mermaid(interval_flow(clock(), "5s", "2s"))
    assert "join_asof" in to_mermaid(asof_flow(clock(), "5s"))


# --- a checkpoint of another flow -----------------------------------------------------------------


def changes(before: Dataflow, now: Dataflow) -> list[tuple[Effect, str]]:
    found = compare(*(fingerprint(compile_flow(one)) for one in (before, now)))
    return [(one.effect, one.what) for one in found if one.step_id == "w"]


def test_another_interval_is_refused_and_another_how_and_grace_are_not() -> None:
    flow = interval_flow(clock(), "5s", "2s")
    assert changes(flow, interval_flow(clock(), "5000ms", "2s", how="left", grace="1m")) == []
    assert changes(flow, interval_flow(clock(), "6s", "1s")) == [
        (Effect.WRONG_STATE, "before was '5s' and is '6s'"),
        (Effect.WRONG_STATE, "after was '2s' and is '1s'"),
    ]


def test_another_tolerance_or_direction_is_refused_and_another_how_or_emit_is_not() -> None:
    flow = asof_flow(clock(), "5s")
    assert changes(flow, asof_flow(clock(), "5000ms", how="inner", emit="now")) == []
    assert changes(flow, asof_flow(clock(), "6s", direction="forward")) == [
        (Effect.WRONG_STATE, "tolerance was '5s' and is '6s'"),
        (Effect.WRONG_STATE, "direction was 'backward' and is 'forward'"),
    ]


def test_swapped_sides_are_refused() -> None:
    def joined(*names: str) -> Dataflow:
        flow = Dataflow("f")
        inputs = {name: op.input(name, flow, TestingSource([])) for name in ("a", "b")}
        sides = [inputs[name] for name in names]
        op.output("out", win.join_interval("w", *sides, clock(), "5s", "2s").down, TestingSink([]))
        return flow

    assert changes(joined("a", "b"), joined("b", "a")) == [
        (Effect.WRONG_STATE, "side 0 read step 'a', which is side 1 now"),
        (Effect.WRONG_STATE, "side 1 read step 'b', which is side 0 now"),
    ]


def test_a_join_in_windows_cannot_become_an_interval_join() -> None:
    flow = Dataflow("f")
    sides = [op.input(name, flow, TestingSource([])) for name in ("left", "right")]
    out = win.join_window("w", *sides, clock=clock(), windower=win.TumblingWindower("5s"))
    op.output("out", out.down, TestingSink([]))
    (change,) = changes(flow, interval_flow(clock(), "5s", "2s"))
    assert change == (Effect.WRONG_STATE, "was window and is join_interval")


def changed(before: TestDriver, flow: Dataflow) -> TestDriver:
    """Return a driver of another flow that has the state of a driver."""
    after = TestDriver(flow, now=0)
    after._engine._stores = before._engine._stores
    return after


def test_a_longer_grace_keeps_the_values_in_a_checkpoint_for_longer() -> None:
    def of(grace: str) -> Dataflow:
        return interval_flow(clock("0s"), "0s", "2s", how="left", grace=grace)

    first = TestDriver(of("0s"), now=0)
    first.send("left", [("k", (10, "a"))])
    second = changed(first, of("5s"))
    second.advance("7s")
    assert second.received("down") == []
    second.advance("1s")
    assert [pair for _, (_, pair) in second.received("down")] == [((10, "a"), None)]


def test_values_that_wait_leave_as_the_watermark_passes_after_a_change_of_emit() -> None:
    first = TestDriver(asof_flow(clock("2s"), "5s"), now=0, shards=1)
    first.send("right", [("k", (8, "x"))])
    first.send("left", [("k", (10, "a"))])
    second = TestDriver(asof_flow(clock("2s"), "5s", emit="now"), now=0, shards=1)
    second._engine._stores = first._engine._stores
    second.send("left", [("other", (3, "o")), ("k", (9, "b"))])
    second.send("right", [("k", (9, "y"))])
    second.send("left", [("k", (13, "c"))])
    assert [pair for key, (_, pair) in second.received("down") if key == "k"] == [
        ((9, "b"), (8, "x")),
        ((13, "c"), (9, "y")),
        ((10, "a"), (9, "y")),
    ]
