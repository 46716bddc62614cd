"""The ends of time: the first and last datetime, endless durations, before 1970 and `align_to`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow_windowing as win
from flow.instants import EPOCH, MAX_US, MIN_US, NEVER
from flow.testing import TestDriver
from flow_windowing import EventClock
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


@given(st.integers(MIN_US, MAX_US), st.integers(1, 10**15), st.integers(-(10**15), 10**15))
def test_every_timestamp_lies_in_exactly_one_tumbling_window(
    timestamp: int, length: int, align: int
) -> None:
    windower = win.TumblingWindower(
        timedelta(microseconds=length), EPOCH + timedelta(microseconds=align)
    )
    (number,) = windower.build(None).open_for(timestamp, -NEVER).ids
    open_us = align + number * length
    assert open_us <= timestamp < open_us + length
