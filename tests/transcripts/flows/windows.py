"""Flows of one window step, with an output for each of its streams."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import flow.operators as op
import flow_windowing as win
from tests.support.transcript import Builder, In, Order, Out, Step, register
from tests.support.window_notation import WindowNotation

OUTPUTS = ("down", "late", "closed")


def window_step(
    operator: str,
    step: Step,
    /,
    *streams: In,
    clock: win.Clock[Any, Any],
    windower: win.Windower[Any],
    change: Callable[[Any], Any] | None = None,
    **options: Any,
) -> Out:
    """Build a flow of one window step.

    Args:
        operator: the name of the operator in `flow_windowing`.
        step: a function that completes step ids.
        *streams: the inputs, several for a join.
        clock: the clock.
        windower: the windower.
        change: a function that the flow applies to values before the step.
        **options: further arguments of the operator.
    """
    if change is not None:
        streams = tuple(op.map_value(step("change"), stream, change) for stream in streams)
    if operator == "count_window":
        streams = tuple(op.map(step("unkeyed"), stream, unkeyed) for stream in streams)
    add = getattr(win, operator)
    out = add(step("w"), *streams, clock=clock, windower=windower, **options)
    return {output: getattr(out, output) for output in OUTPUTS}


def join_interval(
    step: Step,
    /,
    left: In,
    right: In,
    *,
    clock: win.Clock[Any, Any],
    before: str,
    after: str,
    **options: Any,
) -> Out:
    """Build a flow of one interval join."""
    out = win.join_interval(step("w"), left, right, clock, before, after, **options)
    return {output: getattr(out, output) for output in OUTPUTS}


def join_asof(
    step: Step,
    /,
    left: In,
    right: In,
    *,
    clock: win.Clock[Any, Any],
    tolerance: str | None = None,
    **options: Any,
) -> Out:
    """Build a flow of one as-of join."""
    out = win.join_asof(step("w"), left, right, clock, tolerance, **options)
    return {output: getattr(out, output) for output in OUTPUTS}


def unkeyed(item: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Move the key of an item into its value, for an operator that finds the key itself."""
    return {"key": item[0], **item[1]}


for join in (join_asof, join_interval):
    register(
        join.__name__,
        Builder(join, dict.fromkeys(OUTPUTS, Order.KEY), notation=WindowNotation, shares_time=True),
    )
OVER_ALL_KEYS = ("aggregate_window_all", "top_n")
for name in (
    *("window", *OVER_ALL_KEYS),
    *(name for name in win.__all__ if name.endswith("_window")),
):
    register(
        name,
        Builder(
            partial(window_step, name),
            dict.fromkeys(OUTPUTS, Order.KEY),
            notation=WindowNotation,
            shares_time=True,
        ),
    )
