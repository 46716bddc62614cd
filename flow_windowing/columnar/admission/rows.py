"""The rows of a shard's epoch: as they arrive, as a clock admits them, and as they enter a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, Mask, ranges, starts_of
from flow.columns.chunks import Pairs, value_reader
from flow.columns.sided_records import SidedRecords
from flow.keyed.logic import RejectedValue
from flow.keyed.shard_logic import KeyFailure, ShardRows
from flow_windowing.columnar.values.records import Values


class ArrivingRows(NamedTuple):
    """The rows of an epoch, sorted by slot, those of a key in order of arrival.

    Attributes:
        values: the values that `order` refers to.
        plain: the values without their sides, in a step of several streams.
        plain_of: returns one of the values `plain` as a Python object.
        keys: the key of each slot.
        slots: the slots of the keys with rows, int64, ascending.
        counts: the number of rows of each key.
        numbers: the number of each row in the shard's rows.
        order: the index of each row's value.
        progress_us: the stream progress after each row, int64 µs; ``None`` if it is not measured.
        bound_us: the bound that other source partitions set at each row; ``None`` without a hold.
        own_progress_us: the progress of each row's own source partition; ``None`` without a hold.
        sources: the number of each row's source partition in the epoch; ``None`` if unknown.
    """

    values: Values
    plain: Values
    plain_of: Callable[[int], Any]
    keys: pa.Array
    slots: Ints
    counts: Ints
    numbers: Ints
    order: Ints
    progress_us: Ints | None
    bound_us: Ints | None
    own_progress_us: Ints | None
    sources: Ints | None

    @classmethod
    def of(cls, rows: ShardRows, keys: pa.Array, slots: Ints, sides: int) -> ArrivingRows:
        """Return the rows of a shard, sorted by slot.

        Args:
            rows: the rows.
            keys: the key of each slot.
            slots: the slot of each key in `rows`.
            sides: the number of streams of the step.
        """
        plain, plain_of = _without_sides(rows.values, sides)
        by_slot = np.argsort(slots)
        counts = rows.counts[by_slot]
        chosen = ranges(starts_of(rows.counts)[by_slot], counts)
        return cls(
            rows.values,
            plain,
            plain_of,
            keys,
            slots[by_slot],
            counts,
            chosen,
            rows.order[chosen],
            *(None if column is None else column[chosen] for column in rows[5:]),
        )

    @property
    def run_of_row(self) -> Ints:
        """The number of each row's key in `slots`."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def starts(self) -> Ints:
        """The index of each key's first row."""
        return starts_of(self.counts)

    def where(self, is_chosen: Mask) -> ArrivingRows:
        """Return the rows in a mask, without the keys that have no other rows."""
        counts = np.bincount(self.run_of_row[is_chosen], minlength=len(self.counts))
        has_rows = np.flatnonzero(counts)
        return self._replace(
            slots=self.slots[has_rows],
            counts=counts[has_rows],
            numbers=self.numbers[is_chosen],
            order=self.order[is_chosen],
            progress_us=_chosen(self.progress_us, is_chosen),
            bound_us=_chosen(self.bound_us, is_chosen),
            own_progress_us=_chosen(self.own_progress_us, is_chosen),
            sources=_chosen(self.sources, is_chosen),
        )

    def failure(self, row: int, rejected: RejectedValue) -> KeyFailure:
        """Return the failure of a row's key, by a value that the clock rejected."""
        slot = int(self.slots[self.run_of_row[row]])
        return KeyFailure(self.keys[slot].as_py(), self.plain_of(int(self.order[row])), rejected)


class AdmittedRows(NamedTuple):
    """Rows with the timestamps and watermarks that a clock gave them.

    Attributes:
        arriving: the rows that have a timestamp.
        times_us: the timestamp of each row, int64 µs.
        watermark_us: the watermark of each row's key after the row, ascending within a key.
        refusals: the number of the reason for which the clock refuses each row, as in
            `flow_windowing.rules.watermark.REASONS`, int64; ``None`` if it refuses no row.
        dropped: the number of rows without a timestamp, which are dropped.
        note: the reason for the last of the dropped rows; empty without any.
    """

    arriving: ArrivingRows
    times_us: Ints
    watermark_us: Ints
    refusals: Ints | None = None
    dropped: int = 0
    note: str = ""

    @property
    def of_keys_us(self) -> Ints:
        """The watermark of each key after its last row."""
        return self.watermark_us[np.cumsum(self.arriving.counts) - 1]


class EnteringRows(NamedTuple):
    """Rows that enter windows, grouped by key, each key's rows in order of entering.

    Attributes:
        rows: the index of each row's value among the values of the batch.
        slots: the slot of each row's key, ascending.
        times_us: the timestamps, int64 µs.
        numbers: the arrival numbers.
        watermark_us: the watermark of the key as each row enters.
        sources: the number of each row's source partition in the epoch; ``None`` if unknown.
    """

    rows: Ints
    slots: Ints
    times_us: Ints
    numbers: Ints
    watermark_us: Ints
    sources: Ints | None = None

    def take(self, chosen: Ints | Mask) -> EnteringRows:
        """Return the chosen rows."""
        sources = None if self.sources is None else self.sources[chosen]
        rows, slots, times_us, numbers, watermark_us = (column[chosen] for column in self[:5])
        return EnteringRows(rows, slots, times_us, numbers, watermark_us, sources)


def sorted_pairs(
    items: list[Any], slots: Ints, order: Ints, keys: pa.Array, pos_of_slot: Ints
) -> Pairs:
    """Return items with their keys, sorted by slot and order; the sort is stable.

    Args:
        items: the items.
        slots: the slot of each item's key.
        order: the rank of each item within the output of its key.
        keys: the key of each slot.
        pos_of_slot: the position in the epoch of the output of each slot.
    """
    by_slot = np.lexsort((order, slots))
    slots = slots[by_slot]
    names = keys.take(pa.array(slots)).to_pylist()
    return Pairs(names, [items[row] for row in by_slot.tolist()], pos_of_slot[slots])


def _without_sides(values: Values, sides: int) -> tuple[Values, Callable[[int], Any]]:
    """Return values without their sides, and the function that returns one as a Python object."""
    if isinstance(values, SidedRecords):
        return values, lambda row: values[row][1]
    if sides == 1:
        return values, value_reader(values)
    plain = [value for _, value in values]
    return plain, plain.__getitem__


def _chosen(column: Ints | None, is_chosen: Mask) -> Ints | None:
    return None if column is None else column[is_chosen]
