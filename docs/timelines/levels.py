"""The picture of two levels: the open windows of a step, and the watermark of its reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.dataflow import KeyedStream
from flow.testing import TestDriver, TestingSink, TestingSource
from timelines.chart import ROW, TOP, WIDTH, Axis
from timelines.svg import STYLE, Drawing

SITE = "site"
OPEN = ".open { fill: #ffffff; stroke: #0550ae; stroke-width: 1.5; stroke-dasharray: 5 3; }"


class Session(NamedTuple):
    """A session of a key.

    Attributes:
        open: the timestamp of its first value, in seconds since the Unix epoch.
        close: the timestamp of its last value so far.
        is_open: True if it has not closed.
    """

    open: float
    close: float
    is_open: bool


@dataclass(frozen=True)
class LevelsRun:
    """Sessions of several keys, and the windows of all sessions by their open times.

    Attributes:
        values: the timestamps of the values of each key.
        sessions: the sessions of each key, in order of time.
        hours: the bounds of the open windows of the reader.
        watermark: the watermark of the reader.
        unheld: the watermark of a reader that takes no holds.
    """

    values: Mapping[str, Sequence[float]]
    sessions: Mapping[str, tuple[Session, ...]]
    hours: tuple[tuple[float, float], ...]
    watermark: float
    unheld: float

    @property
    def hold(self) -> float:
        """The hold of the sessions: the least open time of an open session."""
        return min(one.open for some in self.sessions.values() for one in some if one.is_open)


def run_levels(values: Mapping[str, Sequence[float]], gap: str, length: str) -> LevelsRun:
    """Send values in order of time through sessions, and the sessions through tumbling windows."""
    arrivals = sorted((at, key) for key, some in values.items() for at in some)
    items = [(key, at) for at, key in arrivals]
    with (
        TestDriver(_flow(gap, length, "hold")) as held,
        TestDriver(_flow(gap, length, "ignore")) as unheld,
    ):
        for driver in (held, unheld):
            driver.send("in", items)
        sessions = {key: _sessions(held, key) for key in values}
        windows = sorted(held.state("hours", SITE)["windows"])
        hours = tuple((one.open_time.timestamp(), one.close_time.timestamp()) for one in windows)
        return LevelsRun(values, sessions, hours, _watermark(held), _watermark(unheld))


def _flow(gap: str, length: str, upstream: Literal["hold", "ignore"]) -> Dataflow:
    flow = Dataflow("levels")
    stream: KeyedStream[float] = op.input("in", flow, TestingSource([]))
    clock = win.EventClock[float](lambda at: at, "0s")
    visits = win.aggregate_window(
        "sessions", stream, clock, win.SessionWindower(gap), n=win.Count()
    )
    op.output("visits", visits.down, TestingSink([]))
    of_site = op.map("of_site", visits.down, lambda item: (SITE, item[1][0]))
    opened = win.EventClock[win.WindowMetadata](
        lambda visit: visit.open_time, "0s", upstream=upstream
    )
    hours = win.aggregate_window(
        "hours", of_site, opened, win.TumblingWindower(length), n=win.Count()
    )
    op.output("down", hours.down, TestingSink([]))
    return flow


def _sessions(driver: TestDriver, key: str) -> tuple[Session, ...]:
    closed = [window for of, (window, _) in driver.received("visits") if of == key]
    windows = {False: closed, True: driver.state("sessions", key)["windows"]}
    return tuple(
        Session(one.open_time.timestamp(), one.close_time.timestamp(), is_open)
        for is_open, some in windows.items()
        for one in sorted(some)
    )


def _watermark(driver: TestDriver) -> float:
    watermark = driver.watermark("hours", SITE)
    return float("-inf") if watermark is None else watermark.timestamp()


def draw_levels(title: str, description: str, axis: Axis, run: LevelsRun) -> str:
    """Draw the sessions of each key, and below them the windows and the watermark of the reader."""
    drawing = Drawing(title, description, f"{STYLE}\n{OPEN}")
    below = TOP + ROW * (1 + len(run.sessions))
    bottom = below + ROW * (2 + len(run.hours)) + 8
    for mark in axis.marks():
        drawing.line(axis.x(mark), TOP, axis.x(mark), bottom, "grid")
        drawing.text(axis.x(mark), bottom + 14, axis.label(mark), "dim", "middle")
    drawing.text(WIDTH - 14, bottom + 14, axis.unit, "dim", "end")
    drawing.text(14, TOP + ROW / 2, "visits", "code")
    for row, (key, sessions) in enumerate(run.sessions.items()):
        y = TOP + ROW * (row + 1.5)
        drawing.text(14, y, key, "dim")
        for session in sessions:
            _draw_session(drawing, axis, session, run.values[key], y)
    drawing.text(14, below + ROW / 2, "hourly", "code")
    drawing.text(14, below + ROW * 1.5, SITE, "dim")
    for row, hour in enumerate(run.hours):
        _draw_hour(drawing, axis, hour, run, below + ROW * (row + 1.5))
    _draw_times(drawing, axis, run, below + ROW / 2, bottom)
    return drawing.svg(WIDTH, bottom + 34)


def _draw_session(
    drawing: Drawing, axis: Axis, session: Session, values: Sequence[float], y: float
) -> None:
    left, right = axis.x(session.open) - 6, axis.x(session.close) + 6
    drawing.rect(left, y - 8, right - left, 16, "open" if session.is_open else "window")
    for at in values:
        if session.open <= at <= session.close:
            drawing.circle(axis.x(at), y, 4, "value")


def _draw_hour(
    drawing: Drawing, axis: Axis, hour: tuple[float, float], run: LevelsRun, y: float
) -> None:
    left, right = axis.within(hour[0]), axis.within(hour[1])
    drawing.rect(left, y - 8, right - left, 16, "open")
    for sessions in run.sessions.values():
        for one in sessions:
            if not one.is_open and hour[0] <= one.open < hour[1]:
                drawing.circle(axis.x(one.open), y, 4, "value")


def _draw_times(drawing: Drawing, axis: Axis, run: LevelsRun, middle: float, bottom: float) -> None:
    """Draw the hold above the middle, and below it the watermarks of both readers."""
    hold, watermark, unheld = axis.x(run.hold), axis.x(run.watermark), axis.x(run.unheld)
    drawing.line(hold, TOP, hold, middle, "watermark")
    drawing.text(hold + 6, TOP + ROW / 2, "hold", "watermark-name")
    drawing.line(watermark, middle, watermark, bottom, "watermark")
    drawing.text(watermark - 6, bottom - ROW / 2, "watermark", "watermark-name", "end")
    drawing.line(unheld, middle, unheld, bottom, "watermark held")
    drawing.text(unheld + 6, bottom - ROW / 2, "without the hold", "watermark-name")
