"""Flows of windows over all keys, with an output for each of their streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestingSink, TestingSource

PORTS = ("down", "late", "closed")
AGGREGATES = {
    "n": win.Count(),
    "total": win.Sum("n"),
    "mean": win.Mean("n"),
    "least": win.Min("n"),
    "spread": win.StdDev("n"),
    "users": win.CountDistinct("user"),
    "most": win.Max("at"),
}
"""Aggregates whose accumulators are in columns, and others."""


def all_keys_flow(add: Callable[[Any], Any], items: Any = (), sinks: Any = None) -> Dataflow:
    """Return a flow of one step over the records of users.

    Args:
        add: adds the step to the keyed stream.
        items: the items of the input.
        sinks: the list that each output writes to, by name.
    """
    flow = Dataflow("over all keys")
    records = op.input("in", flow, TestingSource(list(items), batch_size=3))
    out = add(op.key_on("key", records, "user"))
    for port in PORTS:
        op.output(port, getattr(out, port), TestingSink([] if sinks is None else sinks[port]))
    return flow


def aggregated(clock: Any, windower: Any, **options: Any) -> Callable[[Any], Any]:
    """Return a function that adds `aggregate_window_all`."""
    aggregates = options or AGGREGATES
    return lambda s: win.aggregate_window_all("w", s, clock, windower, **aggregates)


def aggregated_by_one_key(clock: Any, windower: Any) -> Callable[[Any], Any]:
    """Return a function that adds the same aggregates with one key for all values."""

    def add(stream: Any) -> Any:
        one_key = op.map("one key", stream, lambda item: ("all", item[1]))
        return win.aggregate_window("w", one_key, clock, windower, **AGGREGATES)

    return add


def ranked(clock: Any, windower: Any, n: int, by: Any = None) -> Callable[[Any], Any]:
    """Return a function that adds `top_n`."""
    return lambda s: win.top_n("w", s, clock, windower, n, by)
