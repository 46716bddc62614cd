"""Clocks and windowers written with datetimes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, StepError
from flow.testing import TestDriver, TestingSink, TestingSource

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Behind(win.Clock[Any, datetime]):
    """The watermark follows the greatest timestamp and system time, five minutes behind both."""

    naive: bool = False

    def build(self, state: datetime | None) -> BehindLogic:
        return BehindLogic(self, state)


class BehindLogic(win.DatetimeClockLogic[Any, datetime]):
    WAIT = timedelta(minutes=5)

    def __init__(self, clock: Behind, greatest: datetime | None) -> None:
        self.clock = clock
        self.greatest = greatest

    def on_value(self, value: Any, now: datetime) -> tuple[datetime, datetime | None]:
        timestamp = NOON + value * MINUTE
        self.greatest = max(self.greatest or timestamp, timestamp)
        if self.clock.naive:
            timestamp = timestamp.replace(tzinfo=None)
        return timestamp, self.watermark_at(now)

    def watermark_at(self, now: datetime) -> datetime | None:
        return max(self.greatest, now) - self.WAIT if self.greatest else None

    def due_at(self, watermark: datetime, now: datetime) -> datetime | None:
        return watermark + self.WAIT

    def snapshot(self) -> datetime | None:
        return self.greatest


class Quarters(win.DatetimeWindower):
    """Windows of a quarter of an hour, every ten minutes: some of them overlap."""

    def windows_at(self, timestamp: datetime) -> Iterable[tuple[datetime, datetime]]:
        last = timestamp.replace(minute=timestamp.minute // 10 * 10, second=0, microsecond=0)
        for opens in (last - 10 * MINUTE, last):
            if timestamp < opens + 15 * MINUTE:
                yield opens, opens + 15 * MINUTE


class QuartersWithGrace(Quarters):
    grace = "5m"


class Wrong(win.DatetimeWindower):
    def windows_at(self, timestamp: datetime) -> Iterable[tuple[datetime, datetime]]:
        return [(timestamp + MINUTE, timestamp + 2 * MINUTE)]


class Ambiguous(win.DatetimeWindower):
    def windows_at(self, timestamp: datetime) -> Iterable[tuple[datetime, datetime]]:
        return [(NOON, timestamp + MINUTE)]


class Mornings(win.DatetimeWindower):
    def windows_at(self, timestamp: datetime) -> Iterable[tuple[datetime, datetime]]:
        midnight = timestamp.replace(hour=0, minute=0)
        return [(midnight, midnight + timedelta(hours=12))] if timestamp.hour < 12 else []


def driver(
    windower: win.Windower[Any], clock: win.Clock[Any, Any] | None = None, **options: Any
) -> TestDriver:
    graph = Dataflow("datetimes")
    up = op.input("in", graph, TestingSource([]))
    keyed = op.key_on("key", up, lambda _: "k")
    out = win.collect_window("w", keyed, clock or Behind(), windower, **options)
    op.output("down", out.down, TestingSink([]))
    op.output("late", out.late, TestingSink([]))
    return TestDriver(graph, now=NOON)


def bounds(window: win.WindowMetadata) -> tuple[int, int]:
    """Return the open and the close time of a window, in minutes since noon."""
    return (window.open_time - NOON) // MINUTE, (window.close_time - NOON) // MINUTE


def windows(items: list[Any]) -> list[tuple[int, int, list[int]]]:
    """Return the bounds of each window, and its values."""
    return [(*bounds(window), values) for _, (window, values) in items]


def test_windows_have_the_bounds_that_the_windower_returns() -> None:
    t = driver(Quarters())
    t.send("in", [4, 1, 11, 17, 28])
    t.end()
    assert windows(t.take("down")) == [
        (-10, 5, [1, 4]),
        (0, 15, [1, 4, 11]),
        (10, 25, [11, 17]),
        (20, 35, [28]),
    ]


def test_a_window_closes_when_system_time_advances_the_watermark_to_its_close() -> None:
    t = driver(Quarters())
    t.send("in", [3])
    t.advance("9m59s")
    assert windows(t.take("down")) == []
    t.advance("1s")
    assert windows(t.take("down")) == [(-10, 5, [3])]
    t.advance("10m")
    assert windows(t.take("down")) == [(0, 15, [3])]


def test_open_windows_and_the_clock_are_restored() -> None:
    t = driver(Quarters())
    t.send("in", [3])
    t.restart()
    t.send("in", [12])
    t.end()
    assert windows(t.take("down")) == [(-10, 5, [3]), (0, 15, [3, 12]), (10, 25, [12])]


def test_a_value_behind_the_watermark_is_late() -> None:
    t = driver(Quarters())
    t.send("in", [20, 14])
    [(_, late)] = t.take("late")
    assert (late.value, late.timestamp, late.watermark) == (
        14,
        NOON + 14 * MINUTE,
        NOON + 15 * MINUTE,
    )


def test_with_grace_a_value_is_late_for_closed_windows_alone() -> None:
    t = driver(QuartersWithGrace(), ordered=False)
    t.send("in", [26, 13, 4])
    t.end()
    assert windows(t.take("down")) == [(10, 25, [13]), (20, 35, [26])]
    late = [
        (value.value, [bounds(window) for window in value.windows]) for _, value in t.take("late")
    ]
    assert late == [(13, [(0, 15)]), (4, [(-10, 5), (0, 15)])]


def test_a_value_without_a_window_is_in_a_gap() -> None:
    t = driver(Mornings(), ordered=False)
    t.send("in", [0, -1])
    [(_, late)] = t.take("late")
    assert late.reason is win.LateReason.GAP
    t.end()
    assert windows(t.take("down")) == [(-720, 0, [-1])]


@pytest.mark.parametrize(
    ("windower", "values", "message"),
    [
        (
            Wrong(),
            [0],
            r"step 'w': .*Wrong: windows_at\(2024-05-01T12:00:00\+00:00\) returned "
            r"\[2024-05-01T12:01:00\+00:00, 2024-05-01T12:02:00\+00:00\), which does not hold it",
        ),
        (Ambiguous(), [0, 1], "a window until .* that opens at the same time as the one until"),
    ],
    ids=["outside", "ambiguous"],
)
def test_windows_that_break_the_contract_are_named(
    windower: win.Windower[Any], values: list[int], message: str
) -> None:
    with pytest.raises(StepError, match=message):
        driver(windower, ordered=False).send("in", values)


def test_a_naive_timestamp_is_refused() -> None:
    with pytest.raises(StepError, match=r"step 'w': .*naive"):
        driver(Quarters(), Behind(naive=True)).send("in", [0])
