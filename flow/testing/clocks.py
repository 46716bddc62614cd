"""Exchange of the clock of a windowing step, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flow.dataflow import Dataflow
from flow.errors import FlowBuildError, FlowTypeError
from flow.keyed.step import Stateful


def swap_clock(flow: Dataflow, step_id: str, clock: object) -> Dataflow:
    """Return a copy of a flow in which one windowing step has another clock.

    Args:
        flow: the flow, which does not change.
        step_id: the windowing step.
        clock: the new clock, such as ``SystemClock()``.

    Raises:
        FlowBuildError: when the flow has no such step, or the step has no clock.
        FlowTypeError: when `clock` is not a clock.

    Example:
        >>> import flow.operators as op, flow_windowing as win
        >>> from flow.testing import TestDriver, TestingSink, TestingSource
        >>> flow = Dataflow("example")
        >>> s = op.input("in", flow, TestingSource([]))
        >>> hours, clock = win.TumblingWindower("1h"), win.SystemClock()
        >>> op.output("out", win.collect_window("hourly", s, clock, hours).down, TestingSink([]))
        >>> event_time = win.EventClock(lambda seconds: seconds, "0s")
        >>> with TestDriver(swap_clock(flow, "hourly", event_time)) as t:
        ...     t.send("in", [("k", 5), ("k", 3600)])
        ...     [values for _, (_, values) in t.received("out")]
        [[5]]
    """
    operator = flow.step(step_id).operator
    builder: Any = getattr(operator, "builder", None)
    if not isinstance(operator, Stateful) or not hasattr(builder, "clock"):
        raise FlowBuildError(
            f"step {step_id!r} has no clock: swap_clock is for windowing steps, "
            "such as those of win.aggregate_window"
        )
    try:
        swapped = replace(builder, clock=clock)
    except FlowTypeError as error:
        raise FlowTypeError(f"step {step_id!r}: {error}") from None
    return flow.with_operator(step_id, replace(operator, builder=swapped))
