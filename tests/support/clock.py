"""A clock for tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """Clock in seconds that the test sets; each reading advances it."""

    now: float = 0
    passing: float = 0

    def __call__(self) -> float:
        self.now += self.passing
        return self.now
