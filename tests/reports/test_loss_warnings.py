"""Warnings of holds that do not move, and the advice for late results; and how holds are shown."""

from __future__ import annotations

import json
import logging
from collections import Counter
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.engine.epoch.statistics import StepBound
from flow.engine.epoch.summary import EpochReport
from flow.engine.plan.compiler import compile_flow
from flow.instants import NO_PROGRESS
from flow.monitoring.metrics import METRICS
from flow.monitoring.recorder import Recorder
from flow.reports.loss_warnings import HoldWarnings, LateWarnings, Stats
from flow.testing import TestingSink, TestingSource
from flow.visualize import to_json, to_mermaid

SECOND = 1_000_000


def two_levels(**clock: Any) -> Dataflow:
    flow = Dataflow("levels")
    values = op.input("values", flow, TestingSource([]))
    sessions = win.count_window(
        "sessions", values, win.EventClock("at", "1m"), win.SessionWindower("5m"), str
    )
    opened = win.EventClock(lambda value: value[0].open_time, "0s", **clock)
    both = op.merge("both", sessions.down, op.key_on("key", values, str))
    hours = win.collect_window("hours", both, opened, win.TumblingWindower("1h"))
    op.output("out", hours.down, TestingSink([]))
    return flow


def held(bound_us: int, set_by: str = "sessions", partition: int = -1) -> Stats:
    return Stats(bounds={"hours": StepBound(bound_us, set_by, partition)})


def test_a_hold_that_does_not_move_is_logged_seldom(caplog: pytest.LogCaptureFixture) -> None:
    """The results of ``sessions`` lag by at most a minute, so the step waits for two minutes."""
    now = 0.0
    warn = HoldWarnings(compile_flow(two_levels()), lambda: now)

    def logged_at(seconds: float, stats: Stats) -> list[str]:
        nonlocal now
        now = seconds
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            warn(stats)
        return caplog.messages

    assert logged_at(0, held(50 * SECOND)) == []
    assert logged_at(119, held(50 * SECOND)) == []
    (message,) = logged_at(120, held(50 * SECOND))
    assert "step 'hours' has waited 2m for step 'sessions'" in message
    assert "1970-01-01T00:00:50+00:00" in message
    assert logged_at(479, held(50 * SECOND)) == []
    assert len(logged_at(480, held(50 * SECOND))) == 1
    assert logged_at(500, held(51 * SECOND)) == []
    assert logged_at(619, held(51 * SECOND)) == []
    assert logged_at(700, held(51 * SECOND, "values", 0)) == []
    assert logged_at(701, Stats()) == []


@pytest.mark.parametrize(
    ("clock", "advice"), [({"upstream": "ignore"}, "upstream='hold'"), ({}, "wait_for_system")]
)
def test_late_results_get_advice_that_helps_them(
    clock: dict[str, Any], advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    late = Stats(counts=Counter({("hours", "late"): 3}), lateness=Counter({("hours", SECOND): 3}))
    LateWarnings(compile_flow(two_levels(**clock)), lambda: 1e9)(late)
    assert advice in caplog.text


def test_the_status_says_what_holds_a_step_where_and_since_when() -> None:
    now = 100.0
    recorder = Recorder(compile_flow(two_levels()), "streaming", clock=lambda: now)

    def status(**bounds: StepBound) -> Any:
        return recorder.add(EpochReport(0, bounds=bounds)).steps["hours"]

    one = status(hours=StepBound(50 * SECOND, "sessions"))
    assert (one.held_by, one.held_at, one.held_since) == ("step 'sessions'", 50, 100)
    (metric,) = (one for one in METRICS if one.name == "flow_step_bound_seconds")
    assert metric.samples(recorder.status) == {("hours", "step 'sessions'"): 50}
    now = 130.0
    assert status(hours=StepBound(50 * SECOND, "sessions")).held_since == 100
    one = status(hours=StepBound(NO_PROGRESS, "values", 2))
    assert (one.held_by, one.held_at) == ("source partition 2 of input 'values'", None)
    assert one.held_since == 130
    assert status().held_by == ""


def test_a_drawn_flow_shows_which_step_holds_which() -> None:
    holds = [line.strip() for line in to_mermaid(two_levels()).splitlines() if "holds" in line]
    assert holds == ['s2 -.->|"holds, which waits 1m"| s5']
    steps = {step["step_id"]: step for step in json.loads(to_json(two_levels()))["steps"]}
    assert (steps["hours"]["held_by"], steps["hours"]["waits_us"]) == (["sessions"], 60 * SECOND)
    assert "held_by" not in steps["sessions"]
    assert "holds" not in to_mermaid(two_levels(upstream="ignore"))
