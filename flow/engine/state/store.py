"""The store of a shard's state: headers and segments by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

PROGRESS_SEGMENT = -1
"""The number of the segment that has the step's stream progress instead of keys."""


class StateStore(Protocol):
    """Storage of the headers and segments of one shard, such as Spark's state or a dict."""

    def read_header(self, step_id: str) -> bytes | None:
        """Return a step's header; ``None`` for a step without state."""

    def write_header(self, step_id: str, content: bytes) -> None:
        """Replace a step's header."""

    def read_segments(self, step_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        """Return segments in the order of `numbers`; ``None`` for an empty segment."""

    def write_segments(self, step_id: str, contents: Mapping[int, bytes | None]) -> None:
        """Replace segments, by number; ``None`` removes a segment."""


class MemoryStore:
    """A `StateStore` in dicts, for the in-process engine."""

    def __init__(self) -> None:
        self._headers: dict[str, bytes] = {}
        self._segments: dict[tuple[str, int], bytes] = {}

    def copy(self) -> MemoryStore:
        """Return an independent copy of the store."""
        store = MemoryStore()
        store._headers.update(self._headers)
        store._segments.update(self._segments)
        return store

    def read_header(self, step_id: str) -> bytes | None:
        return self._headers.get(step_id)

    def write_header(self, step_id: str, content: bytes) -> None:
        self._headers[step_id] = content

    def read_segments(self, step_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        return [self._segments.get((step_id, number)) for number in numbers]

    def write_segments(self, step_id: str, contents: Mapping[int, bytes | None]) -> None:
        for number, content in contents.items():
            if content is None:
                self._segments.pop((step_id, number), None)
            else:
                self._segments[step_id, number] = content
