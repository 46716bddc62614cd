"""Pairs and evictions of many keys at once.

All columns are int64. A row is a value; rows that arrive in an epoch are sorted by slot, then
arrival number. Searches within a slot combine slot and rank of a time in one number, as slots and
times in µs together may not fit into 64 bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flow.columns.arrays import Ints, Mask, distinct, ranges
from flow_windowing.interval.rules import LEFT, RIGHT, Interval


class JoinRows(NamedTuple):
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

    def expires_us(self, interval: Interval) -> Ints:
        """Return the least watermark at which each value expires."""
        return np.where(
            self.sides == LEFT,
            interval.expires_us(LEFT, self.times_us),
            interval.expires_us(RIGHT, self.times_us),
        )


class PairRows(NamedTuple):
    """Pairs of rows, given by index.

    Attributes:
        second: the row that arrived second, and makes the pair leave.
        first: the row that arrived first.
    """

    second: Ints
    first: Ints


def pairs_of(interval: Interval, rows: JoinRows, is_new: Mask) -> PairRows:
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
        least_us, greatest_us = interval.bounds_us(side, rows.times_us[new])
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
    return PairRows(np.concatenate(seconds), np.concatenate(firsts))


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
