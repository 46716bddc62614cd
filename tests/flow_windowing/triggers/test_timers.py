"""Timers of panes: inputs that are behind, downtime, and other clocks and windowers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import flow_windowing as win
from flow.instants import NEVER, Moment
from flow.testing import TestDriver
from flow_windowing import AfterWatermark, Early, EventClock, Late, TumblingWindower
from flow_windowing.by_key import pane_driver
from flow_windowing.by_key.clocked_driver import ClockedDriver
from tests.support.windowed_flows import OneKey, collecting, windowed_flow

SECOND = 1_000_000
THREE = AfterWatermark(early=Early(every="3s"))
TENS = TumblingWindower("10s")


def clock(wait: str = "1h", **options: Any) -> EventClock[Any]:
    return EventClock(lambda value: value, wait, **options)


def driver(clock: Any, emit: Any = THREE, windower: Any = TENS) -> TestDriver:
    return TestDriver(
        windowed_flow(
            lambda up: win.collect_window("w", up, clock, windower, list, False, emit=emit)
        )
    )


def panes(t: TestDriver) -> list[tuple[str, int, str, list[Any]]]:
    """Take the panes since the last call: key, index, timing and values."""
    return [
        (key, window.pane.index, window.pane.timing.value, values)
        for key, (window, values) in sorted(t.take("down"), key=lambda item: item[0])
    ]


def test_a_due_time_is_that_of_the_first_pane_or_of_the_window_that_closes() -> None:
    one = OneKey(collecting(clock("1s"), TENS, False, THREE))
    one.epoch([4], Moment(0))
    assert one.due_us == 3 * SECOND
    one.epoch([9], Moment(2 * SECOND))  # The watermark is 8 s, and passes 10 s in 2 s.
    assert one.due_us == 3 * SECOND
    one.epoch([], Moment(3 * SECOND))
    assert [value for _, value in one.heard.down] == [[4, 9]]
    assert one.due_us == 4 * SECOND


def test_without_new_values_no_timer_runs() -> None:
    one = OneKey(collecting(clock("1s", on_idle="hold"), TENS, False, THREE), rebuilt=True)
    one.epoch([4], Moment(0))
    one.epoch([], Moment(3 * SECOND))
    assert len(one.heard.down) == 1
    assert one.due_us == NEVER


def test_a_longest_time_is_a_pane_that_never_comes() -> None:
    never = AfterWatermark(early=Early(every=timedelta.max))
    one = OneKey(collecting(clock("1s", on_idle="hold"), TENS, False, never), rebuilt=True)
    one.epoch([4], Moment(0))
    assert one.due_us == NEVER
    one.epoch([], Moment(0), end=True)
    assert [value for _, value in one.heard.down] == [[4]]


def test_the_timer_is_due_at_once_after_an_outage() -> None:
    one = OneKey(collecting(clock(), TENS, False, THREE), rebuilt=True)
    one.epoch([4], Moment(0))
    one.epoch([], Moment(3600 * SECOND, 3600 * SECOND))
    assert [value for _, value in one.heard.down] == [[4]]


#   an input that is behind stands still in time: a pane fires once it has been read to its end
def test_time_does_not_pass_while_an_input_is_behind() -> None:
    t = driver(clock())
    t.send("in", [("k", 1)])
    t.advance("1s")
    t.send_all({"in": [("k", 2)]}, behind=True)
    t.advance("1s")
    assert panes(t) == []
    t.send("in", [])
    t.advance("5s")
    assert panes(t) == [("k", 0, "early", [1, 2])]


@pytest.mark.parametrize("scope", ["stream", "key"])
def test_panes_by_time_wait_for_system_time_whatever_the_watermark(scope: Any) -> None:
    t = driver(clock("0s", scope=scope), windower=TumblingWindower("1h"))
    t.send("in", [("a", 1), ("b", 2)])
    for second in (100, 200, 300):
        t.send("in", [("b", second)])
    t.advance("2.999999s")
    t.send("in", [("b", 400)])
    assert panes(t) == []
    t.advance("0.000001s")
    assert panes(t) == [("a", 0, "early", [1]), ("b", 0, "early", [2, 100, 200, 300, 400])]


#   20 at 0 s, due at 3 s · 14 at 2 s, due at 5 s · 17 merges the two
def test_a_session_keeps_the_earlier_timer_of_those_that_merge() -> None:
    t = driver(clock(), windower=win.SessionWindower("5s"))
    t.send("in", [("k", 20)])
    t.advance("2s")
    t.send("in", [("k", 14), ("k", 17)])
    assert panes(t) == []
    t.advance("1s")
    assert panes(t) == [("k", 0, "early", [20, 14, 17])]


def test_a_stream_that_only_data_moves_fires_panes_as_it_moves() -> None:
    t = driver(clock("0s", scope="stream", on_idle="hold"))
    t.send("in", [("a", 1), ("b", 2)])
    t.advance("3s")
    t.send("in", [])
    assert panes(t) == []
    t.send("in", [("b", 5)])
    assert panes(t) == [("a", 0, "early", [1]), ("b", 0, "early", [2, 5])]


def test_a_custom_windower_without_ends_has_its_on_time_pane_as_it_closes() -> None:
    class Logic(win.WindowerLogic[Any]):
        def __init__(self, state: Any) -> None:
            self.is_open = state is not None

        def open_for(self, timestamp_us: int, watermark_us: int) -> win.AssignedWindows:
            self.is_open = True
            return win.AssignedWindows([0])

        def missed_by(self, timestamp_us: int) -> Any:
            return ()

        def metadata(self, window_id: int) -> win.WindowMetadata:
            return win.WindowMetadata.of_us(0, 0, 10 * SECOND)

        def close_for(self, watermark_us: int) -> Any:
            self.is_open = False
            return [self.metadata(0)]

        def next_close_us(self) -> int:
            return 15 * SECOND if self.is_open else NEVER

        def snapshot(self) -> Any:
            return 1 if self.is_open else None

    class Once(win.Windower[Any]):
        @property
        def grace_us(self) -> int:
            return 5 * SECOND

        def build(self, state: Any) -> Logic:
            return Logic(state)

    t = driver(clock("0s"), Late(count=1), Once())
    t.send("in", [("k", 1), ("k", 12), ("k", 3)])
    assert panes(t) == []
    t.advance("3s")
    assert panes(t) == [("k", 0, "on_time", [1, 12, 3])]


@pytest.mark.parametrize(
    "windower",
    [
        win.CalendarWindower("day", "UTC", grace="5s"),
        win.TumblingWindower("1d", grace="5s", closed="right"),
    ],
)
def test_the_end_of_other_windows(windower: Any) -> None:
    day = 24 * 3600
    t = driver(clock("0s"), Late(count=1), windower)
    after = day + 0.000001 if getattr(windower, "closed", "left") == "right" else day
    t.send("in", [("k", day - 1), ("k", after - 0.000001)])
    before = panes(t)
    t.send("in", [("k", after), ("k", day - 2)])
    assert before == []
    assert [one[1:3] for one in panes(t)] == [(0, "on_time"), (1, "late")]


def test_drivers_without_triggers_have_no_timers() -> None:
    one = OneKey(collecting(clock("1s", on_idle="hold"), TENS, False))
    one.epoch([4], Moment(0))
    assert one.due_us == NEVER
    assert issubclass(type(one._logic), ClockedDriver)


def test_the_next_end_of_many_windows_is_found_without_looking_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0

    def counting(*given: Any, **options: Any) -> Any:
        nonlocal looked_at
        items = list(given[0]) if len(given) == 1 else list(given)
        looked_at += len(items)
        return min(items, **options)

    monkeypatch.setattr(pane_driver, "min", counting, raising=False)
    sessions = win.SessionWindower("1s", grace="1h")
    clock = win.EventClock(float, "1d")
    flow = windowed_flow(
        lambda up: win.collect_window(
            "w", up, clock, sessions, ordered=False, emit=win.AfterWatermark()
        )
    )
    with TestDriver(flow) as t:
        t.send("in", [("k", 10 * number) for number in range(2_000)])
        assert looked_at <= 5 * 2_000
