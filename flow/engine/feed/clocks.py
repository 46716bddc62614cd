"""Clocks of a run: system time, running time, and the timers that start epochs without input."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from flow.engine.epoch.context import Control
from flow.engine.epoch.statistics import Stats
from flow.engine.plan.plan import Plan
from flow.errors import EngineError
from flow.instants import NEVER, Moment

HEARTBEAT_US = 10_000_000
"""The longest running time between two epochs, which bounds the running time that a crash loses."""

SystemTime: TypeAlias = Callable[[], int]
"""A function that returns the time of a clock in µs: the only access to the machine's clocks."""

STABLE_US = 60_000_000
"""Time for which the difference of the machine's clocks is stable before a run adopts it."""
TOLERANCE_US = 1_000_000
"""A greater change of this difference is a step."""


def wall_time() -> int:
    """Return the time of the machine's clock, in µs since 1970."""
    return time.time_ns() // 1000


def monotonic_time() -> int:
    """Return the time of a clock without steps, in µs.

    It stands still while a machine with Linux or macOS is suspended, as the flow does not run then.
    """
    return time.monotonic_ns() // 1000


class RunClock:
    """The clocks of a run: running time by the monotonic clock, system time by the wall clock.

    System time is the monotonic clock plus the difference of both. A new difference is adopted once
    it has been stable for `STABLE_US`, so a short step of the wall clock has no effect.

    Args:
        wall: the wall clock.
        monotonic: the monotonic clock.
        before: the moment of the last epoch; ``None`` before the first epoch of a flow.
    """

    def __init__(self, wall: SystemTime, monotonic: SystemTime, before: Moment | None) -> None:
        self._wall, self._monotonic, self._advanced_us = wall, monotonic, 0
        now_us, self._since_us = wall(), monotonic()
        self._adopted_us = self._seen_us = now_us - self._since_us
        before = before or Moment(now_us)
        stopped_us = max(0, now_us - before.now_us)
        down_us = before.downtime_us + stopped_us
        self._last = replace(before, now_us=before.now_us + stopped_us, downtime_us=down_us)
        self._from_us = self._last.running_us - self._since_us

    def read(self) -> Moment:
        """Return the present moment; neither its system time nor its running time goes back."""
        monotonic_us = self._monotonic()
        difference_us = self._wall() - monotonic_us
        if abs(difference_us - self._seen_us) > TOLERANCE_US:
            self._seen_us, self._since_us = difference_us, monotonic_us
        elif monotonic_us - self._since_us >= STABLE_US:
            self._adopted_us = self._seen_us = difference_us
            self._since_us = monotonic_us
        passed_us = monotonic_us + self._advanced_us
        now_us = max(self._last.now_us, passed_us + self._adopted_us)
        running_us = max(self._last.running_us, passed_us + self._from_us)
        stepped_us = now_us - running_us - self._last.downtime_us
        self._last = replace(self._last, now_us=now_us, stepped_us=stepped_us)
        return self._last

    def advance(self, micros: int) -> Moment:
        """Return the moment after an advance of both clocks, which only tests make."""
        self._advanced_us += micros
        self._last = replace(self._last, now_us=self._last.now_us + micros)
        return self._last


@dataclass(frozen=True)
class FixedTime:
    """System time of a test, which only a source's `advance_us` moves."""

    now_us: int

    def __call__(self) -> int:
        return self.now_us


class EpochClocks:
    """The system time of a run's epochs, and the timers of its steps.

    Args:
        wall: the wall clock.
        monotonic: the monotonic clock; by default that of the machine, or, if the wall clock is
            another than the machine's, the wall clock.

    Attributes:
        due_us: earliest timer of the steps that follow system time, as system time.
        dues: earliest timer of each step that follows its inputs' clock, as system time.
    """

    def __init__(self, wall: SystemTime = wall_time, monotonic: SystemTime | None = None) -> None:
        self._wall = wall
        self._monotonic = monotonic or (monotonic_time if wall is wall_time else wall)
        self._clock: RunClock | None = None
        self.due_us = 0
        self.dues: Mapping[str, int] = {}

    def start(self, before: Moment | None) -> None:
        """Start the clock of the run.

        Args:
            before: the moment of the last epoch; ``None`` before the first epoch of a flow.
        """
        self._clock = RunClock(self._wall, self._monotonic, before)

    @property
    def clock(self) -> RunClock:
        """The clock of the run."""
        if self._clock is None:
            raise EngineError("the clock of a run is read before the run has started")
        return self._clock

    def clear_timers(self) -> None:
        """Forget the timers of steps, which the epoch that begins sets again."""
        self.due_us, self.dues = NEVER, {}

    def set_timers(self, stats: Stats, timed: Collection[str]) -> None:
        """Take the timers of steps that an epoch reports.

        Args:
            stats: the statistics of the epoch.
            timed: the steps that follow the clock of their inputs.
        """
        self.dues = {name: due_us for name, due_us in stats.dues.items() if name in timed}
        others = [due_us for name, due_us in stats.dues.items() if name not in timed]
        self.due_us = min(others, default=NEVER)

    def is_due(self, last: Control, now: Control, plan: Plan) -> bool:
        """Return True if a timer or the heartbeat wants an epoch without input.

        Args:
            last: the control of the last epoch.
            now: the control of an epoch that would start now.
            plan: the compiled flow.
        """
        moment = now.moment
        if moment.now_us >= self.due_us:
            return True
        if moment.running_us >= last.moment.running_us + HEARTBEAT_US:
            return True
        return any(
            now.read_by(plan.feeds[step_id]).after_us + moment.downtime_us >= due_us
            for step_id, due_us in self.dues.items()
        )
