"""System time of a run: the machine's clock, or a clock of a test."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

SystemTime: TypeAlias = Callable[[], int]
"""Gives the system time in microseconds; the only place where the machine's clock is read."""


def wall_time() -> int:
    """The machine's clock."""
    return time.time_ns() // 1000


@dataclass(frozen=True)
class FixedTime:
    """A system time that stands still, but for what sources advance it by; for tests."""

    now_us: int

    def __call__(self) -> int:
        return self.now_us
