"""The worked facts of the contract: sliding, event-sliding and count windows, and both bounds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import flow_windowing as win
from flow.instants import EPOCH
from flow.testing import TestDriver
from flow_windowing import EventClock, LateReason
from tests.support.windowed_flows import Received, received, windowed_flow

SECOND = timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)
PATIENT = EventClock(lambda value: value[1], timedelta.max)


def play(windower: Any, values: list[Any], clock: Any = PATIENT, **options: Any) -> Received:
    """Send values ``(name, time)``, each in an epoch of its own, and return what is emitted."""
    flow = windowed_flow(lambda up: win.collect_window("w", up, clock, windower, **options))
    with TestDriver(flow) as t:
        for value in values:
            t.send("in", [("k", value)])
        t.end()
        return received(t)


def windows(out: Received, unit: timedelta = SECOND) -> list[tuple[float, float, Any]]:
    """Open, close, and the names of what is in it."""
    return [
        ((one.open_time - EPOCH) / unit, (one.close_time - EPOCH) / unit, [v[0] for v in held])
        for one, held in out["down"].get("k", ())
    ]


def test_a_value_is_in_each_sliding_window_around_it() -> None:
    # 00:00 |------------| 01:00
    #     00:30 |------------| 01:30
    #            00:33:13
    half_past = datetime(2024, 1, 1, 0, 33, 13, tzinfo=UTC)
    out = play(win.SlidingWindower("1h", "30m"), [("x", half_past)])
    bounds = [(f"{one.open_time:%H:%M}", f"{one.close_time:%H:%M}") for one, _ in out["down"]["k"]]
    assert bounds == [("00:00", "01:00"), ("00:30", "01:30")]


def test_with_grace_a_value_can_be_late_for_one_window_and_on_time_for_another() -> None:
    #  95 |---------| 105              closes at the second value
    #      100 |---------| 110
    #  100 106 103
    clock = EventClock(lambda value: value[1], "0s")
    values = [("a", 100), ("b", 106), ("c", 103)]
    out = play(win.SlidingWindower("10s", "5s", grace="0s"), values, clock, ordered=False)
    assert windows(out) == [
        (95, 105, ["a"]),
        (100, 110, ["a", "b", "c"]),
        (105, 115, ["b"]),
    ]
    (late,) = out["late"]["k"]
    assert (late.value[0], late.reason) == ("c", LateReason.LATE)
    assert (late.window.open_time - EPOCH, late.late_by) == (95 * SECOND, 3 * SECOND)


def test_a_value_in_a_gap_is_in_no_window() -> None:
    # |0    5|        |10   15|        7 waits until the watermark is there
    clock = EventClock(lambda value: value[1], "10s")
    values = [("a", 4), ("gap", 7), ("b", 5), ("c", 50)]
    out = play(win.SlidingWindower("5s", "10s"), values, clock)
    assert windows(out) == [(0, 5, ["a"]), (50, 55, ["c"])]
    assert [(late.value[0], late.reason, late.window) for late in out["late"]["k"]] == [
        ("b", LateReason.GAP, None),
        ("gap", LateReason.GAP, None),
    ]
    assert [late.late_by for late in out["late"]["k"]] == [timedelta(0), timedelta(0)]


@pytest.mark.parametrize(
    "windower",
    [win.TumblingWindower("1h", closed="right"), win.SlidingWindower("1h", "1h", closed="right")],
    ids=["tumbling", "sliding"],
)
def test_a_window_closed_right_includes_its_close_only(windower: Any) -> None:
    # (14:00 ... 15:00] (15:00 + 1 us ... 16:00]
    three = datetime(2024, 1, 1, 15, tzinfo=UTC)
    values = [("close", three), ("after", three + timedelta(microseconds=1))]
    out = play(windower, values, EventClock(lambda value: value[1], "0s"))
    shown = [(one.open_time.hour, one.close_time.hour, held) for one, held in out["down"]["k"]]
    assert shown == [(14, 15, values[:1]), (15, 16, values[1:])]
    assert not out["late"]


def test_left_windows_hold_the_values_just_before_each_value() -> None:
    # length 10, grace 15:   A@23  B@20  C@27
    #   10 |-----B| 20
    #      13 |---B--A| 23
    #           17 |-B--A---C| 27
    clock = EventClock(lambda value: value[1], "0s")
    windower = win.EventSlidingWindower("10s", grace="15s")
    values = [("A", 23), ("B", 20), ("C", 27)]
    out = play(windower, values, clock, ordered=False, emit="update")
    made = [
        ((one.close_time - EPOCH) / SECOND, sorted(v[0] for v in held))
        for one, held in out["down"]["k"]
    ]
    assert made[0] == (23, ["A"])
    assert sorted(made[1:3]) == [(20, ["B"]), (23, ["A", "B"])]
    assert made[3] == (27, ["A", "B", "C"])
    assert not out["late"]


IN_MS = [(1, 8.0), (2, 9.2), (3, 12.4)]
LEFT = [(3000, 8000, [1]), (4200, 9200, [1, 2]), (7400, 12400, [1, 2, 3])]
RIGHT = [(8001, 13001, [2, 3]), (9201, 14201, [3])]


@pytest.mark.parametrize("ordered", [True, False])
def test_right_windows_hold_the_values_just_after_each_value(ordered: bool) -> None:
    left = win.EventSlidingWindower("5s", resolution="1ms")
    both = win.EventSlidingWindower("5s", emit_right=True, resolution="1ms")
    assert windows(play(left, IN_MS, ordered=ordered), MILLISECOND) == LEFT
    assert windows(play(both, IN_MS, ordered=ordered), MILLISECOND) == [*LEFT, *RIGHT]


def test_the_mean_of_the_hour_before_each_value() -> None:
    values = [(30, 3600), (29, 4800), (28, 4800.001), (27, 7200), (26, 7200.001)]
    flow = windowed_flow(
        lambda up: win.mean_window(
            "w", up, PATIENT, win.EventSlidingWindower("1h"), lambda value: value[0]
        )
    )
    with TestDriver(flow) as t:
        t.send("in", [("k", value) for value in values])
        t.end()
        assert [mean for _, (_, mean) in t.received("down")] == [30, 29.5, 29, 28.5, 27.5]


def test_both_bounds_of_an_event_sliding_window_belong_to_it_until_the_watermark_is_past() -> None:
    # length 10:  10 |--------| 20      the watermark is at 20 when the second 20 comes
    clock = EventClock(lambda value: value[1], "0s")
    values = [("a", 10), ("b", 20), ("c", 20)]
    out = play(win.EventSlidingWindower("10s"), values, clock, ordered=False)
    assert windows(out) == [(0, 10, ["a"]), (10, 20, ["a", "b", "c"])]


def count_windows(windower: Any, **options: Any) -> Received:
    return play(windower, [(number, 100 - number) for number in range(1, 7)], **options)


def test_count_windows_overlap_and_the_last_stay_open() -> None:
    # 1 2 3 4 5 6
    # |-----|
    #     |-----|
    #         |...
    out = count_windows(win.CountWindower(4, step=2), ordered=False)
    assert windows(out) == [(96, 99, [1, 2, 3, 4]), (94, 97, [3, 4, 5, 6])]
    assert [one.window_id for one in out["closed"]["k"]] == [0, 1]


def test_partial_count_windows_at_the_end() -> None:
    out = count_windows(win.CountWindower(4, step=2, partial=True), ordered=False)
    assert [held for _, _, held in windows(out)] == [[1, 2, 3, 4], [3, 4, 5, 6], [5, 6]]


def test_count_windows_with_gaps() -> None:
    # 1 2 | 3 | 4 5 | 6
    out = count_windows(win.CountWindower(2, step=3), ordered=False)
    assert [held for _, _, held in windows(out)] == [[1, 2], [4, 5]]
    assert [(late.value[0], late.reason) for late in out["late"]["k"]] == [
        (3, LateReason.GAP),
        (6, LateReason.GAP),
    ]


def test_ordered_values_are_counted_in_order_of_time() -> None:
    # times run backwards, so that the last to arrive is the first to be counted
    out = count_windows(win.CountWindower(3))
    assert [held for _, _, held in windows(out)] == [[6, 5, 4], [3, 2, 1]]


def test_a_mean_that_moves_over_three_values() -> None:
    amounts = [100, 60, 200, 40, 120, 80]
    flow = windowed_flow(
        lambda up: win.mean_window("w", up, win.SystemClock(), win.CountWindower(3, 1))
    )
    with TestDriver(flow) as t:
        for amount in amounts:
            t.send("in", [("k", amount)])
        t.end()
        assert [mean for _, (_, mean) in t.received("down")] == [120, 100, 120, 80]


def test_a_later_run_fills_the_count_windows_that_stayed_open() -> None:
    flow = windowed_flow(
        lambda up: win.collect_window("w", up, win.SystemClock(), win.CountWindower(3))
    )
    with TestDriver(flow) as t:
        t.send("in", [("k", 1), ("k", 2)])
        t.end()
        assert t.received("down") == []
        t.restart(after="1h")
        t.send("in", [("k", 3), ("k", 4)])
        assert [held for _, (_, held) in t.received("down")] == [[1, 2, 3]]
