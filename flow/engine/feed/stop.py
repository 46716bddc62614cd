"""End of a run: the flag with which a user stops it, and the events between feed and run."""

from __future__ import annotations

import threading


class FeedEnd:
    """How a run ends: events that the feed sets, and the run waits for."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.stop_asked = threading.Event()
        self.closed = threading.Event()


class StopFlag:
    """Lets another thread, or a signal, ask a run to stop between two epochs."""

    def __init__(self) -> None:
        self._ends: list[FeedEnd] = []
        self.asked = threading.Event()

    def ask(self) -> None:
        """Ask the run to finish the epoch in hand and stop."""
        self.asked.set()
        for end in self._ends:
            end.stop_asked.set()

    def watch(self, end: FeedEnd) -> None:
        """Let a feed know when the run is asked to stop."""
        self._ends.append(end)
        if self.asked.is_set():
            end.stop_asked.set()
