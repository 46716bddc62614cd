"""The ends of time: the first and last datetime, endless durations, before 1970 and `align_to`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import flow_windowing as win
from flow.testing import TestDriver
from flow_windowing import EventClock, LateReason
from tests.support.windowed_flows import Received, received, windowed_flow

FOREVER = timedelta.max
FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
WINDOWERS: dict[str, Any] = {
    "tumbling": win.TumblingWindower("1h"),
    "sliding": win.SlidingWindower("1h", "30m"),
    "tumbling right": win.TumblingWindower("1h", closed="right"),
    "session": win.SessionWindower("1h"),
    "event sliding": win.EventSlidingWindower("1h"),
    "event sliding right": win.EventSlidingWindower("1h", emit_right=True),
    "count": win.CountWindower(1),
    "calendar": win.CalendarWindower("day", "Europe/Paris"),
}


def collect(
    windower: Any,
    times: list[datetime],
    clock: Any = None,
    ordered: bool = True,
    now: datetime = NOON,
) -> tuple[Received, TestDriver]:
    """Send times as values, each in an epoch of its own; return what is emitted, and the driver."""
    clock = clock or EventClock(lambda value: value, "0s")
    flow = windowed_flow(lambda up: win.collect_window("w", up, clock, windower, list, ordered))
    with TestDriver(flow, now=now) as t:
        for time in times:
            t.send("in", [("k", time)])
        t.end()
        return received(t), t


def window_values(out: Received) -> list[list[datetime]]:
    return [values for _, values in out["down"].get("k", ())]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("windower", WINDOWERS)
@pytest.mark.parametrize(
    "time", [FIRST, LAST, datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)], ids=str
)
def test_any_time_has_its_window(windower: str, time: datetime, ordered: bool) -> None:
    out, _ = collect(WINDOWERS[windower], [time], ordered=ordered)
    windows = 2 if windower == "sliding" else 1
    assert window_values(out) == [[time]] * windows
    assert not out["late"]
    assert all(one.open_time <= time <= one.close_time for one, _ in out["down"]["k"])


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("windower", WINDOWERS)
def test_one_run_covers_all_of_time(windower: str, ordered: bool) -> None:
    # FIRST                                1970                               LAST
    out, _ = collect(WINDOWERS[windower], [FIRST, NOON, LAST], ordered=ordered)
    windows = 2 if windower == "sliding" else 1
    assert window_values(out) == [[time] for time in (FIRST, NOON, LAST) for _ in range(windows)]


@pytest.mark.parametrize("wait", [FOREVER, "100000000d"], ids=["max", "text"])
@pytest.mark.parametrize("windower", WINDOWERS)
def test_an_endless_wait_accepts_all_of_time_in_any_order(windower: str, wait: Any) -> None:
    clock = EventClock(lambda value: value, wait)
    out, _ = collect(WINDOWERS[windower], [LAST, NOON, FIRST], clock)
    windows = 2 if windower == "sliding" else 1
    assert window_values(out) == [[time] for time in (FIRST, NOON, LAST) for _ in range(windows)]
    assert not out["late"]


LATER = NOON + timedelta(seconds=10)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(
    "windower",
    [
        win.TumblingWindower(FOREVER),
        win.TumblingWindower("1h", grace=FOREVER),
        win.TumblingWindower(FOREVER, closed="right", grace=FOREVER),
        win.SlidingWindower("1h", FOREVER, align_to=NOON),
        win.SessionWindower(FOREVER, grace=FOREVER),
        win.SessionWindower("10s", grace=FOREVER),
        win.CalendarWindower("day", "Europe/Paris", grace=FOREVER),
    ],
    ids=str,
)
def test_a_window_that_no_watermark_closes_closes_at_the_end(windower: Any, ordered: bool) -> None:
    # NOON  LATER                                                    end
    out, _ = collect(windower, [NOON, LATER], ordered=ordered)
    assert window_values(out) == [[NOON, LATER]]
    assert len(out["closed"]["k"]) == 1


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("right", [True, False])
def test_event_sliding_windows_may_be_as_long_as_time(ordered: bool, right: bool) -> None:
    windower = win.EventSlidingWindower(FOREVER, right, grace=FOREVER)
    out, _ = collect(windower, [NOON, LATER], ordered=ordered)
    # What begins just after NOON holds LATER, as the one that ends at the end of time.
    assert window_values(out) == [[NOON], [NOON, LATER], *([[LATER]] if right else [])]


def test_an_endless_forget_after_keeps_the_key() -> None:
    clock = EventClock(lambda value: value, "0s", forget_after=FOREVER)
    out, driver = collect(win.TumblingWindower("1s"), [NOON, LATER], clock)
    assert window_values(out) == [[NOON], [LATER]]
    assert driver.stats.gauges["w", "keys"] == 1


@pytest.mark.parametrize("windower", ["tumbling", "sliding", "tumbling right"])
def test_windows_before_align_to(windower: str) -> None:
    # -1h        align_to      +1h
    #  |    t     |
    cls = win.SlidingWindower if windower == "sliding" else win.TumblingWindower
    options: dict[str, Any] = {"offset": "1h"} if windower == "sliding" else {}
    if windower == "tumbling right":
        options["closed"] = "right"
    before = NOON - timedelta(minutes=30)
    out, _ = collect(cls(length="1h", align_to=NOON, **options), [before])
    (metadata, _) = out["down"]["k"][0]
    assert (metadata.window_id, metadata.open_time) == (-1, NOON - timedelta(hours=1))
    assert metadata.close_time == NOON


FUTURE = datetime(2400, 1, 1, tzinfo=UTC)


def test_a_value_from_the_year_2400_is_refused_without_effect() -> None:
    # system time: NOON.  NOON  2400!  NOON+10s
    clock = EventClock(lambda value: value, "5s", max_ahead="1d")
    out, driver = collect(win.TumblingWindower("1h"), [NOON, FUTURE, LATER], clock)
    assert window_values(out) == [[NOON, LATER]]
    (late,) = out["late"]["k"]
    assert (late.value, late.reason, late.window) == (FUTURE, LateReason.TOO_FAR_AHEAD, None)
    assert (late.watermark, late.late_by) == (NOON - timedelta(seconds=5), timedelta(0))
    assert driver.stats.counts["w", "too_far_ahead"] == 1


def test_a_value_from_the_year_2400_without_max_ahead_makes_later_values_late() -> None:
    clock = EventClock(lambda value: value, "5s")
    out, _ = collect(win.TumblingWindower("1h"), [NOON, FUTURE, LATER], clock)
    assert window_values(out) == [[NOON], [FUTURE]]
    (late,) = out["late"]["k"]
    assert (late.value, late.watermark) == (LATER, FUTURE - timedelta(seconds=5))
    assert late.late_by == FUTURE - timedelta(seconds=5) - LATER


def test_a_value_exactly_max_ahead_is_accepted() -> None:
    clock = EventClock(lambda value: value, "0s", max_ahead="10s")
    microsecond = timedelta(microseconds=1)
    out, _ = collect(win.CountWindower(1), [LATER, LATER + microsecond], clock)
    assert window_values(out) == [[LATER]]
    assert [late.value for late in out["late"]["k"]] == [LATER + microsecond]


def test_a_refused_first_value_leaves_no_state() -> None:
    clock = EventClock(lambda value: value, "0s", max_ahead="1d")
    out, driver = collect(win.TumblingWindower("1h"), [FUTURE], clock)
    assert [late.watermark for late in out["late"]["k"]] == [None]
    assert driver.stats.gauges["w", "keys"] == 0
