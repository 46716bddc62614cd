"""The clocks of a run: what steps of the machine's clock and suspends do, and what they do not."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EpochReport, run
from flow.engine.epoch.context import Control
from flow.engine.feed import clocks
from flow.engine.feed.clocks import RunClock
from flow.engine.feed.run_tables import Tables
from flow.instants import Moment
from flow.testing import TestingSink, TestingSource
from recovery import RecoveryConfig
from tests.support.clock import Clock
from tests.support.feeding import FedRun
from tests.support.growing_source import GrowingSource, numbered
from tests.support.one_stream import a_flow, as_read

HOUR = 3600
Moves = list[tuple[str, float]]
"""Seconds that pass, steps of the wall clock, and suspends, in order of time."""


class Machine:
    """The two clocks of a machine, in seconds."""

    def __init__(self, wall: float = 0) -> None:
        self.wall, self.monotonic = Clock(wall), Clock(1234)

    def move(self, what: str, seconds: float) -> None:
        self.wall.now += seconds
        self.monotonic.now += seconds if what == "pass" else 0

    def run_clock(self, before: Moment | None) -> RunClock:
        def wall() -> int:
            return round(self.wall() * 1e6)

        return RunClock(wall, lambda: round(self.monotonic() * 1e6), before)


STEPS: dict[str, tuple[Moves, float, float]] = {
    "none": ([("pass", 100)], 100, 100),
    "slewed by half a second": ([("pass", 59), ("step", 0.5), ("pass", 1)], 60.5, 60),
    "ahead for 15 s": (
        [("step", 5 * HOUR), ("pass", 15), ("step", -5 * HOUR), ("pass", 99)],
        114,
        114,
    ),
    "ahead for less than a minute": ([("step", 5 * HOUR), ("pass", 59)], 59, 59),
    "ahead": ([("step", HOUR), ("pass", 60)], HOUR + 60, 60),
    "ahead and back": (
        [("step", HOUR), ("pass", 60), ("step", -HOUR), ("pass", 60), ("pass", HOUR)],
        HOUR + 120,
        HOUR + 120,
    ),
    "back: it stands still": ([("pass", 9), ("step", -HOUR), ("pass", 60), ("pass", 9)], 9, 78),
    "back: it continues": ([("step", -HOUR), ("pass", 60), ("pass", HOUR)], 60, HOUR + 60),
    "suspended": ([("suspend", 8 * HOUR), ("pass", 60)], 8 * HOUR + 60, 60),
}


@pytest.mark.parametrize(("moves", "system", "running"), STEPS.values(), ids=STEPS)
def test_system_time_takes_a_stable_step_and_running_time_none(
    moves: Moves, system: float, running: float
) -> None:
    machine = Machine()
    clock = machine.run_clock(None)
    for move in moves:
        machine.move(*move)
        moment = clock.read()
    assert (moment.now_us / 1e6, moment.running_us / 1e6) == (system, running)


#  wall clock at the restart, less that of the last epoch    1 h · -1 h
@pytest.mark.parametrize(
    ("restart", "at_once", "later"),
    [(HOUR, (HOUR, 0, HOUR), (HOUR + 9, 9, HOUR)), (-HOUR, (0, 0, 0), (0, 9, 0))],
)
def test_a_restart_takes_the_wall_clock(restart: float, at_once: Any, later: Any) -> None:
    before = Moment(10**12, 10**9, stepped_us=-(10**9))
    machine = Machine(1e6 + restart)
    clock, found = machine.run_clock(before), []
    for seconds in (0, 9):
        machine.move("pass", seconds)
        now = clock.read()
        times = now.now_us, now.running_us, now.downtime_us
        passed = zip(times, (10**12, 10**12, 10**9), strict=True)
        found.append(tuple((one - at_first) / 1e6 for one, at_first in passed))
    assert found == [at_once, later]


LIVES: dict[str, Moves] = {
    "ahead for 15 s": [("step", 5 * HOUR), ("pass", 15), ("step", -5 * HOUR)],
    "ahead for two minutes": [("step", 5 * HOUR), ("pass", 120), ("step", -5 * HOUR)],
    "ahead over a restart": [("step", 5 * HOUR), ("kill", 0), ("pass", 15), ("step", -5 * HOUR)],
    "corrected while the flow is down": [("kill", 0), ("step", -5 * HOUR), ("pass", 9)],
    "back": [("step", -5 * HOUR), ("pass", 120)],
    "suspended": [("suspend", 5 * HOUR)],
}


@pytest.mark.parametrize("moves", LIVES.values(), ids=LIVES)
@pytest.mark.parametrize("scope", ["key", "stream"])
def test_no_value_is_late_by_a_step_and_idle_windows_close(moves: Moves, scope: Any) -> None:
    """Values are stamped by the time that passes: their producers have good clocks."""
    passed, values = 0.0, numbered([])
    flow = Dataflow("live")
    keyed = op.key_on("key", op.input("in", flow, GrowingSource(values, piece=99)), "k")
    clock, tens = win.EventClock("at", "1s", scope=scope), win.TumblingWindower("10s")
    counted = win.aggregate_window("count", keyed, clock, tens, n=win.Count())
    op.output("out", counted.down, TestingSink([]))
    op.output("late", counted.late, TestingSink([]))
    machine = Machine()
    fed = FedRun(flow, monotonic=lambda: round(machine.monotonic() * 1e6))
    fed.seconds = machine.wall

    for what, seconds in [("value", 5), *moves, *[("value", 1)] * 19, ("pass", 15)]:
        if what == "kill":
            fed.kill()
            continue
        machine.move("pass" if what == "value" else what, seconds)
        passed += seconds if what in ("pass", "value") else 0
        if what == "value":
            values["0"].append({"k": "k", "at": passed})
        fed.epoch()
    fed.run()
    assert fed.outputs.get("late", []) == []
    assert sum(figures["n"] for _, (_, figures) in fed.outputs["out"]) == 20


def test_a_lookup_table_is_read_again_while_system_time_stands_still() -> None:
    tables, log, look_up = object.__new__(Tables), Mock(), Mock(return_value=())
    log.step.step_id, log.version.read_at_us = "cities", 0
    tables._looked_up = {"cities"}
    for seconds in (9, 10):
        control = Control(Moment(0, stepped_us=-seconds * 1_000_000))
        tables._refresh(log, Mock(refresh_us=10_000_000), control, look_up)
    look_up.assert_called_once_with(log.step, control)


@pytest.mark.extended
@pytest.mark.spark
def test_a_streaming_run_goes_by_the_monotonic_clock(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    times: list[Any] = []

    def step(report: EpochReport) -> None:
        times.append(report.system_time)
        replaced = {"time_ns": lambda: time.time_ns() + 5 * HOUR * 10**9}
        monkeypatch.setattr(clocks, "time", SimpleNamespace(**{**vars(time), **replaced}))

    flow = a_flow(as_read, source=TestingSource([1, 2, 3], batch_size=1), sink=TestingSink([]))
    run(flow, spark=spark, recovery=RecoveryConfig(tmp_path / "checkpoint"), on_epoch=step)
    assert (max(times) - min(times)).total_seconds() < HOUR
