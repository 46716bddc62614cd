"""Rows of a shard's epoch: as they arrive, as a clock admits them, as they enter; late items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, Mask, ranges, starts_of
from flow.columns.chunks import Pairs
from flow.columns.record_batches import SidedRecords, value_reader
from flow.instants import MIN_US
from flow.keyed.logic import Counted, RejectedValue
from flow.keyed.shard_logic import KeyFailure, ShardOutput, ShardRows
from flow_windowing.columnar.values.records import Values
from flow_windowing.rules.metadata import LATE, LateReason, LateValue, WindowMetadata
from flow_windowing.rules.watermark import REASONS, counted_late, is_behind


class ArrivingRows(NamedTuple):
    """The rows of an epoch, sorted by slot, those of a key in order of arrival.

    Attributes:
        values: the values that `order` refers to.
        plain: the values without their sides, in a step of several streams.
        keys: the key of each slot.
        slots: the slots of the keys with rows, int64, ascending.
        counts: the number of rows of each key.
        numbers: the number of each row in the shard's rows.
        order: the index of each row's value.
        progress_us: the stream progress after each row, int64 µs; ``None`` if it is not measured.
        bound_us: the bound that other source partitions set at each row; ``None`` without a hold.
        own_progress_us: the progress of each row's own source partition; ``None`` without a hold.
        sources: the number of each row's source partition in the epoch; ``None`` if unknown.
        partials: partial rows, which `order` numbers after the values.
    """

    values: Values
    plain: Values
    keys: pa.Array
    slots: Ints
    counts: Ints
    numbers: Ints
    order: Ints
    progress_us: Ints | None
    bound_us: Ints | None
    own_progress_us: Ints | None
    sources: Ints | None
    partials: tuple[pa.RecordBatch, ...] = ()

    @classmethod
    def of(cls, rows: ShardRows, keys: pa.Array, slots: Ints, sides: int) -> ArrivingRows:
        """Return the rows of a shard, sorted by slot.

        Args:
            rows: the rows.
            keys: the key of each slot.
            slots: the slot of each key in `rows`.
            sides: the number of streams of the step.
        """
        by_slot = np.argsort(slots)
        counts = rows.counts[by_slot]
        chosen = ranges(starts_of(rows.counts)[by_slot], counts)
        progress_us, bound_us, own_us, sources = _chosen(rows[5:-1], chosen)
        return cls(
            rows.values,
            _without_sides(rows.values, sides),
            keys,
            slots[by_slot],
            counts,
            chosen,
            rows.order[chosen],
            progress_us,
            bound_us,
            own_us,
            sources,
            rows.partials,
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
        numbers, order, *of_rows = _chosen(self[5:-1], is_chosen)
        of_keys = self.slots[has_rows], counts[has_rows]
        return ArrivingRows(*self[:3], *of_keys, numbers, order, *of_rows)._replace(
            partials=self.partials
        )

    def value_at(self, row: int) -> Any:
        """Return the value of a row, without its side, as a Python object."""
        value = value_reader(self.plain)(int(self.order[row]))
        return value[1] if isinstance(self.plain, SidedRecords) else value

    def failure(self, row: int, rejected: RejectedValue) -> KeyFailure:
        """Return the failure of a row's key, by a value that the clock rejected."""
        slot = int(self.slots[self.run_of_row[row]])
        return KeyFailure(self.keys[slot].as_py(), self.value_at(row), rejected)


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

    def without(self, is_dropped: Mask, note: str) -> AdmittedRows:
        """Return the rows outside a mask of dropped rows; `note` is the reason for the last one."""
        dropped, kept = int(is_dropped.sum()), ~is_dropped
        if not dropped:
            return self
        times_us, watermark_us, refusals = _chosen(self[1:4], kept)
        rows = self.arriving.where(kept)
        return AdmittedRows(rows, times_us, watermark_us, refusals, dropped, note)


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
        return EnteringRows(*_chosen(self, chosen))


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


def _without_sides(values: Values, sides: int) -> Values:
    if isinstance(values, SidedRecords) or sides == 1:
        return values
    return [value for _, value in values]


def _chosen(columns: Iterable[Any], rows: Ints | Mask) -> Iterator[Any]:
    """Yield the chosen rows of columns, ``None`` for a column that is ``None``."""
    return (None if column is None else column[rows] for column in columns)


Missed: TypeAlias = "Callable[[EnteringRows, list[Any]], Sequence[tuple[WindowMetadata, ...]]]"
"""Returns the windows that each of some late rows missed, given the rows and their values."""


def no_windows(rows: EnteringRows, values: list[Any]) -> list[tuple[WindowMetadata, ...]]:  # noqa: ARG001
    """Return that each of some rejected rows missed no known window."""
    return [()] * len(rows.rows)


class _Rejected(NamedTuple):
    """Rejected rows that wait for `LateItems.emit`.

    Attributes:
        rows: the rows.
        reason: the reason, the same for all rows.
        values: the value of each row, with its side in a step of several streams.
        windows: the windows that each row missed.
    """

    rows: EnteringRows
    reason: LateReason
    values: list[Any]
    windows: Sequence[tuple[WindowMetadata, ...]]


def rejections(admitted: AdmittedRows, late_after_us: int | None) -> Ints | None:
    """Return the number of the reason for which each row is rejected, as in `REASONS`.

    Args:
        admitted: the rows.
        late_after_us: the time for which a value behind the watermark is still on time; ``None`` if
            no value is late.

    Returns:
        int64, shape (rows,), 0 for rows that are not rejected; ``None`` if no row is.
    """
    reasons = admitted.refusals
    if late_after_us is None:
        return reasons
    is_late = is_behind(admitted.times_us + late_after_us, admitted.watermark_us)
    if not is_late.any():
        return reasons
    late = np.where(is_late, REASONS.index(LateReason.LATE), 0)
    return late if reasons is None else np.where(reasons > 0, reasons, late)


class LateItems:
    """The collector of rejected rows in one epoch.

    Args:
        made: the output of the shard.
        wanted: the numbers of the step's streams that have a reader.
        sides: the number of streams of the step; with more than one, values are ``(side, value)``.
    """

    def __init__(self, made: ShardOutput, wanted: frozenset[int], sides: int) -> None:
        self._made = made
        self._is_wanted = LATE in wanted
        self._sides = sides
        self._rejected: list[_Rejected] = []

    def reject(
        self,
        admitted: AdmittedRows,
        entering: EnteringRows,
        late_after_us: int | None,
        value_of: Callable[[int], Any],
        missed: Missed,
    ) -> EnteringRows:
        """Count and collect the rows that the clock refuses or that are late; return the others.

        Args:
            admitted: the rows as the clock has admitted them.
            entering: the same rows.
            late_after_us: as in `rejections`.
            value_of: returns the value of a row as a Python object.
            missed: returns the windows that late rows missed.
        """
        if admitted.dropped:
            note = f"dropped a value: {admitted.note}"
            self._made.counted.append(Counted("dropped", admitted.dropped, note))
        reasons = rejections(admitted, late_after_us)
        if reasons is None:
            return entering
        for number, reason in enumerate(LateReason, 1):
            of_reason = missed if reason is LateReason.LATE else no_windows
            self.add(entering.take(reasons == number), reason, value_of, of_reason)
        return entering.take(reasons == 0)

    def add(
        self,
        rows: EnteringRows,
        reason: LateReason,
        value_of: Callable[[int], Any],
        missed: Missed,
    ) -> None:
        """Count rejected rows, and collect them for `emit`.

        Args:
            rows: the rows.
            reason: the reason, the same for all rows.
            value_of: returns the value of a row as a Python object.
            missed: returns the windows that each row missed.
        """
        count = len(rows.rows)
        if not count:
            return
        if reason is LateReason.LATE:
            self._count_late(rows)
        else:
            self._made.counted.append(Counted(reason.value, count))
        if self._is_wanted:
            values = [value_of(row) for row in rows.rows.tolist()]
            self._rejected.append(_Rejected(rows, reason, values, missed(rows, values)))
        else:
            self._made.unread[LATE] += count

    def _count_late(self, rows: EnteringRows) -> None:
        late_by_us = rows.watermark_us - rows.times_us
        is_behind = late_by_us > 0
        sources = None if rows.sources is None else rows.sources[is_behind]
        self._made.counted += counted_late(late_by_us[is_behind], sources)

    def emit(self, keys: pa.Array, pos_of_slot: Ints) -> None:
        """Emit the collected rows, those of each key in order of arrival.

        Args:
            keys: the key of each slot.
            pos_of_slot: the position in the epoch of the output of each slot.
        """
        rejected, self._rejected = self._rejected, []
        if not rejected:
            return
        slots = np.concatenate([one.rows.slots for one in rejected])
        numbers = np.concatenate([one.rows.numbers for one in rejected])
        items = [item for one in rejected for item in self._items_of(one)]
        pairs = sorted_pairs(items, slots, numbers, keys, pos_of_slot)
        self._made.chunks[LATE].append(pairs)

    def _items_of(self, rejected: _Rejected) -> list[LateValue[Any]]:
        values = rejected.values
        sides: list[int | None] = [None] * len(values)
        if self._sides > 1:
            sides, values = [side for side, _ in values], [value for _, value in values]
        # The watermark before the first value precedes all datetimes.
        watermark_us = np.maximum(rejected.rows.watermark_us, MIN_US - 1)
        columns = (rejected.rows.times_us.tolist(), watermark_us.tolist(), rejected.windows)
        return [
            LateValue.of_us(value, time_us, at_us, windows, rejected.reason, side)
            for value, side, time_us, at_us, windows in zip(values, sides, *columns, strict=True)
        ]
