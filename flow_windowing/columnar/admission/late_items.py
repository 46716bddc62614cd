"""The late stream of a shard: values that were rejected, their counts, and their items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints
from flow.instants import MIN_US
from flow.keyed.logic import Counted
from flow.keyed.shard_logic import ShardOutput
from flow_windowing.columnar.admission.rows import AdmittedRows, EnteringRows, sorted_pairs
from flow_windowing.contract.metadata import LateReason, LateValue, WindowMetadata
from flow_windowing.rules.settings import LATE
from flow_windowing.rules.watermark import REASONS, counted_late, is_behind

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
