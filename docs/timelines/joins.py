"""The timeline of a join by time: both sides, and the interval of each left value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource
from timelines.chart import ROW, TOP, WIDTH, Axis
from timelines.runs import KEY, Value
from timelines.svg import Drawing

SIDES = ("left", "right")

Join: TypeAlias = Callable[..., "win.WindowOut[Any, Any]"]
"""A function that adds a join of a left and a right stream with a clock."""


class Interval(NamedTuple):
    """The interval of a left value, as it closes.

    Attributes:
        open: the least timestamp of a partner, in seconds since the Unix epoch.
        close: the greatest timestamp of a partner.
        value: the left value.
        partners: its partners; empty if it left alone.
    """

    open: float
    close: float
    value: Value
    partners: tuple[Value, ...]


@dataclass(frozen=True)
class JoinRun:
    """A run of a join by time.

    Attributes:
        left: the left values.
        right: the right values.
        intervals: the intervals of the left values, in order of leaving.
    """

    left: tuple[Value, ...]
    right: tuple[Value, ...]
    intervals: tuple[Interval, ...]


def run_join(left: Sequence[Value], right: Sequence[Value], join: Join) -> JoinRun:
    """Send values in order of time, as one key, through a join that emits unmatched left values."""
    flow = Dataflow("timeline")
    sides = [op.input(name, flow, TestingSource([])) for name in SIDES]
    clock = win.EventClock[Value](lambda value: value.at, "0s")
    out = join(*sides, clock)
    op.output("down", out.down, TestingSink([]))
    op.output("closed", out.closed, TestingSink([]))
    arrivals = [
        (value.at, side, value)
        for side, some in zip(SIDES, (left, right), strict=True)
        for value in some
    ]
    with TestDriver(flow) as driver:
        for _, side, value in sorted(arrivals):
            driver.send(side, [(KEY, value)])
        driver.end()
        down = [item for _, item in driver.received("down")]
        closed = [window for _, window in driver.received("closed")]
    return JoinRun(tuple(left), tuple(right), tuple(_interval(one, down) for one in closed))


def _interval(window: win.WindowMetadata, down: list[Any]) -> Interval:
    pairs = [pair for other, pair in down if other == window]
    partners = tuple(right for _, right in pairs if right is not None)
    opened, closed = window.open_time.timestamp(), window.close_time.timestamp()
    return Interval(opened, closed, pairs[0][0], partners)


def draw_join(title: str, description: str, axis: Axis, run: JoinRun) -> str:
    """Draw both sides, and below them the interval of each left value with its partners."""
    drawing = Drawing(title, description)
    bottom = TOP + ROW * (2 + len(run.intervals)) + 12
    for mark in axis.marks():
        drawing.line(axis.x(mark), TOP, axis.x(mark), bottom, "grid")
        drawing.text(axis.x(mark), bottom + 14, axis.label(mark), "dim", "middle")
    drawing.text(WIDTH - 14, bottom + 14, axis.unit, "dim", "end")
    y = TOP + ROW / 2
    for name, values in zip(SIDES, (run.left, run.right), strict=True):
        drawing.text(14, y, name, "dim")
        for value in values:
            drawing.circle(axis.x(value.at), y, 9, "value")
            drawing.text(axis.x(value.at), y, value.label, "letter")
        y += ROW
    drawing.text(14, y, "intervals", "dim")
    for interval in run.intervals:
        _draw_interval(drawing, axis, interval, y)
        y += ROW
    return drawing.svg(WIDTH, bottom + 34)


def _draw_interval(drawing: Drawing, axis: Axis, interval: Interval, y: float) -> None:
    left, right = axis.within(interval.open), axis.within(interval.close)
    drawing.rect(left, y - 8, right - left, 16, "window")
    for x in (left, right):
        drawing.line(x, y - 8, x, y + 8, "end")
    for partner in interval.partners:
        drawing.circle(axis.x(partner.at), y, 4, "value")
    pairs = [f"({interval.value.label}, {one.label})" for one in interval.partners]
    drawing.text(right + 10, y, " ".join(pairs) or f"({interval.value.label}, None)", "code")
