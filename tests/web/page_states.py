"""The states of a run that the page shows, each as the reports of 15 minutes up to now."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EpochReport
from flow.engine.epoch.statistics import StepBound
from flow.engine.epoch.summary import WatermarkLag
from flow.testing import TestingSink, TestingSource
from tests.support.monitored import Clock

SECONDS, STEP = 900, 5
"""The length of a state, and the time between two of its epochs."""

RATE = 2_000
"""Items that each input reads in a second."""


def shop_flow() -> Dataflow:
    """Return a flow of two inputs, a slow step, and windows of windows: two levels."""
    flow = Dataflow("shop")
    orders = op.input("orders", flow, TestingSource([]))
    refunds = op.input("refunds", flow, TestingSource([]))
    scored = op.map("score", op.merge("all_changes", orders, refunds), dict)
    checked = op.branch("valid", scored, bool)
    clock = win.EventClock("at", wait_for_system_duration="10s")
    hourly = win.aggregate_window(
        "hourly_by_customer",
        op.key_on("by_customer", checked.trues, "customer"),
        clock,
        win.TumblingWindower(length="1h"),
        total=win.Sum("amount"),
        mean=win.Mean("amount"),
    )
    records = op.records("records", hourly.down)
    daily = win.aggregate_window(
        "daily",
        op.key_on("by_shop", records, "key"),
        win.EventClock("open_time", wait_for_system_duration="0s"),
        win.TumblingWindower(length="1d"),
        n=win.Count(),
    )
    op.output("hours", records, TestingSink([]))
    # A stream that passes most ranks of the graph.
    op.output("days", op.merge("all_days", scored, daily.down), TestingSink([]))
    op.output("late", hourly.late, TestingSink([]))
    op.output("rejected", checked.falses, TestingSink([]))
    return flow


def report_at(number: int, rate: int = RATE, **changes: Any) -> EpochReport:
    """Return the report of an epoch of `STEP` seconds, in which `rate` items came in a second."""
    read = rate * STEP
    counts = {
        **{("orders", "out"): read // 2, ("refunds", "out"): read // 2},
        **{(one, way): read for one in ("all_changes", "score") for way in ("in", "out")},
        **{("valid", "in"): read, ("valid", "out"): read},
        **{("by_customer", "in"): read, ("by_customer", "out"): read},
        **{("hourly_by_customer", "in"): read, ("hourly_by_customer", "out"): read // 100},
        **{("records", "in"): read // 100, ("records", "out"): read // 100},
        **{("by_shop", "in"): read // 100, ("by_shop", "out"): read // 100},
        **{("daily", "in"): read // 100, ("daily", "out"): read // 1_000},
        **{("hours", "in"): read // 100, ("days", "in"): read // 1_000},
        ("hourly_by_customer", "late"): rate // 1_000,
    }
    sizes = {"keys": 12_000, "state_bytes": 4_000_000 + 1_000 * number, "open_windows": 25_000}
    gauges = {("hourly_by_customer", name): size for name, size in sizes.items()}
    daily = {"keys": 40, "state_bytes": 9_000, "open_windows": 40, "buffered_values": 30}
    reading = {"planning": 0.1, "starting": 0.1, "reading": 0.3, "steps": 0.9}
    return EpochReport(
        **{
            "epoch": number,
            "counts": Counter({name: n for name, n in counts.items() if n}),
            "gauges": Counter({**gauges, **{("daily", name): n for name, n in daily.items()}}),
            "system_time": datetime.fromtimestamp(time.time(), UTC),
            "behind": {"orders": {"orders/0": 0, "orders/1": 0}},
            "phases": {"waiting": 3.4, **reading, "sinks": 0.1, "spark": 0.05, "commit": 0.05},
            "busy": {"orders": 0.2, "refunds": 0.1, "score": 0.4, "hourly_by_customer": 0.5},
            "lags": {"hourly_by_customer": WatermarkLag(10.0, 11.0, 14.0, 900)},
            "workers": {"host:1": 160_000_000, "host:2": 170_000_000},
            **changes,
        }
    )


def behind_report(number: int) -> EpochReport:
    """Return an epoch of a run that reads an hour's backlog, slowed down by ``score``."""
    left = 9_000_000 - 20_000 * number
    lag = 3_700.0 - 8 * number
    return report_at(
        number,
        phases={"reading": 0.3, "steps": 4.3, "sinks": 0.2, "spark": 0.1, "commit": 0.1},
        behind={"orders": {"orders/0": left // 3, "orders/1": 2 * left // 3}},
        behind_by={"orders": 5.0 * number, "refunds": 5.0 * number},
        busy={"orders": 0.2, "score": 8.0, "hourly_by_customer": 0.5},
        lags={"hourly_by_customer": WatermarkLag(lag, lag + 5, lag + 20, 900)},
        bounds={
            "hourly_by_customer": StepBound(1_700_000_000_000_000, "refunds", 2),
            "daily": StepBound(1_700_000_000_000_000, "hourly_by_customer"),
        },
    )


def idle_report(number: int) -> EpochReport:
    """Return an epoch of a run whose input has ended two minutes ago."""
    silent = number > (SECONDS - 120) // STEP
    return report_at(number, lags={}, counts=Counter(), busy={}) if silent else report_at(number)


def play(
    report: Callable[[EpochReport], object],
    clock: Clock,
    make: Callable[[int], EpochReport] = report_at,
) -> None:
    """Report the epochs of a state, of which the last has ended now."""
    now = time.time()
    for number in range(SECONDS // STEP + 1):
        clock.seconds = now - SECONDS + number * STEP
        report(make(number))
