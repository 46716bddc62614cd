"""Clocks of a run: its system time, and its running time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from flow.instants import Moment

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
