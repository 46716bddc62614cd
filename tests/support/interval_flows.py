"""Random interval joins and timelines for them, in microseconds around whole seconds.

Values are ``(offset, number)``: a time in microseconds after `ORIGIN`, and a number that tells them
apart. Times lie at whole seconds, or a microsecond beside them, so that bounds are often hit.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeAlias

from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestingSink, TestingSource
from tests.support.window_oracle import Event
from tests.support.windowed_flows import (
    ORIGIN,
    SECOND,
    Epoch,
    bytes_up_to,
    cut,
    moments,
)

Value: TypeAlias = tuple[int, int]
SidedValue: TypeAlias = tuple[int, Value]


def time_of(value: Value) -> datetime:
    """Return the timestamp of a value."""
    return ORIGIN + timedelta(microseconds=value[0])


def time_of_pair(pair: SidedValue) -> datetime:
    """Return the timestamp of a value with its side."""
    return time_of(pair[1])


def clock_of(wait: int, on_idle: Any, max_ahead: int | None, getter: Any = time_of) -> Any:
    """Return an event clock with durations in seconds."""
    ahead = None if max_ahead is None else f"{max_ahead}s"
    return win.EventClock(getter, f"{wait}s", on_idle=on_idle, max_ahead=ahead)


def duration(us: int) -> timedelta:
    """Return microseconds as a duration."""
    return timedelta(microseconds=us)


def _value(byte: int, number: int) -> SidedValue:
    """Return a value with its side; one byte draws the side, the second and the microsecond."""
    return byte % 2, (byte // 2 % 13 * SECOND + byte // 26 % 3 - 1, number)


values = bytes_up_to(20).map(
    lambda drawn: [_value(byte, number) for number, byte in enumerate(drawn)]
)
timelines = st.builds(cut, values, bytes_up_to(8))
"""Epochs of one key, of values with their sides."""

clocks = st.tuples(
    st.integers(0, 6), st.sampled_from(["advance", "hold"]), st.none() | st.integers(0, 10)
)
hows = st.sampled_from(["inner", "left", "right", "outer"])
near = st.integers(-1, 1)


@st.composite
def bounds(draw: st.DrawFn) -> tuple[int, int]:
    """Return `before` and `after` in µs; one of them may be negative, their sum is not."""
    before = draw(st.integers(-3, 5)) * SECOND + draw(near)
    after = draw(st.integers(-3, 5)) * SECOND + draw(near)
    return (before, after) if before + after >= 0 else (-after, -before)


graces = st.none() | st.builds(lambda s, us: s * SECOND + us, st.integers(0, 4), st.integers(0, 1))


def interval_flow(clock: Any, before: Any, after: Any, **options: Any) -> Dataflow:
    """Return an interval join of the inputs ``left`` and ``right``, with all outputs."""
    flow = Dataflow("interval")
    sides = [op.input(name, flow, TestingSource([])) for name in ("left", "right")]
    out = win.join_interval("w", *sides, clock, before, after, **options)
    for name in out._fields:
        op.output(name, getattr(out, name), TestingSink([]))
    return flow


def events_of(epochs: list[Epoch]) -> list[Event]:
    """Return the values of a timeline, and the epochs without values, as events."""
    *before, last = moments(epochs)
    return [
        Event(moment, value)
        for epoch, moment in zip([*epochs, Epoch()], [*before, last], strict=True)
        for value in epoch.values or (None,)
    ]
