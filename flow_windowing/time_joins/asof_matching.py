"""Matching of an as-of join: partners, the time at which they are final, and expiry.

All columns are int64, and timestamps are in µs since the Unix epoch. A row is a retained value,
given by index.

Of right values with one timestamp only the last to arrive counts. A right value of ``None`` is
found like any other; a left value that finds it has no partner. A left value's *earlier* right
value is the last at or before it, and its *later* one the first at or after it; one of them is its
partner. A right value that is on time is not behind the watermark. So the partner is final once the
watermark is past all times at which a right value would be found in the partner's place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from flow.columns.arrays import Ints, Mask, ranges, run_starts
from flow.instants import NEVER
from flow_windowing.columnar.state.shard_state import WindowRefs, window_ranks
from flow_windowing.columnar.values.buffered_values import BufferedValues
from flow_windowing.rules.key_state import mark_of, number_of, side_of
from flow_windowing.time_joins.interval_matching import LEFT, RIGHT, Interval

Direction: TypeAlias = Literal["backward", "forward", "nearest"]
"""The direction in which a left value looks for its partner."""

How: TypeAlias = Literal["left", "inner"]
"""The left values that leave: all, or those with a partner."""

AsofEmit: TypeAlias = Literal["close", "now"]
"""The time at which a left value leaves: once its partner is final, or on arrival."""


class Around(NamedTuple):
    """The right values around left values.

    Attributes:
        earlier: for each left value, the row of its earlier right value; -1 for none.
        later: the row of its later right value; -1 for none.
        back_us: the time from the earlier right value to the left value; `NEVER` for none.
        ahead_us: the time from the left value to the later right value; `NEVER` for none.
    """

    earlier: Ints
    later: Ints
    back_us: Ints
    ahead_us: Ints

    @classmethod
    def of(cls, left_us: Ints, earlier: Ints, later: Ints, right_us: Ints) -> Around:
        """Return the rows around left values, given by row of `right_us`, with distances."""
        times_us = np.append(right_us, 0)
        back_us = np.where(earlier < 0, NEVER, left_us - times_us[earlier])
        ahead_us = np.where(later < 0, NEVER, times_us[later] - left_us)
        return cls(earlier, later, back_us, ahead_us)


@dataclass(frozen=True)
class AsOf:
    """The rule by which left values find their partners.

    Attributes:
        direction: the direction.
        tolerance_us: the greatest distance of a partner, inclusive.

    >>> nearest, right_us = AsOf("nearest", tolerance_us=10), np.array([95, 104, 105])
    >>> left_us, earlier, later = np.full(3, 100), np.array([0, 0, -1]), np.array([1, 2, -1])
    >>> around = Around.of(left_us, earlier, later, right_us)
    >>> nearest.partners(around).tolist(), nearest.final_us(left_us, around).tolist()
    ([1, 0, -1], [105, 105, 111])
    """

    direction: Direction
    tolerance_us: int

    @property
    def looks_back(self) -> bool:
        """True if right values before a left value may be its partners."""
        return self.direction != "forward"

    @property
    def looks_ahead(self) -> bool:
        """True if right values after a left value may be its partners."""
        return self.direction != "backward"

    @cached_property
    def interval(self) -> Interval:
        """The interval in which a left value has partners."""
        before_us = self.tolerance_us if self.looks_back else 0
        return Interval(before_us, self.tolerance_us if self.looks_ahead else 0, 0)

    def partners(self, around: Around) -> Ints:
        """Return the rows of partners, -1 for none; of two as near, the earlier one."""
        back_us = around.back_us if self.looks_back else NEVER
        ahead_us = around.ahead_us if self.looks_ahead else NEVER
        found = np.where(ahead_us < back_us, around.later, around.earlier)
        return np.where(np.minimum(back_us, ahead_us) <= self.tolerance_us, found, -1)

    def final_us(self, left_us: Ints, around: Around) -> Ints:
        """Return the least watermarks at which the partners of left values are final."""
        if not self.looks_ahead:
            return left_us + 1
        wait_us = np.minimum(around.ahead_us, self.tolerance_us)
        if self.looks_back:
            # A later right value is found only if it is nearer than the earlier one.
            wait_us = np.minimum(wait_us, np.maximum(around.back_us - 1, 0))
        return left_us + wait_us + 1

    def expires_us(self, right_us: Ints, deletes: Ints) -> Ints:
        """Return the least watermarks at which right values find no left value on time any more.

        Args:
            right_us: the timestamps of right values.
            deletes: 1 for a right value that is ``None``, else 0.
        """
        if self.direction == "backward":
            # To find nothing is the same as to find a right value that deletes.
            return right_us + np.where(deletes == 1, 0, self.tolerance_us + 1)
        return right_us + (self.tolerance_us + 1 if self.looks_back else 1)


class AsofRows(NamedTuple):
    """The retained values of keys, by side.

    Attributes:
        left: the rows of left values, by slot, timestamp and arrival.
        right: the rows of right values, by slot and timestamp; of those with one slot and timestamp
            only the last to arrive.
        left_slots, right_slots: their slots.
        left_us, right_us: their timestamps.
        deletes: for each right value, 1 if it is ``None``, else 0.
        around: the right values around each left value, by index in `right`.
        final_us: for each left value, the watermark at which its partner is final.
        expires_us: for each right value, the watermark at which it expires.
    """

    left: Ints
    right: Ints
    left_slots: Ints
    right_slots: Ints
    left_us: Ints
    right_us: Ints
    deletes: Ints
    around: Around
    final_us: Ints
    expires_us: Ints

    @classmethod
    def of(cls, as_of: AsOf, values: BufferedValues) -> AsofRows:
        """Return values by side, sorted; of right values of a timestamp only the last to arrive."""
        sides = side_of(values.numbers)
        left, right = np.flatnonzero(sides == LEFT), np.flatnonzero(sides == RIGHT)
        of_left, of_right = window_ranks(_refs(values, left), _refs(values, right))
        left_order = np.argsort(of_left, kind="stable")
        right_order = np.argsort(of_right, kind="stable")
        left, of_left = left[left_order], of_left[left_order]
        right, of_right = right[right_order], of_right[right_order]
        is_last = np.append(of_right[1:] != of_right[:-1], np.ones(min(len(right), 1), np.bool_))
        right, of_right = right[is_last], of_right[is_last]
        left_slots, right_slots = values.slots[left], values.slots[right]
        earlier = np.searchsorted(of_right, of_left, "right") - 1
        later = np.searchsorted(of_right, of_left, "left")
        # The rows before the first and after the last right value are of no slot.
        slots = np.append(right_slots, -1)
        earlier = np.where(slots[earlier] == left_slots, earlier, -1)
        later = np.where(slots[later] == left_slots, later, -1)
        left_us, right_us = values.times_us[left], values.times_us[right]
        around = Around.of(left_us, earlier, later, right_us)
        deletes = mark_of(values.numbers[right])
        final_us, expires_us = as_of.final_us(left_us, around), as_of.expires_us(right_us, deletes)
        return cls(
            *(left, right, left_slots, right_slots, left_us, right_us),
            *(deletes, around, final_us, expires_us),
        )

    def partners(self, as_of: AsOf) -> Ints:
        """Return the index in `right` of each left value's partner; -1 for none."""
        found = as_of.partners(self.around)
        return np.where(np.append(self.deletes, 1)[found] == 1, -1, found)

    def last_right(self) -> Ints:
        """Return the index in `right` of the last right value of each slot that has one."""
        return np.flatnonzero(np.append(np.diff(self.right_slots), 1)[: len(self.right)])


def partners_at_arrival(as_of: AsOf, values: BufferedValues) -> tuple[Ints, Ints]:
    """Return left values and their partners among the right values that arrived before them.

    Returns:
        The rows of the left values, and the rows of their partners; -1 for none.
    """
    is_left = side_of(values.numbers) == LEFT
    chosen = np.flatnonzero(np.isin(values.slots, values.slots[is_left]))
    times_us, is_left = values.times_us[chosen], is_left[chosen]
    around = _around_at_arrival(
        values.slots[chosen], times_us, number_of(values.numbers[chosen]), is_left
    )
    left = np.flatnonzero(is_left)
    earlier, later = (rows[left] for rows in around)
    # A right value at the time of a left value is both its earlier and its later one.
    later = np.where(np.append(times_us, NEVER)[earlier] == times_us[left], earlier, later)
    found = as_of.partners(Around.of(times_us[left], earlier, later, times_us))
    is_partner = (found >= 0) & (mark_of(values.numbers[chosen[found]]) == 0)
    return chosen[left], np.where(is_partner, chosen[found], -1)


def _around_at_arrival(
    slots: Ints, times_us: Ints, numbers: Ints, is_left: Mask
) -> tuple[Ints, Ints]:
    """Return the right values around each left value that arrived before it.

    Two values of a key are compared in the round of the highest bit in which their ranks by
    arrival differ: the value with a 0 there arrived first. So a round compares values of all keys
    at once, and there are as many rounds as the greatest rank has bits.

    Args:
        slots: the slot of each value.
        times_us: the timestamps.
        numbers: the arrival numbers.
        is_left: the mask of left values.

    Returns:
        The row of the last right value at or before each left value, and of the first after it; of
        those with equal timestamps, the last to arrive; -1 for none.
    """
    ranks = _ranks_in_slot(slots, numbers)
    earlier, later = np.full(len(slots), -1), np.full(len(slots), -1)
    # At equal timestamps, right values come first, the last to arrive as the last of them.
    by_time = np.lexsort((numbers, is_left, times_us, slots))
    for bit in range(int(ranks.max(initial=0)).bit_length()):
        halves = ranks[by_time] >> bit
        order = np.lexsort((halves >> 1, slots[by_time]))
        rows, is_first = by_time[order], (halves[order] & 1) == 0
        group = np.cumsum(np.diff(slots[rows] * (len(slots) + 1) + (halves[order] >> 1)) != 0)
        group = np.concatenate([np.zeros(min(len(rows), 1), np.int64), group])
        right = np.flatnonzero(is_first & ~is_left[rows])
        left = np.flatnonzero(~is_first & is_left[rows])
        last_equal = np.append(
            (np.diff(times_us[rows[right]]) != 0) | (np.diff(group[right]) != 0), True
        )
        right = right[last_equal[: len(right)]]
        next_right = np.searchsorted(right, left)
        for best, at in ((earlier, next_right - 1), (later, next_right)):
            is_in = (at >= 0) & (at < len(right))
            is_in[is_in] = group[right[at[is_in]]] == group[left[is_in]]
            asking, found = rows[left[is_in]], rows[right[at[is_in]]]
            known = best[asking]
            distance_us = np.abs(times_us[found] - times_us[asking])
            least_us = np.abs(times_us[known] - times_us[asking])
            is_nearer = (known < 0) | (distance_us < least_us)
            is_nearer |= (distance_us == least_us) & (numbers[found] > numbers[known])
            best[asking[is_nearer]] = found[is_nearer]
    return earlier, later


def _ranks_in_slot(slots: Ints, numbers: Ints) -> Ints:
    """Return the rank of each value among those of its slot, by arrival number, from 0."""
    order = np.lexsort((numbers, slots))
    starts = run_starts(slots[order])
    ranks = np.empty(len(slots), np.int64)
    ranks[order] = ranges(np.zeros(len(starts), np.int64), np.diff(starts, append=len(slots)))
    return ranks


def _refs(values: BufferedValues, rows: Ints) -> WindowRefs:
    return WindowRefs(values.slots[rows], values.times_us[rows])
