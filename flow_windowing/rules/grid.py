"""The grid of aligned windows: windows of a timestamp, bounds and closes.

Both paths use the same arithmetic: timestamps and window ids are integers, or int64 arrays of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from flow.columns.arrays import Ints

N = TypeVar("N", int, Ints)


@dataclass(frozen=True)
class Grid:
    """Windows of one length that open at every multiple of an offset.

    Window i is [open, open + length) with open = align + i * offset; with `closed_right` it is
    (open, open + length]. All times are µs since the Unix epoch.

    Attributes:
        length_us: length of a window.
        offset_us: distance between two opens. Windows overlap if it is less than the length, and
            leave gaps if it is greater.
        align_us: open of window 0.
        closed_right: True if a window holds its close and not its open.
        grace_us: the time past its close for which a window stays open.

    >>> hours = Grid(length_us=60, offset_us=30, align_us=0, closed_right=False, grace_us=5)
    >>> hours.first_at(33), hours.last_at(33), hours.bounds_us(1), hours.closed_at_us(1)
    (0, 1, (30, 90), 95)
    """

    length_us: int
    offset_us: int
    align_us: int
    closed_right: bool
    grace_us: int

    @property
    def is_tumbling(self) -> bool:
        """True if each timestamp is in exactly one window."""
        return self.length_us == self.offset_us

    @property
    def has_gaps(self) -> bool:
        """True if a timestamp may be in no window."""
        return self.offset_us > self.length_us

    @cached_property
    def origin_us(self) -> int:
        """The least timestamp of window 0.

        Times are whole microseconds, so (open, close] is the same as [open + 1, close + 1).
        """
        return self.align_us + self.closed_right

    @cached_property
    def closing_us(self) -> int:
        """The watermark at which window 0 closes, grace included."""
        return self.origin_us + self.length_us + self.grace_us

    def last_at(self, time_us: N) -> N:
        """Return the id of the last window that opens at or before a timestamp."""
        return (time_us - self.origin_us) // self.offset_us

    def first_at(self, time_us: N) -> N:
        """Return the id of the first window that holds a timestamp; beyond `last_at` in a gap."""
        return (time_us - (self.origin_us + self.length_us)) // self.offset_us + 1

    def bounds_us(self, window_id: N) -> tuple[N, N]:
        """Return open and close of a window."""
        open_us = self.align_us + window_id * self.offset_us
        return open_us, open_us + self.length_us

    def closed_at_us(self, window_id: N) -> N:
        """Return the least watermark at which a window is closed, grace included."""
        return self.closing_us + window_id * self.offset_us

    def first_open(self, watermark_us: N) -> N:
        """Return the id of the first window that a watermark has not closed."""
        return (watermark_us - self.closing_us) // self.offset_us + 1
