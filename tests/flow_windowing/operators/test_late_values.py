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
from flow_windowing import EventClock, LateReason, SlidingWindower, TumblingWindower

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
def test_a_late_value_leaves_once_with_all_its_windows_in_order_of_opening() -> None:
    #  95 |---------| 105               103 is behind the watermark, 106: late for both
    #      100 |---------| 110
    #  100 106 103
    with TestDriver(summed(SlidingWindower("10s", "5s")), now=START) as t:
        t.send("in", [("k", 100), ("k", 106), ("k", 103)])
        assert late_values(t) == [("k", 103, [19, 20], LateReason.LATE)]
        (_, late) = t.received("late")[0]
        assert [window.open_time.timestamp() for window in late.windows] == [95, 100]
        assert [window.close_time.timestamp() for window in late.windows] == [105, 110]
        assert late.window == late.windows[0]
        assert t.stats.counts["w", "late"] == 1


@pytest.mark.usefixtures("path")
def test_with_a_grace_a_late_value_names_the_windows_that_have_closed_and_enters_the_others() -> (
    None
):
    #  94 |-----------| 106             the watermark, 111, has closed windows 94 and 97
    #    97 |-----------| 109
    #      100 |-----------| 112        105 enters windows 100 and 103
    #        103 |-----------| 115
    windower = SlidingWindower("12s", "3s", START.replace(second=1), grace="0s")
    with TestDriver(summed(windower), now=START) as t:
        t.send("in", [("k", 111), ("k", 105)])
        assert late_values(t) == [("k", 105, [31, 32], LateReason.LATE)]
        t.end()
        sums = {window.window_id: total for _, (window, total) in t.received("down")}
        assert sums == {33: 216, 34: 216, 35: 111, 36: 111}
        assert t.stats.counts["w", "late"] == 1


@pytest.mark.usefixtures("path")
def test_late_values_that_nothing_reads_are_counted_once_each() -> None:
    with TestDriver(summed(SlidingWindower("10s", "1s"), reads_late=False), now=START) as t:
        t.send("in", [("k", 100), ("k", 50), ("k", 60)])
        assert t.stats.counts["w", "late"] == 2


@pytest.mark.usefixtures("path")
def test_late_values_of_several_keys_name_their_own_windows() -> None:
    with TestDriver(summed(SlidingWindower("10s", "5s")), now=START) as t:
        t.send("in", [("a", 100), ("b", 50), ("b", 33), ("a", 33), ("a", 90), ("b", 48)])
        late = LateReason.LATE
        assert sorted(late_values(t)) == [
            ("a", 33, [5, 6], late),
            ("a", 90, [17, 18], late),
            ("b", 33, [5, 6], late),
            ("b", 48, [8, 9], late),
        ]


@pytest.mark.usefixtures("path")
def test_a_value_in_a_gap_names_no_window() -> None:
    with TestDriver(summed(SlidingWindower("5s", "10s", grace="0s")), now=START) as t:
        t.send("in", [("k", 7), ("k", 22), ("k", 8), ("k", 3)])
        (first, second, third) = t.received("late")
        assert late_values(t) == [
            ("k", 7, [], LateReason.GAP),
            ("k", 8, [], LateReason.GAP),
            ("k", 3, [0], LateReason.LATE),
        ]
        assert (first[1].window, second[1].window) == (None, None)
        assert third[1].window.window_id == 0


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


def test_a_value_that_is_late_for_its_only_window_names_that() -> None:
    with TestDriver(summed(TumblingWindower("10s")), now=START) as t:
        t.send("in", [("k", 100), ("k", 12)])
        assert late_values(t) == [("k", 12, [1], LateReason.LATE)]
