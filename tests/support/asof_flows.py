"""Random as-of joins for the timelines of `interval_flows`; every fourth value deletes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestingSink, TestingSource
from tests.support.interval_flows import Value, duration, near
from tests.support.windowed_flows import SECOND

directions = st.sampled_from(["backward", "backward", "forward", "nearest"])
hows = st.sampled_from(["left", "inner"])
emits = st.sampled_from(["close", "close", "now"])
tolerances = st.none() | st.builds(lambda s, us: max(s * SECOND + us, 0), st.integers(0, 8), near)
"""Tolerances in microseconds."""


def quote(value: Value) -> Value | None:
    """Return the part of a right value that is paired."""
    return None if value[1] % 4 == 3 else value


def tolerance_of(us: int | None) -> timedelta | None:
    """Return a tolerance as a duration."""
    return None if us is None else duration(us)


def asof_flow(clock: Any, tolerance: Any, **options: Any) -> Dataflow:
    """Return an as-of join of the inputs ``left`` and ``right``, with all outputs."""
    flow = Dataflow("asof")
    sides = [op.input(name, flow, TestingSource([])) for name in ("left", "right")]
    out = win.join_asof("w", *sides, clock, tolerance, **options)
    for name in out._fields:
        op.output(name, getattr(out, name), TestingSink([]))
    return flow
