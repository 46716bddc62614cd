"""Joins in windows: order of values, sides of late values, and times of emission."""

from __future__ import annotations

from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
import flow_windowing.join_logic
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource
from flow_windowing import EventClock, LateReason, SessionWindower, TumblingWindower
from tests.support.windowed_flows import Received, received

TENS = TumblingWindower("10s")


def joining(windower: Any = TENS, clock: Any = None, sides: int = 2, **options: Any) -> Dataflow:
    """Join the inputs ``s0``, ``s1`` and so on; values are ``(seconds, name)``."""
    flow = Dataflow("joining")
    ups = [op.input(f"s{number}", flow, TestingSource([])) for number in range(sides)]
    clock = clock or EventClock(lambda value: value[0], "100s")
    out = win.join_window("w", clock, windower, *ups, **options)
    for name in out._fields:
        op.output(name, getattr(out, name), TestingSink([]))
    return flow


def play(flow: Dataflow, *arrivals: tuple[int, Any]) -> Received:
    """Send values one after the other, each to its side, and return what the join emits."""
    with TestDriver(flow) as t:
        for side, value in arrivals:
            t.send(f"s{side}", [("k", value)])
        t.end()
        return received(t)


def rows(out: Received) -> list[tuple[Any, ...]]:
    """The rows, of each value its name alone."""
    return [tuple(value and value[1] for value in row) for _, row in out["down"].get("k", ())]


A5, A3, A7 = (0, (5, "a5")), (0, (3, "a3")), (0, (7, "a7"))
B6, B2, B16 = (1, (6, "b6")), (1, (2, "b2")), (1, (16, "b16"))


@pytest.mark.parametrize(
    ("ordered", "mode", "expected"),
    [
        (True, "first", ("a3", "b2")),
        (True, "last", ("a7", "b6")),
        (False, "first", ("a5", "b6")),
        (False, "last", ("a3", "b2")),
    ],
)
def test_first_and_last_go_by_timestamp_when_ordered_and_by_arrival_when_not(
    ordered: bool, mode: Any, expected: tuple[str, str]
) -> None:
    # arrival:  a5  b6  a7  b2  a3
    # time:     b2  a3  a5  b6  a7
    flow = joining(ordered=ordered, insert_mode=mode)
    assert rows(play(flow, A5, B6, A7, B2, A3)) == [expected]


def test_of_equal_times_the_first_to_arrive_is_first_and_the_last_is_last() -> None:
    ties = (0, (5, "x")), (1, (5, "p")), (0, (5, "y")), (1, (5, "q"))
    assert rows(play(joining(insert_mode="first"), *ties)) == [("x", "p")]
    assert rows(play(joining(insert_mode="last"), *ties)) == [("y", "q")]


def test_every_combination_is_in_the_order_of_the_values() -> None:
    flow = joining(insert_mode="product")
    expected = [("a3", "b2"), ("a3", "b6"), ("a5", "b2"), ("a5", "b6")]
    assert rows(play(flow, A5, B6, B2, A3)) == expected


def test_a_side_without_a_value_is_none_at_the_close() -> None:
    out = play(joining(), A5, B16)
    assert rows(out) == [("a5", None), (None, "b16")]
    assert [one.window_id for one in out["closed"]["k"]] == [0, 1]


def test_complete_emits_when_every_side_has_a_value_and_starts_over() -> None:
    # b2  a3 -> row;  a5  b6 -> row;  a7: alone at the close
    out = play(joining(emit_mode="complete"), A5, B6, A7, B2, A3)
    assert rows(out) == [("a3", "b2"), ("a5", "b6")]


def test_running_emits_all_there_is_at_every_value() -> None:
    out = play(joining(emit_mode="running"), B2, A3, A5)
    assert rows(out) == [(None, "b2"), ("a3", "b2"), ("a5", "b2")]


def test_three_sides() -> None:
    out = play(joining(sides=3), A5, (2, (1, "c1")))
    assert rows(out) == [("a5", None, "c1")]


@pytest.mark.parametrize(
    ("ordered", "mode", "expected"),
    [
        (True, "first", ("a10", "b15")),
        (True, "last", ("a20", "b22")),
        (False, "first", ("a20", "b22")),
        (False, "last", ("a10", "b15")),
    ],
)
def test_in_sessions_that_become_one_first_and_last_go_by_time_or_arrival(
    ordered: bool, mode: Any, expected: tuple[str, str]
) -> None:
    # gap 5:   a10      a20 b22       and then b15, which makes them one
    #          |--|     |-----|
    #          |--------------|
    # by arrival a20 and b22 come before a10, and b15 is the last of its side
    arrivals = (0, (20, "a20")), (1, (22, "b22")), (0, (10, "a10")), (1, (15, "b15"))
    out = play(joining(SessionWindower("5s"), ordered=ordered, insert_mode=mode), *arrivals)
    assert rows(out) == [expected]


def test_sessions_that_become_one_are_complete_when_each_had_half() -> None:
    # a10 . b20   then a15 between them: the sides are full, the row leaves at that value
    arrivals = (0, (10, "a10")), (1, (20, "b20")), (0, (15, "a15"))
    flow = joining(SessionWindower("5s"), ordered=False, emit_mode="complete")
    assert rows(play(flow, *arrivals)) == [("a15", "b20")]


def test_late_values_say_their_side_and_are_plain() -> None:
    # a5  b16 (watermark 16)  a3, b2: late
    clock = EventClock(lambda value: value[0], "0s")
    out = play(joining(clock=clock), A5, B16, A3, B2)
    assert [(late.side, late.value) for late in out["late"]["k"]] == [
        (0, (3, "a3")),
        (1, (2, "b2")),
    ]
    assert {late.reason for late in out["late"]["k"]} == {LateReason.LATE}


def test_values_too_far_ahead_and_in_gaps_say_their_side_too() -> None:
    clock = EventClock(lambda value: value[0], "0s", max_ahead="100s")
    gaps = win.SlidingWindower("5s", "10s")
    out = play(joining(gaps, clock), (0, (6, "gap")), (1, (101, "ahead")))
    assert [(late.side, late.reason) for late in out["late"]["k"]] == [
        (0, LateReason.GAP),
        (1, LateReason.TOO_FAR_AHEAD),
    ]


def test_one_more_value_of_a_product_costs_little_more_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0
    turn_of = flow_windowing.join_logic._order_of

    def counting(entry: Any) -> Any:
        nonlocal looked_at
        looked_at += 1
        return turn_of(entry)

    monkeypatch.setattr(flow_windowing.join_logic, "_order_of", counting)
    with TestDriver(joining(TumblingWindower("1h"), insert_mode="product")) as t:
        t.send("s0", [("k", (second, "a")) for second in range(2000)])
        t.end()
    assert looked_at < 2000 * 30
