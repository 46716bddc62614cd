"""Rules of an interval join: partners, expiry and lateness. Both paths use them.

Timestamps are integers, or int64 arrays of them, in µs since the Unix epoch.

A value is on time if its timestamp plus the grace is not behind the watermark. A left value at t
has partners up to t + after, so once the watermark is past t + after + grace, no partner on time
can come: the value expires at the next microsecond. The same holds for a right value at t with
t + before. So two values that are both on time, and match, always meet; and a value that has
expired matches no value that is on time, in whichever order the step compares and evicts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from flow.columns.arrays import Ints
from flow.instants import MAX_US, MIN_US, from_us
from flow_windowing.contract.metadata import WindowMetadata

How: TypeAlias = Literal["inner", "left", "right", "outer"]
"""The sides whose values an interval join also emits without a partner."""

HOWS = ("inner", "left", "right", "outer")
LEFT, RIGHT = 0, 1
"""The numbers of the sides."""

GREATEST_US = MAX_US - MIN_US
"""The greatest distance of two timestamps; a longer duration has the same effect."""

N = TypeVar("N", int, Ints)


@dataclass(frozen=True)
class Interval:
    """The interval of a join: a pair matches if left - before <= right <= left + after.

    Attributes:
        before_us: the time before a left value at which partners begin; may be negative.
        after_us: the time after a left value at which partners end; may be negative, and is at
            least ``-before_us``.
        grace_us: the time for which a value behind the watermark is still on time.

    >>> five = Interval(before_us=5, after_us=1, grace_us=0)
    >>> five.bounds_us(LEFT, 100), five.bounds_us(RIGHT, 100)
    ((95, 101), (99, 105))
    >>> five.expires_us(LEFT, 100), five.expires_us(RIGHT, 100)
    (102, 106)
    """

    before_us: int
    after_us: int
    grace_us: int

    def bounds_us(self, side: int, timestamp_us: N) -> tuple[N, N]:
        """Return the least and the greatest timestamp of the partners of values, both inclusive.

        Args:
            side: the side of the values.
            timestamp_us: the timestamps of the values.
        """
        if side == LEFT:
            return timestamp_us - self.before_us, timestamp_us + self.after_us
        return timestamp_us - self.after_us, timestamp_us + self.before_us

    def expires_us(self, side: int, timestamp_us: N) -> N:
        """Return the least watermark at which no partner on time can come any more."""
        return self.bounds_us(side, timestamp_us)[1] + (self.grace_us + 1)

    def window_of(self, side: int, timestamp_us: int) -> WindowMetadata:
        """Return the window of a value: the interval of its partners.

        Args:
            side: the side of the value.
            timestamp_us: the timestamp of the value, which is the window's id.
        """
        open_us, close_us = map(from_us, self.bounds_us(side, timestamp_us))
        return WindowMetadata(timestamp_us, open_us, close_us, timestamp=from_us(timestamp_us))
