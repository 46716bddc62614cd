"""The clocks of a run, without inputs and without the life of a run."""

from __future__ import annotations

import pytest

from flow import EngineError
from flow.engine.epoch.context import Control, ReadUpTo
from flow.engine.epoch.statistics import Stats
from flow.engine.feed.clocks import HEARTBEAT_US, EpochClocks
from flow.engine.plan.plan import Plan
from flow.instants import Moment
from tests.support.clock import Clock

NOON, SECOND = 1_356_998_400_000_000, 1_000_000
PLAN = Plan("flow", "plan", {}, feeds={"timed": ("in",)})
LAST = Control(Moment(NOON))


def clocks_with(**dues: int) -> EpochClocks:
    clocks, stats = EpochClocks(Clock(NOON)), Stats()
    for step_id, due_us in dues.items():
        stats.due(step_id, due_us)
    clocks.set_timers(stats, ("timed",))
    return clocks


def test_a_timer_in_system_time_is_due_at_its_time() -> None:
    clocks = clocks_with(step=NOON + SECOND)
    assert not clocks.is_due(LAST, Control(Moment(NOON + SECOND - 1)), PLAN)
    assert clocks.is_due(LAST, Control(Moment(NOON + SECOND)), PLAN)


#  now    12:00:02, but the input has been read up to 12:00:00
def test_a_timer_of_a_step_in_event_time_waits_for_its_inputs() -> None:
    clocks, now = clocks_with(timed=NOON + SECOND), Moment(NOON + 2 * SECOND)
    assert not clocks.is_due(LAST, Control(now, read={"in": ReadUpTo(NOON, NOON)}), PLAN)
    assert clocks.is_due(LAST, Control(now), PLAN)


def test_without_timers_only_the_heartbeat_starts_an_epoch() -> None:
    clocks = clocks_with(step=NOON, timed=NOON)
    clocks.clear_timers()
    assert not clocks.is_due(LAST, Control(Moment(NOON + HEARTBEAT_US - 1)), PLAN)
    assert clocks.is_due(LAST, Control(Moment(NOON + HEARTBEAT_US)), PLAN)


def test_the_clock_starts_with_the_run() -> None:
    clocks = EpochClocks(Clock(NOON))
    with pytest.raises(EngineError, match="before the run has started"):
        _ = clocks.clock
    clocks.start(Moment(NOON - SECOND))
    assert clocks.clock.read() == Moment(NOON, SECOND)
