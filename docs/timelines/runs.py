"""Running values through a windowing step, to see what comes out of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.dataflow import KeyedStream
from flow.durations import duration_us
from flow.instants import Moment
from flow.testing import TestDriver, TestingSink, TestingSource

KEY = "k"


class Value(NamedTuple):
    """A value.

    Attributes:
        label: what it is called in the picture.
        at: its timestamp, in seconds since the Unix epoch.
    """

    label: str
    at: float


class Window(NamedTuple):
    """A window that has closed.

    Attributes:
        open: when it opens, in seconds since the Unix epoch.
        close: when it closes.
        values: what it holds.
        holds_open: whether a value at `open` is in it.
        holds_close: whether a value at `close` is in it.
    """

    open: float
    close: float
    values: tuple[Value, ...]
    holds_open: bool
    holds_close: bool


class Late(NamedTuple):
    """A late value.

    Attributes:
        value: the value.
        missed: the bounds (open, close) of each window that the value missed.
        reason: why the value missed them.
    """

    value: Value
    missed: tuple[tuple[float, float], ...]
    reason: str


@dataclass(frozen=True)
class Run:
    """The windows and late values of a run.

    Attributes:
        values: the values, in order of arrival.
        windows: the windows, in order of time.
        late: the late values.
        watermarks: the watermark after each value, in seconds since the Unix epoch.
    """

    values: tuple[Value, ...]
    windows: tuple[Window, ...]
    late: tuple[Late, ...]
    watermarks: tuple[float, ...]

    def is_late(self, value: Value) -> bool:
        """Return True if a value entered no window."""
        held = any(value in window.values for window in self.windows)
        return not held and any(late.value == value for late in self.late)


def run(values: Sequence[Value], windower: win.Windower[Any], wait: timedelta | str = "0s") -> Run:
    """Send values one by one, as one key, while system time stands still; then end the input."""
    clock = win.EventClock(_time_of, wait)
    down, late = _outputs(values, clock, windower)
    windows = sorted(down, key=lambda item: item[0])
    logic = clock.build(None)
    watermarks = [logic.on_item(value, Moment(0)).watermark_us / 1e6 for value in values]
    return Run(
        tuple(values),
        tuple(_window(meta, held, values, windower) for meta, held in windows),
        tuple(_late(one) for one in late),
        tuple(watermarks),
    )


def _outputs(
    values: Sequence[Value], clock: win.Clock[Any, Any], windower: win.Windower[Any]
) -> tuple[list[tuple[win.WindowMetadata, list[Value]]], list[win.LateValue[Value]]]:
    flow = Dataflow("timeline")
    stream: KeyedStream[Value] = op.input("in", flow, TestingSource([]))
    out = win.collect_window("windows", stream, clock, windower)
    op.output("down", out.down, TestingSink([]))
    op.output("late", out.late, TestingSink([]))
    with TestDriver(flow) as driver:
        for value in values:
            driver.send("in", [(KEY, value)])
        driver.end()
        down = [item for _, item in driver.received("down")]
        return down, [late for _, late in driver.received("late")]


def run_dedup(values: Sequence[Value], ttl: str, wait: str) -> Run:
    """Send values with one id through `dedup`, as one key, while system time stands still.

    A window stands for the time in which repeats of a value that passed are dropped; it begins with
    that value.
    """
    clock = win.EventClock(_time_of, wait)
    flow = Dataflow("timeline")
    stream: KeyedStream[Value] = op.input("in", flow, TestingSource([]))
    out = win.dedup("once", stream, clock, _no_id, ttl=ttl)
    for name, down in out._asdict().items():
        op.output(name, down, TestingSink([]))
    with TestDriver(flow) as driver:
        for value in values:
            driver.send("in", [(KEY, value)])
        passed, repeats = (
            [one for _, one in driver.received(name)] for name in ("down", "duplicates")
        )
        late = [_late(one) for _, one in driver.received("late")]
    length, logic = duration_us(ttl) / 1e6, clock.build(None)
    windows = [
        Window(
            one.at,
            one.at + length,
            (one, *(other for other in repeats if one.at <= other.at < one.at + length)),
            holds_open=True,
            holds_close=False,
        )
        for one in passed
    ]
    watermarks = [logic.on_item(value, Moment(0)).watermark_us / 1e6 for value in values]
    return Run(tuple(values), tuple(windows), tuple(late), tuple(watermarks))


def _no_id(_: Value) -> None:
    """Return the same id for all values."""


def _window(
    meta: win.WindowMetadata, held: list[Value], values: Sequence[Value], windower: Any
) -> Window:
    opened, closed = _seconds(meta)
    holds = [_holds(at, (opened, closed), held, values, windower) for at in (opened, closed)]
    return Window(opened, closed, tuple(held), *holds)


def _holds(
    at: float,
    bounds: tuple[float, float],
    held: list[Value],
    values: Sequence[Value],
    windower: win.Windower[Any],
) -> bool:
    """Return True if a window contains the timestamp `at`."""
    if any(value.at == at for value in held):
        return True
    probe = Value("?", at)
    down, _ = _outputs([probe, *values], win.EventClock(_time_of, timedelta.max), windower)
    return any(_seconds(meta) == bounds and probe in found for meta, found in down)


def _late(late: win.LateValue[Value]) -> Late:
    return Late(late.value, tuple(map(_seconds, late.windows)), late.reason.value)


def _seconds(meta: win.WindowMetadata) -> tuple[float, float]:
    return meta.open_time.timestamp(), meta.close_time.timestamp()


def _time_of(value: Value) -> float:
    return value.at


class Arrival(NamedTuple):
    """A value and when it arrives.

    Attributes:
        now: the system time at which it arrives, in seconds since the Unix epoch.
        value: the value.
        late: whether it was late.
    """

    now: float
    value: Value
    late: bool = False


@dataclass(frozen=True)
class ClockRun:
    """The watermark of a clock over some arrivals.

    Attributes:
        arrivals: the arrivals.
        watermark: system time and watermark, where the line between them bends.
    """

    arrivals: tuple[Arrival, ...]
    watermark: tuple[tuple[float, float], ...]


def run_clock(
    clock: win.EventClock[Value],
    arrivals: Sequence[Arrival],
    until: float,
    down: tuple[float, float] | None = None,
) -> ClockRun:
    """Send values, as one key, each at its system time.

    Args:
        clock: the clock.
        arrivals: the values, in order.
        until: the system time at which to end.
        down: from when to when the flow is not running.
    """
    late = _late_at(clock, arrivals, down)
    seen = tuple(arrival._replace(late=arrival.value in late) for arrival in arrivals)
    return ClockRun(seen, tuple(_watermarks(clock, arrivals, until, down)))


def _late_at(
    clock: win.EventClock[Value], arrivals: Sequence[Arrival], down: tuple[float, float] | None
) -> set[Value]:
    flow = Dataflow("clock")
    stream: KeyedStream[Value] = op.input("in", flow, TestingSource([]))
    out = win.collect_window("windows", stream, clock, win.TumblingWindower("1h"))
    op.output("late", out.late, TestingSink([]))
    now = arrivals[0].now
    with TestDriver(flow, now=now) as driver:
        for arrival in arrivals:
            if down is not None and now <= down[0] < arrival.now:
                driver.advance(timedelta(seconds=down[0] - now))
                driver.restart(after=timedelta(seconds=down[1] - down[0]))
                now = down[1]
            driver.advance(timedelta(seconds=arrival.now - now))
            now = arrival.now
            driver.send("in", [(KEY, arrival.value)])
        return {late.value for _, late in driver.received("late")}


def _watermarks(
    clock: win.EventClock[Value],
    arrivals: Sequence[Arrival],
    until: float,
    down: tuple[float, float] | None,
) -> Iterator[tuple[float, float]]:
    logic = clock.build(None)
    bends = {until, *(down or ()), *(arrival.now for arrival in arrivals)}
    for now in sorted(bends):
        lost = max(0.0, min(now, down[1]) - down[0]) if down else 0.0
        moment = Moment(round(now * 1e6), round(lost * 1e6))
        if now > arrivals[0].now:
            yield now, logic.watermark(moment) / 1e6
        for arrival in arrivals:
            if arrival.now == now:
                yield now, logic.on_item(arrival.value, moment).watermark_us / 1e6
        logic.settle(moment)


def run_slow_epoch(
    clock: win.EventClock[Value],
    arrivals: Sequence[Arrival],
    epoch: tuple[float, float],
    until: float,
    *,
    waited: bool,
) -> ClockRun:
    """Send values, as one key; those that arrive while an epoch runs are read as it ends.

    Args:
        clock: the clock.
        arrivals: the values, in order.
        epoch: from when to when an epoch runs that reads nothing of the key.
        until: the system time at which to end.
        waited: True if the clock knows that the values waited while the epoch ran; False if it
            takes the time of the epoch for time without values.
    """
    start, end = epoch
    read = [one._replace(now=end) if start < one.now <= end else one for one in arrivals]
    late = _late_after(clock, read, epoch, waited)
    logic = clock.build(None)
    watermark: list[tuple[float, float]] = []
    for now in sorted({start, end, until, *(one.now for one in read)}):
        moment = Moment(round(now * 1e6))
        if waited and now == end:
            moment = replace(moment, start=replace(moment, read_us=round(start * 1e6)))
        if now > read[0].now:
            watermark.append((now, logic.watermark(moment.before) / 1e6))
        for one in read:
            if one.now == now:
                reached = logic.on_item(one.value, moment.before).watermark_us
                watermark.append((now, reached / 1e6))
        logic.settle(moment)
        if now == end:
            watermark.append((now, logic.watermark(moment) / 1e6))
    seen = tuple(one._replace(late=one.value in late) for one in read)
    return ClockRun(seen, tuple(watermark))


def _late_after(
    clock: win.EventClock[Value],
    read: Sequence[Arrival],
    epoch: tuple[float, float],
    waited: bool,
) -> set[Value]:
    flow = Dataflow("slow")
    stream: KeyedStream[Value] = op.input("in", flow, TestingSource([]))
    out = win.collect_window("windows", stream, clock, win.TumblingWindower("1h"))
    op.output("late", out.late, TestingSink([]))
    start, end = epoch
    with TestDriver(flow, now=read[0].now) as driver:
        now = read[0].now
        for at in sorted({start, end, *(one.now for one in read)}):
            passed = timedelta(seconds=at - now)
            items = [(KEY, one.value) for one in read if one.now == at]
            if waited and at == end:
                driver.send("in", items, after=passed)
            else:
                driver.advance(passed)
                driver.send("in", items)
            now = at
        return {late.value for _, late in driver.received("late")}
