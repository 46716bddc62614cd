"""Values of several streams that are records, in one order: a batch for each side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints
from flow.columns.chunks import join_batches, rows_as_dicts

NO_RECORDS = pa.RecordBatch.from_arrays([], names=[])
"""The batch of a side without values, whose columns are not known."""


@dataclass(frozen=True, eq=False)
class SidedRecords(Sequence[tuple[int, dict[str, Any]]]):
    """Records of the streams that a step reads; as a sequence, ``(side, dict)`` for each value.

    Attributes:
        batches: the records of each side; a batch may have rows that no value refers to.
        sides: the side of each value, int64, shape (values,).
        rows: the row of each value in the batch of its side, int64, shape (values,).

    >>> left = pa.RecordBatch.from_pylist([{"bid": 5}])
    >>> values = SidedRecords.of(2, [(1, pa.RecordBatch.from_pylist([{"n": 1}])), (0, left)])
    >>> list(values)
    [(1, {'n': 1}), (0, {'bid': 5})]
    """

    batches: tuple[pa.RecordBatch, ...]
    sides: Ints
    rows: Ints

    @classmethod
    def of(cls, side_count: int, chunks: Sequence[tuple[int, pa.RecordBatch]]) -> SidedRecords:
        """Return the records of chunks, each of one side, one chunk after the other.

        The chunks of a side have one schema. A side without chunks has a batch without columns.
        """
        by_side: list[list[pa.RecordBatch]] = [[] for _ in range(side_count)]
        rows, filled = list[Ints](), [0] * side_count
        for side, batch in chunks:
            by_side[side].append(batch)
            rows.append(np.arange(filled[side], filled[side] + batch.num_rows))
            filled[side] += batch.num_rows
        sides = [np.full(batch.num_rows, side) for side, batch in chunks]
        empty = np.empty(0, np.int64)
        return cls(
            tuple(join_batches(of_side) if of_side else NO_RECORDS for of_side in by_side),
            np.concatenate([empty, *sides]),
            np.concatenate([empty, *rows]),
        )

    @override
    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> tuple[int, dict[str, Any]]: ...
    @overload
    def __getitem__(self, index: slice) -> SidedRecords: ...
    @override
    def __getitem__(self, index: int | slice) -> tuple[int, dict[str, Any]] | SidedRecords:
        if isinstance(index, slice):
            return SidedRecords(self.batches, self.sides[index], self.rows[index])
        side = int(self.sides[index])
        return side, rows_as_dicts(self.batches[side].slice(int(self.rows[index]), 1))[0]

    def take(self, chosen: Ints) -> SidedRecords:
        """Return the values of the given indices, in the given order."""
        return SidedRecords(self.batches, self.sides[chosen], self.rows[chosen])

    def of_side(self, side: int) -> tuple[Ints, pa.RecordBatch]:
        """Return the indices of the values of a side, and the record of each of these."""
        chosen = np.flatnonzero(self.sides == side)
        return chosen, self.batches[side].take(pa.array(self.rows[chosen]))

    def records(self) -> list[Any]:
        """Return the record of each value as a dict."""
        records: list[Any] = [None] * len(self)
        for side in range(len(self.batches)):
            chosen, batch = self.of_side(side)
            for index, record in zip(chosen.tolist(), rows_as_dicts(batch), strict=True):
                records[index] = record
        return records

    def concat(self, other: SidedRecords) -> SidedRecords | None:
        """Return these values followed by others; ``None`` if a side has two schemas."""
        both = self.compacted(), other.compacted()
        batches = list[pa.RecordBatch]()
        for pair in zip(*(one.batches for one in both), strict=True):
            filled = [batch for batch in pair if batch.num_columns]
            if len(filled) == 2 and not filled[0].schema.equals(filled[1].schema):
                return None
            batches.append(join_batches(filled) if filled else NO_RECORDS)
        counts = np.array([batch.num_rows for batch in both[0].batches])
        return SidedRecords(
            tuple(batches),
            np.concatenate([one.sides for one in both]),
            np.concatenate([both[0].rows, both[1].rows + counts[both[1].sides]]),
        )

    def compacted(self) -> SidedRecords:
        """Return the same values without the rows that no value refers to, if these are many."""
        if sum(batch.num_rows for batch in self.batches) <= 2 * len(self):
            return self
        rows, batches = np.empty(len(self), np.int64), list[pa.RecordBatch]()
        for side in range(len(self.batches)):
            chosen, batch = self.of_side(side)
            rows[chosen] = np.arange(len(chosen))
            batches.append(batch)
        return SidedRecords(tuple(batches), self.sides, rows)
