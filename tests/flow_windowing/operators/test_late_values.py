"""Late values: emitted once with all missed windows, key by key and over columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key
from flow_windowing import EventClock, LateReason, SlidingWindower

START = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["key by key", "over columns"])
def path(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the test once with a driver for each key, and once over whole columns."""
    with key_by_key() if request.param == "key by key" else nullcontext():
        yield


def summed(windower: win.Windower[Any], *, reads_late: bool = True) -> Dataflow:
    """Sum up values in windows; values are their own time, in seconds."""
    flow = Dataflow("summed")
    stream = op.input("in", flow, TestingSource([]))
    out = win.sum_window("w", stream, EventClock(lambda second: second, "0s"), windower)
    op.output("down", out.down, TestingSink([]))
    if reads_late:
        op.output("late", out.late, TestingSink([]))
    return flow


def late_values(t: TestDriver) -> list[tuple[str, int, list[int], LateReason]]:
    return [
        (key, late.value, [window.window_id for window in late.windows], late.reason)
        for key, late in t.received("late")
    ]


@pytest.mark.usefixtures("path")
def test_late_values_that_nothing_reads_are_counted_once_each() -> None:
    with TestDriver(summed(SlidingWindower("10s", "1s"), reads_late=False), now=START) as t:
        t.send("in", [("k", 100), ("k", 50), ("k", 60)])
        assert t.stats.counts["w", "late"] == 2


class BackwardsLogic(win.IndexedLogic):
    """Windows of ten seconds, one every five, named in the order of closing backwards."""

    def ids_at(self, timestamp_us: int) -> Sequence[int]:
        index = timestamp_us // 5_000_000
        return [index, index - 1]

    def bounds_us(self, window_id: int) -> tuple[int, int]:
        return window_id * 5_000_000, (window_id + 2) * 5_000_000

    def closed_at_us(self, window_id: int) -> int:
        return (window_id + 2) * 5_000_000


class Backwards(win.Windower[Any]):
    """Configuration of `BackwardsLogic`."""

    def build(self, state: Any) -> BackwardsLogic:
        return BackwardsLogic(state)


def test_the_windows_of_a_late_value_are_in_order_of_opening_whatever_the_windower_says() -> None:
    with TestDriver(summed(Backwards()), now=START) as t:
        t.send("in", [("k", 100), ("k", 12)])
        assert late_values(t) == [("k", 12, [1, 2], LateReason.LATE)]
