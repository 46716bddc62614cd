"""The accumulators of one aggregate in many windows, a row for each window: contract, and numbers.

`ObjectAccumulators` hold the state of any aggregator as Python objects, and call the aggregator for
each value. `NumberAccumulators` hold numbers in columns, ints of 64 bits and floats, and compute
what an aggregator computes; other values raise `UnfitForColumns`. The two convert to each other
without loss, so the columns need to cover the usual values only.

Values enter as `Groups`, grouped by window; overlapping windows are runs of groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, run_starts
from flow.columns.predicate import ColumnPredicate
from flow.columns.record_batches import as_objects
from flow.errors import RAISED
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.columnar.values.records import Values, object_reader
from flow_windowing.rules.window_logic import Arrival

EncodedAccumulators: TypeAlias = tuple[Any, ...]
"""Accumulators as plain data: their kind, then the kind's columns."""


class RowOperation(NamedTuple):
    """The addition of a value to a window, or the merge of one window into another.

    Attributes:
        target: the row of the window that gets the value or the other window.
        original: the row of the window to merge into the target; ``None`` to add the value.
        value: the index of the value that is added, or that caused the merge.
    """

    target: int
    original: int | None
    value: int


class UnfitForColumns(Exception):
    """Values or accumulators that columns of numbers cannot hold."""


class FailedRow(Exception):
    """A failure of a user's function at a row.

    Attributes:
        row: the row.
    """

    def __init__(self, row: int) -> None:
        self.row = row
        super().__init__(row)


class Accumulators(ABC):
    """The accumulators of one aggregate, a row for each window."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, rows: Ints | Mask) -> Accumulators:
        """Return the accumulators of the given rows, in the given order."""

    @abstractmethod
    def with_new_rows(self, count: int) -> Accumulators:
        """Return these accumulators followed by those of `count` windows without values."""

    @abstractmethod
    def add(self, rows: Ints, groups: Groups) -> None:
        """Add one group of values to each of the given rows, which are distinct.

        Raises:
            UnfitForColumns: when this form cannot hold the result; nothing has changed then.
            FailedRow: when a user's function raised, with the value's row; its cause is the error.
        """

    @abstractmethod
    def add_each(self, rows: Ints, groups: Groups) -> pa.Array | list[Any]:
        """Add groups as `add` does, and return the result after each value, group after group.

        Raises:
            UnfitForColumns: when this form cannot hold the result; nothing has changed then.
            FailedRow: when a user's function raised, with the value's row; its cause is the error.
        """

    @abstractmethod
    def merge(self, targets: Ints, originals: Ints) -> None:
        """Merge rows into other rows; no row occurs twice in both arrays together.

        Raises:
            UnfitForColumns: when this form cannot hold the result; nothing has changed then.
            FailedRow: when the aggregator raised, with the index of the pair; its cause is the
                error.
        """

    @abstractmethod
    def results(self, rows: Ints) -> pa.Array | list[Any]:
        """Return the result of each of the given rows."""

    @abstractmethod
    def states(self) -> list[Any]:
        """Return the state that the aggregator's own methods use, for each row."""

    @abstractmethod
    def encode(self, begin: int, end: int) -> EncodedAccumulators:
        """Return the rows from `begin` to `end`, exclusive, as plain data."""


Column: TypeAlias = npt.NDArray[Any]

Combine: TypeAlias = Callable[[list[Column], list[Column]], list[Column]]
"""A function that combines the columns of two parts of the same windows, row by row."""


def take_rows(columns: list[Column], rows: Ints | Mask) -> list[Column]:
    """Return the given rows of columns."""
    return [column[rows] for column in columns]


class GroupRuns(NamedTuple):
    """Windows that are runs of consecutive groups of values.

    Attributes:
        first: the first group of each window.
        counts: the number of groups in each window, at least 1.
    """

    first: Ints
    counts: Ints

    def combine(self, parts: list[Column], combine: Combine) -> list[Column]:
        """Return the columns of windows, combined from the columns of groups.

        The method makes the columns of all runs of two groups, then of four, and so on. A window
        combines one run for each bit of its number of groups, so the cost is logarithmic in the
        longest window.
        """
        windows = take_rows(parts, self.first)
        next_group, remaining, reach = self.first + 1, self.counts - 1, 1
        most = int(remaining.max(initial=0))
        while True:
            chosen = np.flatnonzero(remaining & reach)
            combined = combine(take_rows(windows, chosen), take_rows(parts, next_group[chosen]))
            for column, new in zip(windows, combined, strict=True):
                column[chosen] = new
            next_group[chosen] += reach
            if most < 2 * reach:
                return windows
            parts = combine([part[:-reach] for part in parts], [part[reach:] for part in parts])
            reach *= 2


@dataclass(frozen=True, eq=False)
class Groups:
    """Values that enter windows, grouped by window, each group in order of entering.

    Attributes:
        values: all values of the epoch.
        rows: the row in `values` of each value that enters, group after group.
        starts: the index in `rows` of each group's first value; no group is empty.
        arrivals_of_values: returns timestamps, arrival numbers and entry numbers, aligned with
            `values`.
        is_in_arrival_order: True if values enter in the order in which they arrived.
        columns: the columns of the aggregates asked for so far, by the aggregate's id.
    """

    values: Values
    rows: Ints
    starts: Ints
    arrivals_of_values: Callable[[], tuple[Ints, Ints, Ints]]
    is_in_arrival_order: bool
    columns: dict[int, pa.Array | None] = field(default_factory=dict, repr=False)

    @cached_property
    def counts(self) -> Ints:
        """The number of values in each group."""
        return np.diff(self.starts, append=len(self.rows))

    @cached_property
    def objects(self) -> list[Any]:
        """The values as Python objects, aligned with `rows`."""
        return object_reader(self.values)(self.rows)

    def column(self, aggregator: Aggregator[Any, Any, Any]) -> pa.Array | None:
        """Return what an aggregate adds of each of all values, as a column, null for nothing.

        Returns:
            ``None`` if no column of records has it.
        """
        if not isinstance(self.values, pa.RecordBatch):
            return None
        name = id(aggregator)
        if name not in self.columns:
            self.columns[name] = aggregator.column_in(self.values)
        return self.columns[name]

    def column_objects(self, aggregator: Aggregator[Any, Any, Any]) -> list[Any] | None:
        """Return the column of an aggregate as Python objects, aligned with `rows`."""
        column = self.column(aggregator)
        return None if column is None else as_objects(column.take(pa.array(self.rows)))

    def selected(self, predicate: ColumnPredicate) -> list[bool] | None:
        """Return if a predicate selects each value, aligned with `rows`.

        Returns:
            ``None`` if the predicate has to be computed for each value alone.
        """
        try:
            selected: list[bool] = predicate.selects(self.values)[self.rows].tolist()
        except RAISED:
            return None
        return selected

    def value_at(self, at: int) -> Any:
        """Return the value at an index of `rows` as a Python object."""
        (value,) = object_reader(self.values)(self.rows[at : at + 1])
        return value

    @cached_property
    def arrival_columns(self) -> tuple[Ints, Ints, Ints]:
        """Timestamps in µs, arrival numbers and entry numbers, aligned with `rows`."""
        times_us, numbers, entry_numbers = self.arrivals_of_values()
        return times_us[self.rows], numbers[self.rows], entry_numbers[self.rows]

    @cached_property
    def group_of_value(self) -> Ints:
        """The number of each value's group, aligned with `rows`."""
        return np.repeat(np.arange(len(self.starts)), self.counts)

    def arrivals(self) -> Iterator[Arrival]:
        """Return the arrival of each value, aligned with `rows`."""
        return map(Arrival, *(column.tolist() for column in self.arrival_columns))


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
        no_values = (0,) * len(cls.types)
        rows = [no_values if state is None else cls.row_of(state) for state in states]
        if any(row is None for row in rows):
            return None
        columns = zip(*rows, strict=True) if rows else ([] for _ in cls.types)
        typed = [np.array(column, kind) for column, kind in zip(columns, cls.types, strict=True)]
        return cls(aggregator, typed)

    @property
    def columns(self) -> Sequence[Column]:
        """The columns."""
        return self._columns

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
        # Each value is a group of its own.
        each = self._per_group(replace(groups, starts=np.arange(len(groups.rows))))
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

    @classmethod
    def _states(cls, columns: list[Column]) -> list[Any]:
        """Return the aggregator's own state for each row of columns."""
        return list(map(cls.state_of, zip(*(column.tolist() for column in columns), strict=True)))

    @classmethod
    @abstractmethod
    def state_of(cls, row: tuple[Any, ...]) -> Any:
        """Return the aggregator's own state for a value of each column."""

    @classmethod
    @abstractmethod
    def row_of(cls, state: Any) -> tuple[Any, ...] | None:
        """Return an aggregator's state, not ``None``, as a value of each column.

        Returns:
            ``None`` if the state does not fit.
        """

    @abstractmethod
    def _reduce(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        """Reduce groups to columns.

        Returns:
            The rows, of those given, of the groups that have a number, and their columns.
        """

    @abstractmethod
    def _combine(self, left: list[Column], right: list[Column]) -> list[Column]:
        """Return the columns of two parts of the same windows, both of which have values."""


class FieldAccumulators(NumberAccumulators):
    """Accumulators of the numbers in a field of values."""

    @override
    def _reduce(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        numbers = self._numbers(groups)
        if not len(numbers.values):
            return rows[:0], [np.empty(0, kind) for kind in self.types]
        return numbers.rows(rows), self._reduce_numbers(numbers, groups)

    @abstractmethod
    def _reduce_numbers(self, numbers: FieldNumbers, groups: Groups) -> list[Column]:
        """Return the columns of the groups that have a number; there is at least one."""

    def _numbers(self, groups: Groups) -> FieldNumbers:
        """Return the numbers of the aggregator's field, which are in a column of ints or floats.

        Raises:
            UnfitForColumns: when the column is of unsigned ints of 64 bits.
        """
        column = groups.column(self._aggregator)
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


def with_nulls(values: Column, is_valid: Mask) -> pa.Array:
    """Return a column that is null wherever the mask is False."""
    return pa.array(values) if is_valid.all() else pa.array(values, mask=~is_valid)


def fits(value: Any, kind: str) -> bool:
    """Return True if a column of a numpy type, int64 or float64, can hold a value."""
    if kind == "<f8":
        return type(value) is float
    return type(value) is int and -(1 << 63) <= value < 1 << 63
