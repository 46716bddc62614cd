"""Headers and segments of the shard at hand in Spark's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flow.engine.packed import pack, unpack
from flow.engine.state import PROGRESS_SEGMENT, Header
from flow.engine.state_calls import StateCalls


class SparkStore:
    """A `StateStore` in Spark's state, where a step may keep its state under another name.

    Args:
        headers: a `MapState`, step to header.
        segments: a `MapState`, step and number to segment, which is kept packed.
        names: the names that steps keep their state under, where these are not their ids.
    """

    def __init__(self, headers: Any, segments: Any, names: Mapping[str, str]) -> None:
        self._headers = headers
        self._segments = StateCalls(segments)
        self._names = names

    def read_header(self, step_id: str) -> bytes | None:
        return self._header_of(self._names.get(step_id, step_id))

    def write_header(self, step_id: str, content: bytes) -> None:
        self._headers.updateValue((self._names.get(step_id, step_id),), (content,))

    def read_segments(self, step_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        name = self._names.get(step_id, step_id)
        found = self._segments.get((name, number) for number in numbers)
        return [None if one is None else unpack(bytes(one)) for one in found]

    def write_segments(self, step_id: str, contents: Mapping[int, bytes | None]) -> None:
        name = self._names.get(step_id, step_id)
        self._segments.put(
            ((name, number), None if one is None else pack(one)) for number, one in contents.items()
        )

    def put(self, name: str, number: int | None, content: bytes) -> None:
        """Put a segment in place, or with no number a header, under the name it is kept by."""
        if number is None:
            self._headers.updateValue((name,), (content,))
        else:
            self._segments.put([((name, number), pack(content))])

    def drop(self, name: str) -> None:
        """Remove all that is kept under a name."""
        header = self._header_of(name)
        if header is None:
            return
        numbers = (PROGRESS_SEGMENT, *range(Header.decode(header, name).segments))
        self._segments.put(((name, number), None) for number in numbers)
        self._headers.removeKey((name,))

    def _header_of(self, name: str) -> bytes | None:
        found = self._headers.getValue((name,))
        return None if found is None else bytes(found[0])
