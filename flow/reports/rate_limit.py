"""The limit of the rate of log messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Seconds: TypeAlias = Callable[[], float]
"""A monotonic clock, in seconds."""


class RateLimit:
    """A limit of one event per interval; the first event is always allowed."""

    def __init__(self, seconds: float, clock: Seconds) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = float("-inf")

    def allows(self) -> bool:
        """Return True if an event may happen now, and start the next interval then."""
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True
