"""Helpers of every operator function: check the arguments and add the step."""

from __future__ import annotations

from typing import Any

from flow.checks import check_function
from flow.dataflow import Dataflow, Operator, Stream, streams_of
from flow.errors import FlowBuildError, FlowTypeError, shorten


def add_step(step_id: str, operator: Operator, *ups: Stream[Any]) -> tuple[Stream[Any], ...]:
    """Add a step that reads `ups` to their flow, and return the streams it makes."""
    flow = flow_of(step_id, *ups)
    return streams_of(flow, flow.add(step_id, operator, *ups))


def flow_of(step_id: str, *ups: object) -> Dataflow:
    """Return the flow of the first upstream after a check that each upstream is a stream."""
    if not ups:
        raise FlowBuildError(f"step {shorten(step_id)} needs at least one stream to read")
    flows = [_stream(step_id, up).flow for up in ups]
    return flows[0]


def check_callable(step_id: str, what: str, value: object) -> None:
    """Raise a `FlowTypeError` that names step and parameter unless `value` can be called."""
    check_function(f"step {shorten(step_id)}: {what}", value)


def _stream(step_id: str, up: object) -> Stream[Any]:
    if isinstance(up, Stream):
        return up
    hint = ""
    if isinstance(up, tuple) or hasattr(up, "_fields") or hasattr(up, "down"):
        hint = ": it holds several streams, name the one you mean, e.g. `.down` or `.trues`"
    elif isinstance(up, Dataflow):
        hint = ": make a stream of it first, with op.input"
    raise FlowTypeError(
        f"step {shorten(step_id)} must read a Stream, got {type(up).__name__} {shorten(up)}{hint}"
    )
