"""Values of many keys that are buffered until the watermark passes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from flow.columns.arrays import Ints, Mask
from flow.columns.sided_records import SidedRecords
from flow.instants import NEVER
from flow_windowing.columnar.values.encoding import ColumnValue, decode_lazy
from flow_windowing.columnar.values.plain_records import columns_of_records

RetainedValues: TypeAlias = "list[Any] | SidedRecords"
"""Values as Python objects, some of which may be encoded, or as records of each side."""


@dataclass
class BufferedValues:
    """Buffered values in columns, sorted by slot; unsorted within a slot.

    Attributes:
        slots: the slot of each value's key.
        times_us: the timestamps, int64 µs.
        numbers: the arrival numbers.
        values: the values; those of a restored segment are decoded when they are released. The
            records that a join by time retains are `SidedRecords`, of the types of plain records.
        enters_us: the watermark at which each value enters windows: its timestamp, or, for a value
            that arrived behind the watermark and enters at once, the watermark at its arrival.
    """

    slots: Ints
    times_us: Ints
    numbers: Ints
    values: RetainedValues
    enters_us: Ints

    @classmethod
    def empty(cls) -> BufferedValues:
        """Return a buffer without values."""
        empty = np.empty(0, np.int64)
        return cls(empty, empty, empty, [], empty)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Ints | Mask) -> BufferedValues:
        """Return the values of the given rows, in the given order."""
        chosen: Ints = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
        return BufferedValues(
            self.slots[chosen],
            self.times_us[chosen],
            self.numbers[chosen],
            _taken(self.values, chosen),
            self.enters_us[chosen],
        )

    def followed_by(self, other: BufferedValues) -> BufferedValues:
        """Return these values and others, those after these, not sorted by slot."""
        return BufferedValues(
            np.concatenate([self.slots, other.slots]),
            np.concatenate([self.times_us, other.times_us]),
            np.concatenate([self.numbers, other.numbers]),
            _joined(self.values, other.values),
            np.concatenate([self.enters_us, other.enters_us]),
        )

    def merge(self, other: BufferedValues) -> BufferedValues:
        """Return these values and others, sorted by slot."""
        if not len(self) or not len(other):
            return other if not len(self) else self
        both = self.followed_by(other)
        return both.take(np.argsort(both.slots, kind="stable"))

    def release(self, is_passed: Mask) -> tuple[BufferedValues, BufferedValues]:
        """Return the values that the watermark has passed, decoded, and all others.

        The passed values are sorted by slot, then `enters_us`, then arrival number.
        """
        out = self.take(is_passed)
        order = np.lexsort((out.numbers, out.enters_us, out.slots))
        out = out.take(order)
        out.values = decode_lazy(objects_of(out.values))
        return out, self.take(~is_passed)

    def skips_buffer(self, slots: Ints, enters_us: Ints, watermark_us: Ints) -> Mask:
        """Return the mask of new values that may enter windows without the buffer.

        The watermark has passed such a value, and no passed buffered value of the key enters later
        than the value.

        Args:
            slots: the slot of each new value.
            enters_us: the watermark at which each new value enters windows.
            watermark_us: the watermark of each slot.
        """
        is_passed: Mask = enters_us <= watermark_us[slots]
        is_due = self.times_us <= watermark_us[self.slots]
        if not is_due.any():
            return is_passed
        newest_us = np.full(len(watermark_us), -NEVER)
        np.maximum.at(newest_us, self.slots[is_due], self.times_us[is_due])
        oldest_us = np.full(len(watermark_us), NEVER)
        np.minimum.at(oldest_us, slots, enters_us)
        is_passed &= (newest_us <= oldest_us)[slots]
        return is_passed

    def next_us(self, slot_count: int, rows: Mask | slice = slice(None)) -> Ints:
        """Return the least buffered timestamp of each slot, `NEVER` for a slot without any.

        Args:
            slot_count: the number of slots.
            rows: the values to consider.
        """
        least = np.full(slot_count, NEVER)
        np.minimum.at(least, self.slots[rows], self.times_us[rows])
        return least


def objects_of(values: RetainedValues) -> list[Any]:
    """Return values as Python objects, some of which may be encoded."""
    if not isinstance(values, SidedRecords):
        return values
    columns = [columns_of_records(batch) for batch in values.batches]
    rows = zip(values.sides.tolist(), values.rows.tolist(), strict=True)
    return [ColumnValue(columns[side], row) for side, row in rows]


def _taken(values: RetainedValues, chosen: Ints) -> RetainedValues:
    if isinstance(values, SidedRecords):
        return values.take(chosen)
    return [values[row] for row in chosen.tolist()]


def _joined(values: RetainedValues, others: RetainedValues) -> RetainedValues:
    """Return values followed by others: records if both are records of the same columns."""
    if not len(values) or not len(others):
        return values if len(values) else others
    if isinstance(values, SidedRecords) and isinstance(others, SidedRecords):
        both = values.concat(others)
        if both is not None:
            return both
    return [*objects_of(values), *objects_of(others)]
