"""The hand-over of the status of a run from the run's thread to the threads of readers.

The run replaces a reference and sets an event for each reader; it takes no lock that a reader holds
while it sends. A reader that is slow misses statuses in between, and gets the newest.
"""

from __future__ import annotations

import json
import threading

from flow.monitoring.run_status import RunStatus, status_json

MAX_READERS = 32
"""The number of pages that may follow a run at once."""


class Reader:
    """A reader of statuses, with room for one: the newest."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._seen: RunStatus | None = None
        self.changed = threading.Event()
        self.changed.set()

    def next(self, timeout: float) -> RunStatus | None:
        """Wait for a status that the reader has not seen; ``None`` after `timeout` seconds."""
        self.changed.wait(timeout)
        self.changed.clear()
        status = self._hub.status
        if status is self._seen:
            return None
        self._seen = status
        return status


class Hub:
    """The newest status of a run, and its readers.

    Args:
        status: the first status.

    Attributes:
        status: the newest status.
    """

    def __init__(self, status: RunStatus) -> None:
        self.status = status
        self._readers: frozenset[Reader] = frozenset()
        self._encoded: tuple[RunStatus, bytes] | None = None
        self._lock = threading.Lock()
        self._empty = threading.Event()
        self._empty.set()

    def publish(self, status: RunStatus) -> None:
        """Replace the status and wake its readers; called by the run, never blocks."""
        self.status = status
        for reader in self._readers:
            reader.changed.set()

    def status_text(self, status: RunStatus) -> bytes:
        """Return a status as JSON, which readers share: the newest is encoded once."""
        encoded = self._encoded
        if encoded is None or encoded[0] is not status:
            text = json.dumps(status_json(status), separators=(",", ":")).encode()
            encoded = self._encoded = (status, text)
        return encoded[1]

    def join(self) -> Reader | None:
        """Return a new reader; ``None`` if there are `MAX_READERS`."""
        with self._lock:
            if len(self._readers) >= MAX_READERS:
                return None
            reader = Reader(self)
            self._readers |= {reader}
            self._empty.clear()
            return reader

    def leave(self, reader: Reader) -> None:
        """Remove a reader."""
        with self._lock:
            self._readers -= {reader}
            if not self._readers:
                self._empty.set()

    def wait_until_left(self, seconds: float) -> bool:
        """Wait until no reader is left; return False after `seconds`."""
        return self._empty.wait(seconds)
