"""Timelines: values on an axis of event time, and below them the windows that hold them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from timelines.runs import Run, Window
from timelines.svg import Drawing

WIDTH = 760
LEFT, RIGHT = 112, 650
TOP = 14
ROW = 24
STEP = 22
"""How far below one another values are drawn where their order of arrival is shown."""


@dataclass(frozen=True)
class Axis:
    """An axis of time.

    Attributes:
        first: where it begins, in seconds since the Unix epoch.
        last: where it ends.
        step: how far apart its marks are.
        label: what is written at a mark.
        unit: what is written at its end.
    """

    first: float
    last: float
    step: float
    label: Callable[[float], str] = "{:g}".format
    unit: str = "seconds"

    def marks(self) -> list[float]:
        """The positions of the marks."""
        count = round((self.last - self.first) / self.step)
        return [self.first + index * self.step for index in range(count + 1)]

    def x(self, at: float) -> float:
        """Return the horizontal position of a time."""
        return LEFT + (at - self.first) / (self.last - self.first) * (RIGHT - LEFT)

    def within(self, at: float) -> float:
        """Return the horizontal position of a time, clipped to the ends of the axis."""
        return self.x(min(max(at, self.first), self.last))


def contents(window: Window) -> str:
    """The names of a window's values."""
    return " ".join(value.label for value in window.values)


class Shown(Enum):
    """The parts of a run that a picture shows.

    Attributes:
        ROW: the values in one row, with windows and late values.
        ARRIVALS: the values below one another in order of arrival, with the watermark, and what
            came of them.
        INPUT: the same without windows and late values.
        OUTPUT: windows and late values alone.
    """

    ROW = "row"
    ARRIVALS = "arrivals"
    INPUT = "input"
    OUTPUT = "output"


@dataclass(frozen=True)
class Panel:
    """One run, drawn.

    Attributes:
        run: the run.
        heading: code to write above it.
        shown: what of it is drawn.
        note: what is written beside a window.
        beside: what is written beside each value, if values are below one another.
    """

    run: Run
    heading: str = ""
    shown: Shown = Shown.ROW
    note: Callable[[Window], str] = field(default=contents)
    beside: Sequence[str] = ()

    @property
    def has_arrivals(self) -> bool:
        """True if the values are drawn below one another."""
        return self.shown in (Shown.ARRIVALS, Shown.INPUT)

    @property
    def has_output(self) -> bool:
        """True if windows and late values are drawn."""
        return self.shown is not Shown.INPUT


def draw(title: str, description: str, axis: Axis, panels: Sequence[Panel]) -> str:
    """Draw runs below one another, over one axis."""
    drawing = Drawing(title, description)
    bottom = TOP + sum(_height(panel) for panel in panels)
    _draw_axis(drawing, axis, bottom)
    y = float(TOP)
    for panel in panels:
        _draw_panel(drawing, axis, panel, y)
        y += _height(panel)
    return drawing.svg(WIDTH, bottom + 34)


def _height(panel: Panel) -> float:
    heading = ROW if panel.heading else 0
    return heading + _values_height(panel) + _output_height(panel) + 12


def _values_height(panel: Panel) -> float:
    if panel.shown is Shown.OUTPUT:
        return 0
    return STEP * len(panel.run.values) + 6 if panel.has_arrivals else STEP + 6


def _output_height(panel: Panel) -> float:
    if not panel.has_output:
        return 0
    return ROW * len(panel.run.windows) + (ROW if panel.run.late else 0)


def _draw_axis(drawing: Drawing, axis: Axis, bottom: float) -> None:
    for mark in axis.marks():
        drawing.line(axis.x(mark), TOP, axis.x(mark), bottom, "grid")
        drawing.text(axis.x(mark), bottom + 14, axis.label(mark), "dim", "middle")
    drawing.text(WIDTH - 14, bottom + 14, axis.unit, "dim", "end")


def _draw_panel(drawing: Drawing, axis: Axis, panel: Panel, y: float) -> None:
    if panel.heading:
        drawing.text(14, y + ROW / 2, panel.heading, "code")
        y += ROW
    if panel.shown is not Shown.OUTPUT:
        _draw_values(drawing, axis, panel, y)
        y += _values_height(panel)
    if panel.has_output:
        _draw_output(drawing, axis, panel, y)


def _draw_output(drawing: Drawing, axis: Axis, panel: Panel, y: float) -> None:
    if panel.run.windows:
        drawing.text(14, y + ROW / 2, "windows", "dim")
    for window in panel.run.windows:
        _draw_window(drawing, axis, panel, window, y + ROW / 2)
        y += ROW
    if panel.run.late:
        _draw_late(drawing, axis, panel.run, y + ROW / 2)


def _draw_values(drawing: Drawing, axis: Axis, panel: Panel, y: float) -> None:
    label = "arrivals ↓" if panel.has_arrivals else "values"
    drawing.text(14, y + STEP / 2, label, "dim")
    if panel.has_arrivals:
        _draw_watermark(drawing, axis, panel.run, y)
    for index, value in enumerate(panel.run.values):
        row = index if panel.has_arrivals else 0
        late = panel.has_output and panel.run.is_late(value)
        _draw_value(drawing, axis.x(value.at), y + row * STEP + STEP / 2, value.label, late)
    rightmost = max(axis.x(value.at) for value in panel.run.values)
    for row, text in enumerate(panel.beside):
        drawing.text(rightmost + 24, y + row * STEP + STEP / 2, text, "code")


def _draw_value(drawing: Drawing, x: float, y: float, label: str, late: bool) -> None:
    drawing.circle(x, y, 9, "late" if late else "value")
    drawing.text(x, y, label, "late-letter" if late else "letter")


def _draw_watermark(drawing: Drawing, axis: Axis, run: Run, y: float) -> None:
    """A line that goes down through the arrivals, and to the right where a value moves it.

    It moves at the height of the value that moves it, so that a value to its left was late.
    """
    points: list[tuple[float, float]] = []
    for index, watermark in enumerate(run.watermarks):
        middle = y + index * STEP + STEP / 2
        x = axis.within(watermark)
        points += [(x, middle + 11), (x, middle + STEP + 11)]
    points[-1] = (points[-1][0], y + len(run.watermarks) * STEP + 4)
    drawing.path(points, "watermark")
    drawing.text(points[-1][0] + 6, points[-1][1] - 5, "watermark", "watermark-name")


def _draw_window(drawing: Drawing, axis: Axis, panel: Panel, window: Window, y: float) -> None:
    left, right = axis.within(window.open), axis.within(window.close)
    drawing.rect(left, y - 8, right - left, 16, "window")
    for x, at, holds in (
        (left, window.open, window.holds_open),
        (right, window.close, window.holds_close),
    ):
        if holds and axis.first <= at <= axis.last:
            drawing.line(x, y - 8, x, y + 8, "end")
    for value in window.values:
        drawing.circle(axis.x(value.at), y, 4, "value")
    for late in panel.run.late:
        if (window.open, window.close) in late.missed:
            drawing.circle(axis.x(late.value.at), y, 4, "late")
    drawing.text(right + 10, y, panel.note(window), "code")


def _draw_late(drawing: Drawing, axis: Axis, run: Run, y: float) -> None:
    drawing.text(14, y, "late stream", "dim")
    for late in run.late:
        _draw_value(drawing, axis.x(late.value.at), y, late.value.label, True)
    reasons = sorted({late.reason for late in run.late})
    rightmost = max(late.value.at for late in run.late)
    drawing.text(axis.x(rightmost) + 16, y, ", ".join(reasons), "code")
