"""Logs of sources: durable lists for data that is too large for an offset."""

from __future__ import annotations

from typing import Any, Protocol


class SourceLog(Protocol):
    """Durable list of a source, kept in the flow's checkpoint.

    For data too large for an offset, such as the list of files seen. A planner that appends for as
    long as a flow runs replaces entries by a summary, so that the log stays small.
    """

    def summary(self) -> bytes | None:
        """Return the summary of the last `compact`; ``None`` if there was none."""

    def entries(self) -> list[Any]:
        """Return all entries appended since the last `compact`, in order; each is JSON."""

    def append(self, entry: Any) -> None:
        """Add an entry, and write it to disk before returning."""

    def compact(self, summary: bytes) -> None:
        """Replace all entries, and the summary before, by a summary.

        The summary is on disk when the method returns. A process that dies during the call leaves
        either the log before the call or the summary.
        """


class MemoryLog:
    """`SourceLog` in memory."""

    def __init__(self) -> None:
        self._summary: bytes | None = None
        self._entries: list[Any] = []

    def summary(self) -> bytes | None:
        """Return the summary of the last `compact`; ``None`` if there was none."""
        return self._summary

    def entries(self) -> list[Any]:
        """Return all entries appended since the last `compact`, in order."""
        return list(self._entries)

    def append(self, entry: Any) -> None:
        """Add an entry."""
        self._entries.append(entry)

    def compact(self, summary: bytes) -> None:
        """Replace all entries, and the summary before, by a summary."""
        self._summary, self._entries = summary, []
