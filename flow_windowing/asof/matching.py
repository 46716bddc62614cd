"""Left values and their right values, of many keys at once.

All columns are int64. A row is a retained value, given by index.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flow.columns.arrays import Ints
from flow_windowing.asof.rules import NO_RIGHT, AsOf
from flow_windowing.columnar.state.open_windows import WindowRefs, window_ranks
from flow_windowing.columnar.values.buffered_values import BufferedValues
from flow_windowing.interval.rules import LEFT, RIGHT
from flow_windowing.rules.tags import mark_of, side_of
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


def _refs(values: BufferedValues, rows: Ints) -> WindowRefs:
    return WindowRefs(values.slots[rows], values.times_us[rows])
