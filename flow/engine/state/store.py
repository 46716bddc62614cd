"""The store of a shard's state: headers and segments by step; and the compression of segments.

Spark passes state to Python at some 40 MB/s. LZ4 decompresses at 2 GB/s, and compresses typical
state to less than half. After its kind, a packed segment is the length of the content and an LZ4
frame; small segments stay uncompressed.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from flow.errors import CheckpointError
from flow.keyed.state import PACKED, kind_of

PROGRESS_SEGMENT = -1
"""The number of the segment that has the step's stream progress instead of keys."""
FIRST_BLOCK = -2
"""The number of a step's first block in a shard; each later block has the number below."""


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


_HEAD = struct.Struct("<2sI")
_SMALL = 256
_CODEC = pa.Codec("lz4")


def pack(content: bytes) -> bytes:
    """Return a segment packed, or unchanged if packing would not make it smaller.

    >>> unpack(pack(bytes(1000))) == bytes(1000), len(pack(bytes(1000))) < 100
    (True, True)
    """
    if len(content) < _SMALL:
        return content
    packed = _HEAD.pack(PACKED, len(content)) + _CODEC.compress(content, asbytes=True)
    return packed if len(packed) < len(content) else content


def unpack(content: bytes, where: str = "the state") -> bytes:
    """Return the content of a packed segment.

    Args:
        content: bytes that `pack` returned.
        where: name of the content, for errors.

    Raises:
        CheckpointError: when the content cannot be unpacked.
    """
    if kind_of(content) != PACKED:
        return content
    try:
        _, size = _HEAD.unpack_from(content)
        return bytes(_CODEC.decompress(content[_HEAD.size :], size, asbytes=True))
    except (OSError, struct.error) as error:  # Arrow raises an OSError for a damaged frame.
        raise CheckpointError(f"{where} cannot be unpacked: {error}") from error
