"""The operator `join_interval`: arguments, metadata, late values and state."""

from __future__ import annotations

import re
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
from flow.testing import TestDriver, TestingSink, TestingSource
from flow_windowing import EventClock, LateReason, SystemClock, WindowMetadata
from recovery.identity.fingerprint import Effect, compare, fingerprint
from tests.support.interval_flows import interval_flow

SECOND = 1_000_000


def clock(wait: str = "100s", **options: Any) -> Any:
    """Return a clock of values that are ``(seconds, name)``."""
    return EventClock(lambda value: value[0], wait, **options)


def window(at: int, first: int, last: int, latest: int | None = None) -> WindowMetadata:
    """Return the window of a value at a second, with bounds in seconds."""
    time = from_us((at if latest is None else latest) * SECOND)
    return WindowMetadata(
        at * SECOND, from_us(first * SECOND), from_us(last * SECOND), timestamp=time
    )


# --- metadata ------------------------------------------------------------------------------------


def with_timestamps(items: list[Any]) -> list[Any]:
    """Return items with the timestamps of their windows, which equal windows may not share."""
    return [(key, metadata, metadata.timestamp, pair) for key, (metadata, pair) in items]


def test_the_window_of_a_pair_is_that_of_its_left_value() -> None:
    with TestDriver(interval_flow(clock(), "5s", "2s", how="outer")) as t:
        t.send("left", [("k", (10, "a"))])
        t.send("right", [("k", (7, "x")), ("k", (12, "y")), ("k", (40, "z"))])
        t.end()
        found = with_timestamps(t.received("down"))
        closed = t.received("closed")
    pair, other = window(10, 5, 12, 10), window(10, 5, 12, 12)
    alone = window(40, 38, 45)
    assert found == [
        ("k", pair, pair.timestamp, ((10, "a"), (7, "x"))),
        ("k", other, other.timestamp, ((10, "a"), (12, "y"))),
        ("k", alone, alone.timestamp, (None, (40, "z"))),
    ]
    assert closed == [("k", pair)]


def test_bounds_beyond_the_calendar_are_clipped() -> None:
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


# --- late values ---------------------------------------------------------------------------------


def test_a_late_value_says_its_side_and_its_interval() -> None:
    with TestDriver(interval_flow(clock("0s"), "5s", "2s")) as t:
        t.send("left", [("k", (20, "a"))])
        t.send("right", [("k", (3, "x"))])
        t.send("left", [("k", (4, "b"))])
        (_, right), (_, left) = t.received("late")
    assert (right.side, right.value, left.side, left.value) == (1, (3, "x"), 0, (4, "b"))
    assert right.windows == (window(3, 1, 8),)
    assert left.windows == (window(4, -1, 6),)
    assert right.late_by == timedelta(seconds=17)
    assert {right.reason, left.reason} == {LateReason.LATE}


def test_values_without_a_timestamp_are_dropped_and_counted() -> None:
    drops = EventClock("at", "0s", on_invalid="drop")
    with TestDriver(interval_flow(drops, "5s", "2s")) as t:
        t.send("left", [("k", {"at": 1}), ("k", {"no": 1})])
        t.send("right", [("k", {"no": 1})])
        assert t.stats.counts["w", "dropped"] == 2


# --- state ---------------------------------------------------------------------------------------


def test_the_state_of_a_key_shows_both_sides_and_the_watermark() -> None:
    with TestDriver(interval_flow(clock("5s"), "5s", "2s")) as t:
        t.send("left", [("k", (10, "a")), ("k", (8, "b"))])
        t.send("right", [("k", (9, "x"))])
        assert t.state("w", "k") == {
            "watermark": from_us(5 * SECOND),
            "left": [(8, "b"), (10, "a")],
            "right": [(9, "x")],
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


def test_a_key_without_values_has_no_state_with_the_system_clock() -> None:
    with TestDriver(interval_flow(SystemClock(), "5s", "2s")) as t:
        t.send("left", [("k", "a")])
        t.advance("2s")
        assert t.state("w", "k")["left"] == ["a"]
        t.advance("1s")
        assert t.state("w", "k") is None


# --- arguments -----------------------------------------------------------------------------------


def a_stream(name: str = "in") -> Any:
    return op.input(name, Dataflow("f"), TestingSource([]))


REFUSED = [
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
    ({"clock": "5m"}, FlowTypeError, "clock must be a Clock such as EventClock(...), got str '5m'"),
    ({"left": [1]}, FlowTypeError, "left must be a stream, got list [1]"),
    ({"right": None}, FlowTypeError, "right must be a stream, got NoneType None"),
]


@pytest.mark.parametrize(("wrong", "error", "text"), REFUSED, ids=[str(one[0]) for one in REFUSED])
def test_wrong_arguments_are_named_with_their_step(
    wrong: dict[str, Any], error: type[Exception], text: str
) -> None:
    stream = a_stream()
    given = {"left": stream, "right": stream, "clock": clock(), "before": "5s", "after": "1s"}
    with pytest.raises(error, match=re.escape(f"step 'j': {text}")):
        win.join_interval("j", **{**given, **wrong})


def test_streams_of_two_flows_are_refused() -> None:
    with pytest.raises(FlowBuildError, match="streams of one flow only"):
        win.join_interval("j", a_stream(), a_stream(), clock(), "5s", "1s")


@pytest.mark.parametrize("name", ["interval_join", "join_within"])
def test_names_of_other_libraries_lead_to_the_operator(name: str) -> None:
    with pytest.raises(AttributeError, match="use join_interval"):
        getattr(win, name)


def test_the_operator_is_found_from_flow_operators() -> None:
    for name in ("interval_join", "join_interval"):
        with pytest.raises(AttributeError, match=r"win\.join_interval"):
            getattr(op, name)


def test_the_picture_of_a_flow_names_the_operator() -> None:
    assert "join_interval" in to_mermaid(interval_flow(clock(), "5s", "2s"))


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
    out = win.join_window("w", clock(), win.TumblingWindower("5s"), *sides)
    op.output("out", out.down, TestingSink([]))
    (change,) = changes(flow, interval_flow(clock(), "5s", "2s"))
    assert change == (Effect.WRONG_STATE, "was window and is join_interval")


def test_a_longer_grace_keeps_the_values_in_a_checkpoint_for_longer() -> None:
    def of(grace: str) -> Dataflow:
        return interval_flow(EventClock(lambda v: v[0], "0s"), "0s", "2s", how="left", grace=grace)

    first = TestDriver(of("0s"), now=from_us(0))
    first.send("left", [("k", (10, "a"))])
    second = TestDriver(of("5s"), now=from_us(0))
    second._engine._stores = first._engine._stores
    second.advance("7s")
    assert second.received("down") == []
    second.advance("1s")
    assert [pair for _, (_, pair) in second.received("down")] == [((10, "a"), None)]
