"""The store of a shard's state: headers and segments by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

PROGRESS_SEGMENT = -1
"""The number of the segment that holds no keys but the progress of the step's stream."""


class StateStore(Protocol):
    """Where the engine keeps headers and segments of one shard: Spark's state, or a dict."""

    def read_header(self, step_id: str) -> bytes | None:
        """A step's header, ``None`` when it has no state."""

    def write_header(self, step_id: str, content: bytes) -> None:
        """Replace a step's header."""

    def read_segments(self, step_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        """The segments of these numbers, ``None`` for those that are empty."""

    def write_segments(self, step_id: str, contents: Mapping[int, bytes | None]) -> None:
        """Replace segments, by number; ``None`` removes one."""


class MemoryStore:
    """A `StateStore` in a dict: what the in-process driver keeps state in."""

    def __init__(self) -> None:
        self._headers: dict[str, bytes] = {}
        self._segments: dict[tuple[str, int], bytes] = {}

    def copied(self) -> MemoryStore:
        """A store with the same content, which does not change with this one."""
        copy = MemoryStore()
        copy._headers.update(self._headers)
        copy._segments.update(self._segments)
        return copy

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
