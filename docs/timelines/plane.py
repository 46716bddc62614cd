"""Watermarks: system time to the right, event time upwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timelines.runs import ClockRun
from timelines.svg import Drawing

WIDTH, HEIGHT = 760, 320
LEFT, RIGHT = 128, 610
TOP, BOTTOM = 20, 282


@dataclass(frozen=True)
class Scale:
    """From seconds to places in the picture.

    Attributes:
        first: where an axis begins, in seconds since the Unix epoch.
        last: where it ends.
        start: the place of `first`.
        end: the place of `last`.
    """

    first: float
    last: float
    start: float
    end: float

    def __call__(self, at: float) -> float:
        """Return the position of a time."""
        return self.start + (at - self.first) / (self.last - self.first) * (self.end - self.start)


@dataclass(frozen=True)
class Span:
    """From when to when an axis goes, with a mark at every minute.

    Attributes:
        first: where it begins, in minutes.
        last: where it ends, in minutes.
    """

    first: int
    last: int


@dataclass(frozen=True)
class Line:
    """A clock's watermark, drawn.

    Attributes:
        run: what the clock did.
        name: what is written at its end; empty for nothing.
        kind: how it is drawn.
    """

    run: ClockRun
    name: str
    kind: str = "watermark"


def draw_clocks(
    title: str,
    description: str,
    spans: tuple[Span, Span],
    lines: Sequence[Line],
    label: Callable[[int], str],
    down: tuple[float, float] | None = None,
    reason: str = "not running",
) -> str:
    """Draw what clocks do with the same arrivals.

    Args:
        title: what the picture shows.
        description: what there is to see.
        spans: of system time, and of event time.
        lines: the clocks.
        label: what is written at a minute.
        down: from when to when the flow reads nothing.
        reason: why it reads nothing then.
    """
    drawing = Drawing(title, description)
    x = Scale(spans[0].first * 60, spans[0].last * 60, LEFT, RIGHT)
    y = Scale(spans[1].first * 60, spans[1].last * 60, BOTTOM, TOP)
    if down is not None:
        _draw_down(drawing, x, down, reason)
    _draw_axes(drawing, spans, (x, y), label)
    for line in lines:
        drawing.path([(x(now), y(at)) for now, at in line.run.watermark], line.kind)
        now, at = line.run.watermark[-1]
        if line.name:
            drawing.text(x(now) + 8, y(at), line.name, "watermark-name")
    for arrival in lines[0].run.arrivals:
        across, up = x(arrival.now), y(arrival.value.at)
        drawing.circle(across, up, 9, "late" if arrival.late else "value")
        drawing.text(across, up, arrival.value.label, "late-letter" if arrival.late else "letter")
    return drawing.svg(WIDTH, HEIGHT)


def _draw_down(drawing: Drawing, x: Scale, down: tuple[float, float], reason: str) -> None:
    start, end = x(down[0]), x(down[1])
    drawing.rect(start, TOP, end - start, BOTTOM - TOP, "down")
    drawing.text((start + end) / 2, TOP + 12, reason, "dim", "middle")


def _draw_axes(
    drawing: Drawing,
    spans: tuple[Span, Span],
    scales: tuple[Scale, Scale],
    label: Callable[[int], str],
) -> None:
    x, y = scales
    for minute in range(spans[0].first, spans[0].last + 1):
        drawing.line(x(minute * 60), TOP, x(minute * 60), BOTTOM, "grid")
        drawing.text(x(minute * 60), BOTTOM + 15, label(minute), "dim", "middle")
    for minute in range(spans[1].first, spans[1].last + 1):
        drawing.line(LEFT, y(minute * 60), RIGHT, y(minute * 60), "grid")
        drawing.text(LEFT - 10, y(minute * 60), label(minute), "dim", "end")
    drawing.text(14, TOP, "event time", "dim")
    drawing.text(WIDTH - 14, BOTTOM + 15, "system time", "dim", "end")
