"""The open windows and buffered values of a step's segments in a shard, as its header has them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from flow.keyed.state_counts import StateCounts


@dataclass
class SegmentCounts:
    """The open windows and buffered values of a step's segments in a shard.

    An earlier version wrote segments without counts. Such a segment is counted, and written again,
    by the first epoch that loads it. Invariant: while `uncounted` is 0, no segment is uncounted.

    Attributes:
        counts: the open windows and the buffered values of each segment, int32, shape
            (2, segments); -1 for an uncounted segment.
        uncounted: the number of keys that uncounted segments had when they were written.
    """

    _KEYS: ClassVar = struct.Struct("<q")

    counts: npt.NDArray[np.int32]
    uncounted: int = 0

    @classmethod
    def none(cls, segments: int) -> SegmentCounts:
        """Return the counts of segments without windows and values."""
        return cls(np.zeros((2, segments), np.int32))

    @classmethod
    def unknown(cls, segments: int, keys: int) -> SegmentCounts:
        """Return the counts of segments with `keys` keys that are not counted."""
        if not keys:
            return cls.none(segments)
        return cls(np.full((2, segments), -1, np.int32), keys)

    @property
    def total(self) -> StateCounts | None:
        """The counts of all segments; ``None`` while there are uncounted keys."""
        return None if self.uncounted else StateCounts(*self.counts.sum(1, np.int64).tolist())

    def missing(self, numbers: Iterable[int]) -> set[int]:
        """Return the segments among `numbers` that are uncounted."""
        if not self.uncounted:
            return set()
        return {number for number in numbers if self.counts[0, number] < 0}

    def set(self, number: int, counts: StateCounts, keys_before: int) -> None:
        """Set the counts of a segment.

        Args:
            number: the segment.
            counts: its counts.
            keys_before: the number of keys that the stored segment had.
        """
        if self.uncounted and self.counts[0, number] < 0:
            self.uncounted -= keys_before
            if not self.uncounted:  # The other uncounted segments have no keys.
                np.maximum(self.counts, 0, out=self.counts)
        self.counts[0, number], self.counts[1, number] = counts

    def resize(self, segments: int) -> None:
        """Change the number of segments; new segments have no windows and values."""
        new = np.zeros((2, max(0, segments - self.counts.shape[1])), np.int32)
        self.counts = np.concatenate([self.counts[:, :segments], new], axis=1)

    def encode(self) -> bytes:
        """Return the counts as bytes."""
        return self._KEYS.pack(self.uncounted) + self.counts.astype("<i4", copy=False).tobytes()

    @classmethod
    def decode(cls, content: bytes, at: int, segments: int) -> SegmentCounts:
        """Return the counts in bytes made by `encode` that begin at an offset."""
        (uncounted,) = cls._KEYS.unpack_from(content, at)
        counts = np.frombuffer(content, "<i4", 2 * segments, at + cls._KEYS.size)
        return cls(counts.astype(np.int32).reshape(2, segments), uncounted)

    @classmethod
    def length_of(cls, segments: int) -> int:
        """Return the length in bytes of encoded counts."""
        return cls._KEYS.size + 8 * segments
