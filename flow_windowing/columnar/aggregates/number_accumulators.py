"""Accumulators of numbers, in columns of numbers.

Each class computes what an aggregator computes, for the numbers that columns hold: ints of 64 bits,
and floats. Other values raise `UnfitForColumns`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, run_starts
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.columnar.aggregates.accumulators import (
    Accumulators,
    Column,
    EncodedAccumulators,
    GroupRuns,
    Groups,
    UnfitForColumns,
    take_rows,
)


@dataclass(frozen=True)
class FieldNumbers:
    """The numbers in a field of values, group after group, without nulls.

    Attributes:
        values: the numbers, int64 or float64.
        starts: the index in `values` of each group's first number.
        groups: the numbers of the groups that have any number; ``None`` for all groups.
        entries: the index of each number's value; ``None`` if no value is null.
    """

    values: Column
    starts: Ints
    groups: Ints | None
    entries: Ints | None

    @property
    def counts(self) -> Ints:
        """The number of numbers in each group that has any."""
        return np.diff(self.starts, append=len(self.values))

    def rows(self, rows: Ints) -> Ints:
        """Return the rows, given one for each group, of the groups that have any number."""
        return rows if self.groups is None else rows[self.groups]


class NumberAccumulators(Accumulators):
    """Accumulators in columns of equal length; the first column is 0 for a window without values.

    A subclass declares its columns, how a group of values is reduced to them, and how the columns
    of two parts of a window are combined.

    Attributes:
        kind: the name of the form in a segment.
        types: the numpy type of each column.
        needs_order_of_arrival: True if values must enter in the order in which they arrived.
    """

    kind: ClassVar[str]
    types: ClassVar[tuple[str, ...]]
    needs_order_of_arrival: ClassVar[bool] = False

    def __init__(self, aggregator: Aggregator[Any, Any, Any], columns: Sequence[Column]) -> None:
        self._aggregator = aggregator
        self._form: Any = aggregator.form
        self._columns = list(columns)

    @classmethod
    def empty(cls, aggregator: Aggregator[Any, Any, Any], count: int) -> Self:
        """Return the accumulators of `count` windows without values."""
        return cls(aggregator, [np.zeros(count, kind) for kind in cls.types])

    @classmethod
    def decode(
        cls, aggregator: Aggregator[Any, Any, Any], parts: Sequence[EncodedAccumulators]
    ) -> Self:
        """Return the accumulators of several pieces of plain data, one after the other."""
        return cls(aggregator, cls._decoded(parts))

    @classmethod
    def decode_states(cls, part: EncodedAccumulators) -> list[Any]:
        """Return the aggregator's own state for each row of plain data."""
        return cls._states(cls._decoded([part]))

    @classmethod
    def _decoded(cls, parts: Sequence[EncodedAccumulators]) -> list[Column]:
        return [
            np.frombuffer(b"".join(part[at] for part in parts), kind).astype(kind)
            for at, kind in enumerate(cls.types, 1)
        ]

    @classmethod
    def from_states(cls, aggregator: Aggregator[Any, Any, Any], states: list[Any]) -> Self | None:
        """Return the accumulators of an aggregator's states, ``None`` when one does not fit."""
        rows = [cls.row_of(aggregator, state) for state in states]
        if any(row is None for row in rows):
            return None
        columns = zip(*rows, strict=True) if rows else ([] for _ in cls.types)
        return cls(
            aggregator,
            [np.array(column, kind) for column, kind in zip(columns, cls.types, strict=True)],
        )

    @override
    def __len__(self) -> int:
        return len(self._columns[0])

    @override
    def take(self, rows: Ints | Mask) -> Self:
        return type(self)(self._aggregator, [column[rows] for column in self._columns])

    @override
    def with_new_rows(self, count: int) -> Self:
        columns = [np.concatenate([one, np.zeros(count, one.dtype)]) for one in self._columns]
        return type(self)(self._aggregator, columns)

    @override
    def add(self, rows: Ints, groups: Groups) -> None:
        rows, columns = self._reduce(rows, groups)
        self._combine_into(rows, columns)

    def add_runs(self, rows: Ints, groups: Groups, runs: GroupRuns) -> None:
        """Add a run of groups to each of the given rows; each group is reduced once.

        Raises:
            UnfitForColumns: when this form cannot hold the result; nothing has changed then.
        """
        self._combine_into(rows, runs.combine(self._per_group(groups), self._combine_rows))

    @override
    def add_each(self, rows: Ints, groups: Groups) -> pa.Array:
        each = self._per_group(groups.singletons())
        starts, ends = groups.starts, groups.starts + groups.counts - 1
        before = take_rows(self._columns, rows)
        firsts = self._combine_rows(before, take_rows(each, starts))
        for column, first in zip(each, firsts, strict=True):
            column[starts] = first
        self._accumulate(each, groups)
        results = type(self)(self._aggregator, each).results(np.arange(len(groups.rows)))
        for column, new in zip(self._columns, each, strict=True):
            column[rows] = new[ends]
        return results

    def _per_group(self, groups: Groups) -> list[Column]:
        """Return the columns of each group alone; 0 for a group without a number."""
        count = len(groups.starts)
        each = [np.zeros(count, kind) for kind in self.types]
        rows, columns = self._reduce(np.arange(count), groups)
        for column, reduced in zip(each, columns, strict=True):
            column[rows] = reduced
        return each

    def _accumulate(self, each: list[Column], groups: Groups) -> None:
        """Combine each value with all values before it in its group, in place.

        Each pass doubles the number of values combined: the prefix sums of W. D. Hillis and G. L.
        Steele, Data parallel algorithms, CACM 29(12), 1986, for each group by itself.
        """
        within = np.arange(len(groups.rows)) - np.repeat(groups.starts, groups.counts)
        reach = 1
        while reach <= int(within.max(initial=0)):
            rows = np.flatnonzero(within >= reach)
            combined = self._combine_rows(take_rows(each, rows - reach), take_rows(each, rows))
            for column, new in zip(each, combined, strict=True):
                column[rows] = new
            reach *= 2

    @override
    def merge(self, targets: Ints, originals: Ints) -> None:
        self._combine_into(targets, [column[originals] for column in self._columns])

    def _combine_into(self, rows: Ints, columns: list[Column]) -> None:
        """Replace rows by their combination with the rows of other columns."""
        if not len(rows):
            return
        combined = self._combine_rows(take_rows(self._columns, rows), columns)
        for column, new in zip(self._columns, combined, strict=True):
            column[rows] = new

    def _combine_rows(self, left: list[Column], right: list[Column]) -> list[Column]:
        """Return the columns of two parts of the same windows, either of which may be empty."""
        both = (left[0] > 0) & (right[0] > 0)
        columns = [np.where(right[0] > 0, new, old) for old, new in zip(left, right, strict=True)]
        if both.any():
            combined = self._combine(take_rows(left, both), take_rows(right, both))
            for column, of_both in zip(columns, combined, strict=True):
                column[both] = of_both
        return columns

    def replace_rows(self, rows: list[int], others: NumberAccumulators) -> None:
        """Replace the given rows by others of the same class."""
        for column, other in zip(self._columns, others._columns, strict=True):
            column[rows] = other

    @override
    def encode(self, begin: int, end: int) -> EncodedAccumulators:
        columns = (one[begin:end].tobytes() for one in self._columns)
        return self.kind, *columns

    @override
    def states(self) -> list[Any]:
        return self._states(self._columns)

    def _numbers(self, groups: Groups) -> FieldNumbers:
        """Return the numbers of the aggregator's field, which are in a column of ints or floats.

        Raises:
            UnfitForColumns: when the column is of unsigned ints of 64 bits.
        """
        column = groups.column(self._aggregator.field_read)
        if column is None or column.type == pa.uint64():
            raise UnfitForColumns
        number = pa.int64() if pa.types.is_integer(column.type) else pa.float64()
        filled = column.fill_null(0) if column.null_count else column
        values = filled.cast(number).to_numpy(zero_copy_only=False)[groups.rows]
        if not column.null_count:
            return FieldNumbers(values, groups.starts, None, None)
        entries = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)[groups.rows])
        group_of_number = groups.group_of_value[entries]
        starts = run_starts(group_of_number)
        return FieldNumbers(values[entries], starts, group_of_number[starts], entries)

    @classmethod
    @abstractmethod
    def _states(cls, columns: list[Column]) -> list[Any]:
        """Return the aggregator's own state for each row of columns."""

    @classmethod
    @abstractmethod
    def row_of(cls, aggregator: Aggregator[Any, Any, Any], state: Any) -> tuple[Any, ...] | None:
        """Return an aggregator's state as a value for each column; ``None`` if it does not fit."""

    @abstractmethod
    def _reduce(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        """Reduce groups to columns.

        Returns:
            The rows, of those given, of the groups that have a number, and their columns.
        """

    @abstractmethod
    def _combine(self, left: list[Column], right: list[Column]) -> list[Column]:
        """Return the columns of two parts of the same windows, both of which have values."""


def with_nulls(values: Column, is_valid: Mask) -> pa.Array:
    """Return a column that is null wherever the mask is False."""
    return pa.array(values) if is_valid.all() else pa.array(values, mask=~is_valid)


def fits(value: Any, kind: str) -> bool:
    """Return True if a column of a numpy type, int64 or float64, can hold a value."""
    if kind == "<f8":
        return type(value) is float
    return type(value) is int and -(1 << 63) <= value < 1 << 63
