"""The open windows and buffered values of a step's segments in a shard, as its header has them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from flow.keyed.state_counts import StateCounts


@dataclass
class SegmentCounts:
    """The open windows and buffered values of a step's segments in a shard.

    An earlier version wrote segments without counts. Such a segment is counted once it is written
    again. Invariant: an uncounted segment that has keys contributes to `uncounted`.

    Attributes:
        windows: the number of open windows of each segment, int64, shape (segments,); -1 for an
            uncounted segment.
        values: the number of buffered values of each segment, in the same form.
        uncounted: the number of keys that uncounted segments had when they were written.
    """

    _KEYS: ClassVar = struct.Struct("<q")

    windows: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    uncounted: int = 0

    @classmethod
    def none(cls, segments: int) -> SegmentCounts:
        """Return the counts of segments without windows and values."""
        return cls(np.zeros(segments, np.int64), np.zeros(segments, np.int64))

    @classmethod
    def unknown(cls, segments: int, keys: int) -> SegmentCounts:
        """Return the counts of segments with `keys` keys that are not counted."""
        if not keys:
            return cls.none(segments)
        return cls(np.full(segments, -1, np.int64), np.full(segments, -1, np.int64), keys)

    @property
    def total(self) -> StateCounts | None:
        """The counts of all segments; ``None`` while there are uncounted keys."""
        if self.uncounted:
            return None
        # An uncounted segment without keys stays so: it is not written again.
        return StateCounts(*(int(one[one > 0].sum()) for one in (self.windows, self.values)))

    def set(self, number: int, counts: StateCounts, keys_before: int) -> None:
        """Set the counts of a segment.

        Args:
            number: the segment.
            counts: its counts.
            keys_before: the number of keys that the stored segment had.
        """
        if self.windows[number] < 0:
            self.uncounted -= keys_before
        self.windows[number], self.values[number] = counts

    def resize(self, segments: int) -> None:
        """Change the number of segments; new segments have no windows and values."""
        new = np.zeros(max(0, segments - len(self.windows)), np.int64)
        self.windows = np.concatenate([self.windows[:segments], new])
        self.values = np.concatenate([self.values[:segments], new])

    def encode(self) -> bytes:
        """Return the counts as bytes."""
        columns = (one.astype("<i4").tobytes() for one in (self.windows, self.values))
        return b"".join([self._KEYS.pack(self.uncounted), *columns])

    @classmethod
    def decode(cls, content: bytes, at: int, segments: int) -> SegmentCounts:
        """Return the counts in bytes made by `encode` that begin at an offset."""
        (uncounted,) = cls._KEYS.unpack_from(content, at)
        columns = np.frombuffer(content, "<i4", 2 * segments, at + cls._KEYS.size)
        windows, values = columns.astype(np.int64).reshape(2, segments)
        return cls(windows, values, uncounted)

    @classmethod
    def length_of(cls, segments: int) -> int:
        """Return the length in bytes of encoded counts."""
        return cls._KEYS.size + 8 * segments
