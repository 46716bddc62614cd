"""Costs of windowing, in counted work instead of time."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
import flow_windowing.join_logic
import flow_windowing.rules.key_state
from flow.instants import Moment
from flow.testing import TestDriver
from flow_windowing import EventClock, TumblingWindower
from flow_windowing.windowers.aligned import AlignedLogic
from tests.support.segments import count_segments
from tests.support.windowed_flows import OneKey, collecting, windowed_flow

SECOND = 1_000_000
ENDLESS = EventClock(lambda second: second, "100000000d")


@pytest.fixture
def values_pickled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the values that the wait queue writes and reads."""
    counted = Counter[str]()

    def dumps(values: list[Any], protocol: int) -> bytes:
        counted["written"] += len(values)
        return pickle.dumps(values, protocol)

    def loads(content: bytes) -> Any:
        values = pickle.loads(content)
        counted["read"] += len(values)
        return values

    monkeypatch.setattr(
        flow_windowing.rules.key_state, "pickle", SimpleNamespace(dumps=dumps, loads=loads)
    )
    return counted


def scattered(count: int) -> list[int]:
    """Numbers up to `count`, each once, far from in order."""
    return [number * 7919 % count for number in range(count)]


def waiting(values: int, epoch: int) -> OneKey:
    """A key of which so many values wait, that came so many in an epoch."""
    one = OneKey(collecting(ENDLESS, TumblingWindower("1000s"), ordered=True), rebuilt=True)
    seconds = scattered(values)
    for start in range(0, values, epoch):
        one.epoch(seconds[start : start + epoch], Moment(0))
    return one


@pytest.mark.parametrize("count", [10_000, 40_000])
def test_buffering_is_not_quadratic_in_the_number_of_values(
    count: int, values_pickled: Counter[str]
) -> None:
    waiting(count, 500)
    # Runs of 500 double when they are merged: that often is a value written, and read for it.
    doublings = math.log2(count / 500) + 1
    assert values_pickled.total() <= 2 * count * doublings


def test_values_of_one_epoch_are_written_once(values_pickled: Counter[str]) -> None:
    waiting(40_000, 40_000)
    assert values_pickled == {"written": 40_000}


def test_values_released_together_are_read_once(values_pickled: Counter[str]) -> None:
    one = waiting(10_000, 500)
    values_pickled.clear()
    one.epoch((), Moment(0), end=True)
    released = [second for _, held in one.heard.down for second in held]
    assert released == list(range(10_000))
    assert values_pickled["read"] <= 10_000
    assert values_pickled["written"] == 0


def test_a_small_advance_of_the_watermark_reads_few_values(values_pickled: Counter[str]) -> None:
    # 10 000 values a second apart; system time lets 10 of them enter in each of 20 epochs
    clock = EventClock(lambda second: second, "10000s")
    one = OneKey(collecting(clock, TumblingWindower("100000s"), ordered=True), rebuilt=True)
    one.epoch(scattered(10_000), Moment(0))
    values_pickled.clear()
    for number in range(1, 21):
        one.epoch((), Moment(number * 10 * SECOND))
    assert values_pickled.total() <= 20 * 1024


@pytest.fixture
def segments(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the segments of state that are read and written."""
    return count_segments(monkeypatch)


def hourly(wait: str = "5s", ordered: bool = True) -> Any:
    clock = EventClock(lambda second: second, wait)
    return windowed_flow(
        lambda up: win.collect_window("w", up, clock, TumblingWindower("1h"), list, ordered)
    )


OF_SECONDS = EventClock(lambda second: second, "9000s")
STEPS = {
    "windows": lambda up: win.collect_window("w", up, OF_SECONDS, TumblingWindower("1h"), list),
    "interval join": lambda up: win.join_interval("w", up, up, OF_SECONDS, "5s", "5s"),
    "as-of join": lambda up: win.join_asof("w", up, up, OF_SECONDS, None),
}


@pytest.mark.parametrize("idle", [100, 10_000])
@pytest.mark.parametrize("step", STEPS)
def test_the_cost_of_an_epoch_depends_on_its_keys_only(
    step: str, idle: int, segments: Counter[str]
) -> None:
    # idle keys each hold a value, which leaves in more than two hours
    with TestDriver(windowed_flow(STEPS[step]), shards=1) as t:
        t.send("in", [(f"key {number}", 1) for number in range(idle)])
        segments.clear()
        t.advance("1s")
        t.send("in", [])
        assert segments == {}
        t.send("in", [("key 7", 2)])
        assert segments == {"read": 1, "written": 1}


def test_a_buffered_value_costs_nothing_until_its_release(segments: Counter[str]) -> None:
    # 5 waits for 30 s; an epoch a second does nothing at all until then
    with TestDriver(hourly("30s"), shards=1) as t:
        t.send("in", [("k", 5)])
        due_us = t.stats.due_us
        segments.clear()
        for _ in range(29):
            t.advance("1s")
            assert t.stats.due_us == due_us
        assert segments == {}
        t.advance("1s")
        assert segments == {"read": 1, "written": 1}


def test_a_due_key_does_not_read_the_state_of_others(segments: Counter[str]) -> None:
    # 5 000 keys wait for an hour and more, one is due in 10 s
    with TestDriver(hourly("1h"), shards=1) as t:
        t.send("in", [(f"key {number}", 5_000) for number in range(5_000)])
        t.send("in", [("due", 5_000), ("due", 1_410)])
        segments.clear()
        t.advance("10s")
        assert segments == {"read": 1, "written": 1}
        assert t.stats.gauges["w", "keys"] == 5_001


def test_closing_a_window_does_not_scan_open_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 2 000 windows are open at any time, and each value closes one
    calls = 0
    closed_at_us = AlignedLogic.closed_at_us

    def counting(self: AlignedLogic, window_id: int) -> int:
        nonlocal calls
        calls += 1
        return closed_at_us(self, window_id)

    monkeypatch.setattr(AlignedLogic, "closed_at_us", counting)
    clock = EventClock(lambda second: second, "2000s")
    one = OneKey(collecting(clock, TumblingWindower("1s"), ordered=False))
    one.epoch(range(6_000), Moment(0))
    # a value's own window, the next to close, and a search among 2 000
    assert calls <= 6_000 * 20
    assert len(one.heard.closed) == 4_000 - 1


def test_one_more_value_of_a_product_costs_little_more_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0
    order_of = flow_windowing.join_logic._order_of

    def counting(entry: Any) -> Any:
        nonlocal looked_at
        looked_at += 1
        return order_of(entry)

    monkeypatch.setattr(flow_windowing.join_logic, "_order_of", counting)

    def joined(up: Any) -> Any:
        none = op.filter_value("none", up, lambda _: False)
        hour = TumblingWindower("1h")
        return win.join_window(
            "w",
            up,
            none,
            clock=ENDLESS,
            windower=hour,
            insert_mode="product",
            emit_mode="complete",
        )

    with TestDriver(windowed_flow(joined)) as t:
        t.send("in", [("k", second) for second in range(2000)])
        t.end()
    assert looked_at < 2000 * 30
