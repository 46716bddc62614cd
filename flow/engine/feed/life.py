"""The life of a run: its system time, the flag with which a user stops it, and its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


class FeedEnd:
    """Events at the end of a run.

    Attributes:
        done: the feed plans no further epoch.
        stop_asked: the user has asked the run to stop.
        closed: the run has stopped.
    """

    def __init__(self) -> None:
        self.done = threading.Event()
        self.stop_asked = threading.Event()
        self.closed = threading.Event()


class StopFlag:
    """Flag with which another thread, or a signal handler, stops a run between two epochs."""

    def __init__(self) -> None:
        self._ends: list[FeedEnd] = []
        self._calls: list[Callable[[], object]] = []
        self.asked = threading.Event()

    def ask(self) -> None:
        """Ask the run to finish the current epoch and stop."""
        self.asked.set()
        for end in self._ends:
            end.stop_asked.set()
        for call in list(self._calls):
            call()

    def on_ask(self, call: Callable[[], object]) -> None:
        """Register a function that `ask` calls, in its thread or signal handler: must not block."""
        self._calls.append(call)
        if self.asked.is_set():
            call()

    def watch(self, end: FeedEnd) -> None:
        """Register the events of a run, which `ask` stops."""
        self._ends.append(end)
        if self.asked.is_set():
            end.stop_asked.set()


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
