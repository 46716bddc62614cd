"""A flow of three steps with reports of its epochs, for tests of the status and of the page."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EpochReport
from flow.engine.epoch.summary import WatermarkLag
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.plan import Plan
from flow.monitoring.recorder import Recorder
from flow.testing import TestingSink, TestingSource

PHASES = {
    "planning": 0.1,
    "starting": 0.2,
    "reading": 0.3,
    "steps": 0.6,
    "sinks": 0.15,
    "spark": 0.25,
    "commit": 0.4,
}
"""The seconds of an epoch's phases; the epoch has waited for nothing."""
SIZES = {"keys": 7, "state_bytes": 900, "open_windows": 1_200, "buffered_values": 30}
"""The gauges of the step ``hours`` in reports."""
SCRIPT = "<script>alert(1)</script>"


class Clock:
    """A clock that the test sets."""

    def __init__(self, seconds: float = 1_000.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


def hourly_flow(flow_id: str = "hourly") -> Dataflow:
    """Return a flow of an input, a window over columns, and two outputs."""
    flow = Dataflow(flow_id)
    visits = op.input("visits", flow, TestingSource([]))
    clock = win.EventClock("at", wait_for_system_duration="10s")
    windower = win.TumblingWindower(length="1h")
    hours = win.aggregate_window("hours", visits, clock, windower, n=win.Count())
    op.output("out", hours.down, TestingSink([]))
    op.output("late", hours.late, TestingSink([]))
    return flow


def hourly_plan(flow_id: str = "hourly") -> Plan:
    return compile_flow(hourly_flow(flow_id))


def epoch_report(epoch: int = 0, items: int = 100, **changes: Any) -> EpochReport:
    """Return the report of an epoch that has read `items`, two of which were late."""
    counts = {("visits", "out"): items, ("hours", "in"): items, ("hours", "late"): 2}
    return EpochReport(
        **{
            "epoch": epoch,
            "counts": Counter({**counts, ("late", "in"): 2}),
            "gauges": Counter({("hours", name): size for name, size in SIZES.items()}),
            "system_time": datetime(2026, 1, 1, tzinfo=UTC),
            "behind": {"visits": {"visits/0": 5, "visits/1": 0}},
            "phases": PHASES,
            "busy": {"visits": 0.5, "hours": 1.5},
            "lags": {"hours": WatermarkLag(10.0, 12.0, 60.0, 4)},
            "workers": {"host:1": 1_000, "host:2": 2_000},
            **changes,
        }
    )


def recorded(*reports: EpochReport, clock: Clock | None = None) -> Recorder:
    """Return a recorder of reports, one a second."""
    clock = clock or Clock()
    recorder = Recorder(hourly_plan(), "streaming", clock=clock)
    for report in reports:
        clock.seconds += 1
        recorder.add(report)
    return recorder
