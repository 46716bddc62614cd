"""Values of many keys that are buffered until the watermark passes them, and their encoding.

Segments hold slices of the values, which become columns once for all segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from flow.columns.arrays import Ints, Mask
from flow.columns.plain_columns import PlainColumns
from flow.columns.record_batches import NO_RECORDS, SidedRecords
from flow.instants import NEVER
from flow_windowing.columnar.values.encoding import (
    ColumnValue,
    EncodedValues,
    decode_column,
    decode_lazy,
    lazy_values,
    pickle_values,
    sides_of,
    to_plain_columns,
)
from flow_windowing.columnar.values.records import columns_of_records, joined_columns
from flow_windowing.rules.key_state import side_of

RetainedValues: TypeAlias = "list[Any] | SidedRecords"
"""Values as Python objects, some of which may be encoded, or as records of each side."""
SliceEncoder: TypeAlias = Callable[[int, int], EncodedValues]
"""Function that encodes the values from one index to another, exclusive."""


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


def encoder_of(values: RetainedValues) -> SliceEncoder:
    """Return the function that encodes slices of values."""
    if isinstance(values, SidedRecords):
        return _encoder_of_records(values)
    columns = to_plain_columns(values)
    return partial(_pickled, values) if columns is None else partial(_of_columns, columns)


def _encoder_of_records(values: SidedRecords) -> SliceEncoder:
    """Return the encoder of records; sides with the same columns share them."""
    of_sides = [values.of_side(side) for side in range(len(values.batches))]
    parts = [
        (indices, columns_of_records(batch)) for indices, batch in of_sides if batch.num_columns
    ]
    if not parts:
        return partial(_pickled, [])
    (_, first), *others = parts
    if not all(first.has_layout_of(columns) for _, columns in others):
        return partial(_of_sides, values.sides, [columns for _, columns in parts])
    order = np.argsort(np.concatenate([indices for indices, _ in parts]))
    columns = first.concatenate([columns for _, columns in others])
    return partial(_of_columns, columns.take(order))


def _pickled(values: list[Any], begin: int, end: int) -> EncodedValues:
    return pickle_values(values[begin:end])


def _of_columns(columns: PlainColumns, begin: int, end: int) -> EncodedValues:
    return columns.take(slice(begin, end)).encoded() if begin < end else []


def _of_sides(sides: Ints, columns: list[PlainColumns], begin: int, end: int) -> EncodedValues:
    here = sides[begin:end]
    before = np.bincount(sides[:begin], minlength=len(columns))
    after = before + np.bincount(here, minlength=len(columns))
    parts = [
        one.take(slice(first, last))
        for one, first, last in zip(columns, before.tolist(), after.tolist(), strict=True)
    ]
    filled = [one for one in parts if len(one)]
    if len(filled) < 2:
        return filled[0].encoded() if filled else []
    return here.astype(np.int8).tobytes(), tuple(one.encoded() for one in parts)


def restored_values(
    slots: Ints, parts: Sequence[tuple[bytes, bytes, EncodedValues]], is_join: bool
) -> BufferedValues:
    """Return stored values, one part after the other.

    Args:
        slots: the slot of each value.
        parts: the timestamps, the arrival numbers and the values of each segment or block.
        is_join: True for the values of a join by time, which are records of each side if possible.
    """
    times_us = decode_column([part[0] for part in parts])
    numbers = decode_column([part[1] for part in parts])
    contents = [part[2] for part in parts]
    values: RetainedValues | None = None
    if is_join:
        values = restored_records(contents, side_of(numbers))
    if values is None:
        values = [value for content in contents for value in lazy_values(content)]
    return BufferedValues(slots, times_us, numbers, values, times_us)


def restored_records(contents: Sequence[EncodedValues], sides: Ints) -> SidedRecords | None:
    """Return the records of two sides in segments; ``None`` unless all values are plain records.

    Args:
        contents: the values of each segment.
        sides: the side of each value, of all segments one after the other.
    """
    pieces: tuple[list[PlainColumns], list[PlainColumns]] = ([], [])
    begin = 0
    for content in contents:
        if isinstance(content, list):
            if content:
                return None
            continue
        _, columns = sides_of(content)
        end = begin + sum(map(len, columns))
        for side, of_side in enumerate(pieces):
            is_here = sides[begin:end] == side
            if len(columns) > 1:
                of_side.append(columns[side])
            elif is_here.any():
                of_side.append(columns[0] if is_here.all() else columns[0].take(is_here))
        begin = end
    batches = [joined_columns(of_side) if of_side else NO_RECORDS for of_side in pieces]
    found = tuple(batch for batch in batches if batch is not None)
    if len(found) < len(pieces):
        return None
    rows = np.empty(len(sides), np.int64)
    for side, batch in enumerate(found):
        rows[sides == side] = np.arange(batch.num_rows)
    return SidedRecords(found, sides, rows)
