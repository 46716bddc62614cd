"""The contract of the accumulators of one aggregate in many windows, a row for each window.

`ObjectAccumulators` hold the state of any aggregator as Python objects, and call the aggregator for
each value. `NumberAccumulators` hold numbers in columns. The two convert to each other without
loss, so the columns need to cover the usual values only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from flow.columns.arrays import Ints, Mask
from flow_windowing.columnar.aggregates.groups import Groups

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
