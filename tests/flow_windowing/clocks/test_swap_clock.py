"""Replacement of a windowing step's clock in a test."""

from __future__ import annotations

from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.errors import FlowBuildError, FlowTypeError
from flow.testing import TestDriver, TestingSink, TestingSource, swap_clock
from flow_windowing import EventClock, SystemClock, TumblingWindower


def hourly(clock: win.Clock[Any, Any]) -> Dataflow:
    flow = Dataflow("hourly")
    stream = op.input("in", flow, TestingSource([]))
    out = win.collect_window("hourly", stream, clock, TumblingWindower("1h"))
    op.output("out", out.down, TestingSink([]))
    op.output("late", out.late, TestingSink([]))
    return flow


def windows(flow: Dataflow) -> list[Any]:
    with TestDriver(flow, now="2024-01-01T00:00:00Z") as t:
        t.send("in", [("k", 10)])
        t.send("in", [("k", 3700)])
        t.send("in", [("k", 20)])
        return [values for _, (_, values) in t.received("out")]


def test_a_swapped_clock_replaces_the_steps_clock() -> None:
    flow = hourly(SystemClock())
    assert windows(flow) == []
    assert windows(swap_clock(flow, "hourly", EventClock(float, "0s"))) == [[10]]


def test_the_flow_itself_keeps_its_clock() -> None:
    flow = hourly(SystemClock())
    swap_clock(flow, "hourly", EventClock(float, "0s"))
    assert windows(flow) == []


def test_a_flow_of_event_time_can_be_tested_on_system_time() -> None:
    flow = swap_clock(hourly(EventClock(float, "0s")), "hourly", SystemClock())
    with TestDriver(flow, now="2024-01-01T00:00:00Z") as t:
        t.send("in", [("k", 10)])
        t.advance("1h")
        assert [values for _, (_, values) in t.received("out")] == [[10]]


def test_the_clock_of_a_join_can_be_swapped() -> None:
    flow = Dataflow("joined")
    left, right = (op.input(name, flow, TestingSource([])) for name in ("left", "right"))
    out = win.join_window("join", left, right, clock=SystemClock(), windower=TumblingWindower("1h"))
    op.output("out", out.down, TestingSink([]))
    with TestDriver(swap_clock(flow, "join", EventClock(float, "0s"))) as t:
        t.send_all({"left": [("k", 1)], "right": [("k", 2)]})
        t.send("left", [("k", 3600)])
        assert [pair for _, (_, pair) in t.received("out")] == [(1, 2)]


def test_a_clock_that_cannot_be_swapped_names_the_step() -> None:
    flow = hourly(SystemClock())
    with pytest.raises(FlowBuildError, match="step 'in' has no clock"):
        swap_clock(flow, "in", SystemClock())
    with pytest.raises(FlowBuildError, match="has no step 'daily'"):
        swap_clock(flow, "daily", SystemClock())
    with pytest.raises(FlowTypeError, match=r"step 'hourly': clock must be a Clock .*got str '5m'"):
        swap_clock(flow, "hourly", "5m")
