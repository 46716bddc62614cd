"""Left values and their right values, of many keys at once.

All columns are int64. A row is a retained value, given by index.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flow.columns.arrays import Ints, Mask, ranges, run_starts
from flow_windowing.asof.rules import NO_RIGHT, AsOf
from flow_windowing.columnar.state.open_windows import WindowRefs, window_ranks
from flow_windowing.columnar.values.buffered_values import BufferedValues
from flow_windowing.interval.rules import LEFT, RIGHT
from flow_windowing.rules.key_state import mark_of, number_of, side_of
from flow_windowing.rules.watermark import COLUMNS


class AsofRows(NamedTuple):
    """The retained values of keys, by side.

    Attributes:
        left: the rows of left values, by slot, timestamp and arrival.
        right: the rows of right values, by slot and timestamp; of those with one slot and timestamp
            only the last to arrive.
        left_slots, right_slots: their slots.
        left_us, right_us: their timestamps.
        deletes: for each right value, 1 if it is ``None``, else 0.
        earlier: for each left value, the index in `right` of the last right value of its key at or
            before it; -1 for none.
        later: the same of the first right value at or after it.
    """

    left: Ints
    right: Ints
    left_slots: Ints
    right_slots: Ints
    left_us: Ints
    right_us: Ints
    deletes: Ints
    earlier: Ints
    later: Ints

    @classmethod
    def of(cls, values: BufferedValues) -> AsofRows:
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
        slots = np.concatenate([right_slots, [-1]])
        return cls(
            left,
            right,
            left_slots,
            right_slots,
            values.times_us[left],
            values.times_us[right],
            mark_of(values.numbers[right]),
            np.where(slots[earlier] == left_slots, earlier, -1),
            np.where(slots[later] == left_slots, later, -1),
        )

    def final_us(self, as_of: AsOf) -> Ints:
        """Return the watermark at which the partner of each left value is final."""
        return as_of.final_us(COLUMNS, self.left_us, *self._around_us())

    def partners(self, as_of: AsOf) -> Ints:
        """Return the index in `right` of each left value's partner; -1 for none."""
        earlier_us, later_us = self._around_us()
        found_us = as_of.partner_us(COLUMNS, self.left_us, earlier_us, later_us)
        is_later = (found_us == later_us) & (found_us != earlier_us) & (self.later >= 0)
        is_earlier = (found_us == earlier_us) & (self.earlier >= 0)
        found = np.where(is_earlier, self.earlier, np.where(is_later, self.later, -1))
        has_value = found >= 0
        has_value[has_value] = self.deletes[found[has_value]] == 0
        return np.where(has_value, found, -1)

    def _around_us(self) -> tuple[Ints, Ints]:
        """Return the timestamps of the earlier and of the later right value of each left value."""
        none_before, none_after = NO_RIGHT
        earlier_us = np.append(self.right_us, none_before)[self.earlier]
        return earlier_us, np.append(self.right_us, none_after)[self.later]

    def expires_us(self, as_of: AsOf) -> Ints:
        """Return the watermark at which each right value expires."""
        return as_of.expires_us(COLUMNS, self.right_us, self.deletes)

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
    none_before, none_after = NO_RIGHT
    earlier_us = np.where(earlier < 0, none_before, times_us[earlier])
    later = np.where(earlier_us == times_us[left], earlier, later)
    later_us = np.where(later < 0, none_after, times_us[later])
    found_us = as_of.partner_us(COLUMNS, times_us[left], earlier_us, later_us)
    found = np.where(found_us == earlier_us, earlier, np.where(found_us == later_us, later, -1))
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
