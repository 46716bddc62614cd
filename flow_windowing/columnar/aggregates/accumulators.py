"""The contract of the accumulators of one aggregate in many windows, a row for each window.

`ObjectAccumulators` hold the state of any aggregator as Python objects, and call the aggregator for
each value. `NumberAccumulators` hold numbers in columns. The two convert to each other without
loss, so the columns need to cover the usual values only.

Values enter as `Groups`, grouped by window; overlapping windows are runs of groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flow.columns.arrays import Ints, Mask
from flow.columns.chunks import as_objects
from flow.fields import field_path
from flow_windowing.columnar.values.records import Values
from flow_windowing.contract.arrival import Arrival

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


class Groups:
    """Values that enter windows, grouped by window, each group in order of entering.

    Attributes:
        values: all values of the epoch.
        rows: the row in `values` of each value that enters, group after group.
        starts: the index in `rows` of each group's first value; no group is empty.
        is_in_arrival_order: True if values enter in the order in which they arrived.
    """

    def __init__(
        self,
        values: Values,
        rows: Ints,
        starts: Ints,
        objects: Callable[[Ints], list[Any]],
        arrivals: Callable[[], tuple[Ints, Ints, Ints]],
        is_in_arrival_order: bool,
    ) -> None:
        self.values = values
        self.rows = rows
        self.starts = starts
        self.is_in_arrival_order = is_in_arrival_order
        self._objects = objects
        self._arrivals = arrivals

    def singletons(self) -> Groups:
        """Return the same values, each as a group of its own."""
        starts = np.arange(len(self.rows))
        return Groups(
            self.values, self.rows, starts, self._objects, self._arrivals, self.is_in_arrival_order
        )

    @cached_property
    def counts(self) -> Ints:
        """The number of values in each group."""
        return np.diff(self.starts, append=len(self.rows))

    @cached_property
    def objects(self) -> list[Any]:
        """The values as Python objects, aligned with `rows`."""
        return self._objects(self.rows)

    def column(self, field: Any) -> pa.Array | None:
        """Return a column of all values; ``None`` if the field is in no column of records."""
        values = self.values
        is_path = isinstance(field, str) and isinstance(values, pa.RecordBatch)
        return field_path(field).column_in(values) if is_path else None

    def field_objects(self, field: str) -> list[Any] | None:
        """Return a field of the values as Python objects, aligned with `rows`.

        Returns:
            ``None`` if the values are not records, or have no field of that name.
        """
        values = self.values
        if not isinstance(values, pa.RecordBatch) or field not in values.schema.names:
            return None
        return as_objects(values.column(field).take(pa.array(self.rows)))

    def value_at(self, at: int) -> Any:
        """Return the value at an index of `rows` as a Python object."""
        (value,) = self._objects(self.rows[at : at + 1])
        return value

    @cached_property
    def arrival_columns(self) -> tuple[Ints, Ints, Ints]:
        """Timestamps in µs, arrival numbers and entry numbers, aligned with `rows`."""
        times_us, numbers, entry_numbers = self._arrivals()
        return times_us[self.rows], numbers[self.rows], entry_numbers[self.rows]

    @cached_property
    def group_of_value(self) -> Ints:
        """The number of each value's group, aligned with `rows`."""
        return np.repeat(np.arange(len(self.starts)), self.counts)

    def arrivals(self) -> Iterator[Arrival]:
        """Return the arrival of each value, aligned with `rows`."""
        return map(Arrival, *(column.tolist() for column in self.arrival_columns))
