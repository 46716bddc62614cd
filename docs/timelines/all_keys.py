"""The timeline of windows over all keys: a row of values for each key, and windows below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.dataflow import KeyedStream
from flow.testing import TestDriver, TestingSink, TestingSource
from timelines.chart import ROW, TOP, WIDTH, Axis
from timelines.runs import Value
from timelines.svg import Drawing


@dataclass(frozen=True)
class RankedRun:
    """A run of `top_n`.

    Attributes:
        values: the values of each key.
        rankings: the open and the close time of each window, in seconds, and its ranking.
    """

    values: Mapping[str, Sequence[Value]]
    rankings: tuple[tuple[float, float, list[tuple[str, int]]], ...]


def run_ranking(
    values: Mapping[str, Sequence[Value]], windower: win.Windower[list[int]], n: int
) -> RankedRun:
    """Send values in order of time through `top_n`, which counts the values of each key."""
    flow = Dataflow("timeline")
    stream: KeyedStream[Value] = op.input("in", flow, TestingSource([]))
    clock = win.EventClock[Value](lambda value: value.at, "0s")
    op.output("down", win.top_n("top", stream, clock, windower, n).down, TestingSink([]))
    arrivals = [(value.at, key, value) for key, some in values.items() for value in some]
    with TestDriver(flow) as driver:
        for _, key, value in sorted(arrivals):
            driver.send("in", [(key, value)])
        driver.end()
        down = [item for _, item in driver.received("down")]
    return RankedRun(
        values,
        tuple((w.open_time.timestamp(), w.close_time.timestamp(), made) for w, made in down),
    )


def draw_ranking(title: str, description: str, axis: Axis, run: RankedRun) -> str:
    """Draw the values of each key, and below them the windows with their rankings."""
    drawing = Drawing(title, description)
    bottom = TOP + ROW * (len(run.values) + len(run.rankings)) + 12
    for mark in axis.marks():
        drawing.line(axis.x(mark), TOP, axis.x(mark), bottom, "grid")
        drawing.text(axis.x(mark), bottom + 14, axis.label(mark), "dim", "middle")
    drawing.text(WIDTH - 14, bottom + 14, axis.unit, "dim", "end")
    y = TOP + ROW / 2
    for key, values in run.values.items():
        drawing.text(14, y, key, "dim")
        for value in values:
            drawing.circle(axis.x(value.at), y, 9, "value")
            drawing.text(axis.x(value.at), y, value.label, "letter")
        y += ROW
    drawing.text(14, y, "all keys", "dim")
    for opened, closed, ranking in run.rankings:
        left, right = axis.within(opened), axis.within(closed)
        drawing.rect(left, y - 8, right - left, 16, "window")
        drawing.line(left, y - 8, left, y + 8, "end")
        text = " ".join(f"({key}, {count})" for key, count in ranking)
        drawing.text(right + 10, y, text, "code")
        y += ROW
    return drawing.svg(WIDTH, bottom + 34)
