"""A flow of windows that emit before they close, and settings of it."""

from __future__ import annotations

from typing import Any

from flow import Dataflow
from flow_windowing import Collect, Count, EventClock, Sum
from tests.support.window_flow import window_flow

PATIENT = EventClock("ts", "1m")
AT_ONCE = EventClock("ts", "0s")
NUMBERS = {"n": Count(), "total": Sum("n")}
OTHERS = {"n": Count(), "numbers": Collect("n")}


def emitting(
    clock: Any,
    windower: Any,
    aggregates: dict[str, Any],
    ordered: bool = False,
    emit: Any = "epoch",
    timestamp: Any = None,
) -> Dataflow:
    return window_flow(clock, windower, aggregates, ordered=ordered, emit=emit, timestamp=timestamp)
