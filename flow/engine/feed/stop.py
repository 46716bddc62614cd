"""End of a run: the flag with which a user stops it, and the events between feed and run."""

from __future__ import annotations

import threading
from collections.abc import Callable


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
