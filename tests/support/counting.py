"""A flow that counts the items of each key, also for runs in a process of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flow.operators as op
from flow import Dataflow


def count(number: int | None, _: Any) -> tuple[int, int]:
    return (number or 0) + 1, (number or 0) + 1


def record(pair: tuple[str, int]) -> dict[str, Any]:
    return {"key": pair[0], "n": pair[1]}


def counting_flow(source: Any, sink: Any, before: Callable[[Any], Any] | None = None) -> Dataflow:
    """Return a flow that counts items by key, after `before` has been called with each item."""
    flow = Dataflow("counting")
    items = op.input("in", flow, source)
    items = items if before is None else op.map("before", items, before)
    counted = op.stateful_map("count", items, count)
    op.output("out", op.map("record", counted, record), sink)
    return flow
