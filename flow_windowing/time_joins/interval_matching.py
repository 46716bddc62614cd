"""Matching of an interval join: partners, expiry and lateness.

All columns are int64, and timestamps are in µs since the Unix epoch.

A value is on time if its timestamp plus the grace is not behind the watermark. A left value at t
has partners up to t + after, so once the watermark is past t + after + grace, no partner on time
can come: the value expires at the next microsecond. The same holds for a right value at t with
t + before. So two values that are both on time, and match, always meet; and a value that has
expired matches no value that is on time, in whichever order the step compares and evicts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from flow.columns.arrays import Ints, Mask, distinct, ranges
from flow.instants import MAX_US, MIN_US, from_us
from flow_windowing.rules.metadata import WindowMetadata

How: TypeAlias = Literal["inner", "left", "right", "outer"]
"""The sides whose values an interval join also emits without a partner."""

LEFT, RIGHT = 0, 1
"""The numbers of the sides."""

GREATEST_US = MAX_US - MIN_US
"""The greatest distance of two timestamps; a longer duration has the same effect."""


@dataclass(frozen=True)
class Interval:
    """The interval of a join: a pair matches if left - before <= right <= left + after.

    Attributes:
        before_us: the time before a left value at which partners begin; may be negative.
        after_us: the time after a left value at which partners end; may be negative, and is at
            least ``-before_us``.
        grace_us: the time for which a value behind the watermark is still on time.

    >>> five, sides = Interval(before_us=5, after_us=1, grace_us=0), np.array([LEFT, RIGHT])
    >>> [bounds.tolist() for bounds in five.bounds_us(sides, np.array([100, 100]))]
    [[95, 99], [101, 105]]
    >>> five.expires_us(sides, np.array([100, 100])).tolist()
    [102, 106]
    """

    before_us: int
    after_us: int
    grace_us: int

    def bounds_us(self, sides: Ints, times_us: Ints) -> tuple[Ints, Ints]:
        """Return the least and the greatest timestamp of the partners of values, both inclusive.

        Args:
            sides: the sides of the values.
            times_us: the timestamps of the values.
        """
        is_left = np.equal(sides, LEFT)
        back_us = np.where(is_left, self.before_us, self.after_us)
        ahead_us = np.where(is_left, self.after_us, self.before_us)
        return times_us - back_us, times_us + ahead_us

    def expires_us(self, sides: Ints, times_us: Ints) -> Ints:
        """Return the least watermarks at which no partner on time can come any more."""
        return self.bounds_us(sides, times_us)[1] + (self.grace_us + 1)

    def windows_of(self, sides: Ints, times_us: Ints) -> list[WindowMetadata]:
        """Return the windows of values: the intervals of their partners.

        Args:
            sides: the sides of the values.
            times_us: the timestamps of the values, which are the windows' ids.
        """
        opens, closes = (
            map(from_us, bounds.tolist()) for bounds in self.bounds_us(sides, times_us)
        )
        return [
            WindowMetadata(time_us, open_time, close_time, timestamp=from_us(time_us))
            for time_us, open_time, close_time in zip(times_us.tolist(), opens, closes, strict=True)
        ]


class SidedRows(NamedTuple):
    """Values of an interval join.

    Attributes:
        slots: the slot of each value's key.
        times_us: the timestamps, int64 µs.
        numbers: the arrival numbers.
        sides: the sides.
    """

    slots: Ints
    times_us: Ints
    numbers: Ints
    sides: Ints


class RowPairs(NamedTuple):
    """Pairs of rows, given by index.

    Attributes:
        second: the row that arrived second, and makes the pair leave.
        first: the row that arrived first.
    """

    second: Ints
    first: Ints


def pairs_of(interval: Interval, rows: SidedRows, is_new: Mask) -> RowPairs:
    """Return the pairs that new rows make with earlier rows of the other side.

    Rows that have expired before a new row may be among the rows; they do not match the new row.

    Args:
        interval: the interval.
        rows: the retained and the new rows of the keys with new rows, in any order.
        is_new: the mask of new rows.
    """
    seconds, firsts = list[Ints](), list[Ints]()
    for side in (LEFT, RIGHT):
        new = np.flatnonzero(is_new & (rows.sides == side))
        others = np.flatnonzero(rows.sides != side)
        others = others[np.lexsort((rows.times_us[others], rows.slots[others]))]
        least_us, greatest_us = interval.bounds_us(rows.sides[new], rows.times_us[new])
        times_us = distinct(np.sort(rows.times_us[others]))
        width = len(times_us) + 1
        ranked = rows.slots[others] * width + np.searchsorted(times_us, rows.times_us[others])
        base = rows.slots[new] * width
        begin = np.searchsorted(ranked, base + np.searchsorted(times_us, least_us, "left"))
        end = np.searchsorted(ranked, base + np.searchsorted(times_us, greatest_us, "right"))
        counts = end - begin
        second, first = np.repeat(new, counts), others[ranges(begin, counts)]
        is_earlier = rows.numbers[first] < rows.numbers[second]
        seconds.append(second[is_earlier])
        firsts.append(first[is_earlier])
    return RowPairs(np.concatenate(seconds), np.concatenate(firsts))


def evicted_at(
    slots: Ints, expires_us: Ints, own: Ints, row_slots: Ints, watermark_us: Ints
) -> Ints:
    """Return the index of the arriving row that evicts each value, -1 for none.

    It is the first row of the key, from the value's own on, whose watermark reaches the expiry.

    Args:
        slots: the slot of each value.
        expires_us: the least watermark at which each value expires.
        own: the index of each value's own arriving row; -1 for a value that arrived earlier.
        row_slots: the slot of each arriving row, ascending.
        watermark_us: the watermark after each arriving row, ascending within a slot.
    """
    known_us = distinct(np.sort(watermark_us))
    width = len(known_us) + 1
    ranked = row_slots * width + np.searchsorted(known_us, watermark_us)
    found = np.searchsorted(ranked, slots * width + np.searchsorted(known_us, expires_us))
    found = np.maximum(found, own)
    is_evicted = found < len(row_slots)
    is_evicted[is_evicted] = row_slots[found[is_evicted]] == slots[is_evicted]
    return np.where(is_evicted, found, -1)
