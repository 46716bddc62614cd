"""System time of a run: the machine's clock, or a clock of a test."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

SystemTime: TypeAlias = Callable[[], int]
"""A function that returns the system time in µs: the only access to the machine's clock."""


def wall_time() -> int:
    """Return the time of the machine's clock, in µs since 1970."""
    return time.time_ns() // 1000


@dataclass(frozen=True)
class FixedTime:
    """System time of a test, which only a source's `advance_us` moves."""

    now_us: int

    def __call__(self) -> int:
        return self.now_us
