"""A flow of one windowing step, records for the flow, and its results on both paths."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key

START = datetime(2023, 12, 14, 10, 30, tzinfo=UTC)
PORTS = ("down", "late", "closed")


def window_flow(
    clock: Any,
    windower: Any,
    aggregates: dict[str, Any],
    *,
    ordered: bool = False,
    emit: Any = "close",
    timestamp: Any = None,
) -> Dataflow:
    """Return a flow that aggregates the records of each user, with an output for each port."""
    flow = Dataflow("windows")
    stream = op.key_on("key", op.input("in", flow, TestingSource([])), "user")
    out = win.aggregate_window(
        "w",
        stream,
        clock,
        windower,
        ordered=ordered,
        emit=emit,
        timestamp=timestamp,
        **aggregates,
    )
    add_outputs(out)
    return flow


def add_outputs(out: Any) -> None:
    """Add an output for each port of a windowing step."""
    for port in PORTS:
        op.output(port, getattr(out, port), TestingSink([]))


def results_by_key(driver: TestDriver) -> dict[str, Any]:
    """Return what each port emitted for each key, and the step's counts.

    Values are texts, in which nan equals nan and 1 differs from 1.0.
    """
    found: dict[str, Any] = {}
    for port in PORTS:
        of_key: dict[str, list[str]] = {}
        for key, value in driver.received(port):
            of_key.setdefault(key, []).append(repr(value))
        found[port] = of_key
    counts = driver.stats.counts
    found["counted"] = {what: n for (step, what), n in counts.items() if step == "w" and n}
    return found


def on_path(alone: bool) -> AbstractContextManager[None]:
    """Run steps key by key if `alone`, else over columns."""
    return key_by_key() if alone else nullcontext()
