"""Aggregates of numbers, in columns of numbers.

Each class of figures here and in the modules beside keeps what an aggregate does, for the numbers
that columns hold: whole ones of 64 bits, and floats. Whatever else turns up is `NotInColumns`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, run_starts
from flow.fields import field_path
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.columnar.aggregates.figures import Figures, Groups, NotInColumns, Packed

if TYPE_CHECKING:
    from flow_windowing.columnar.windows.panes import Panes

Column: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Numbers:
    """The numbers of a field, window after window, where there are any.

    Attributes:
        values: the numbers, int64 or float64.
        starts: where those of each window start.
        groups: the number of each of these windows among all that get values; ``None`` for all.
        at: which of the values that enter they are; ``None`` for all.
    """

    values: Column
    starts: Ints
    groups: Ints | None
    at: Ints | None

    @property
    def counts(self) -> Ints:
        """How many numbers each of these windows gets."""
        return np.diff(self.starts, append=len(self.values))

    def rows(self, rows: Ints) -> Ints:
        """Those of the windows' rows that get numbers."""
        return rows if self.groups is None else rows[self.groups]


def numbers_of(groups: Groups, field: Any) -> Numbers:
    """The numbers in a field of values.

    Raises:
        NotInColumns: when the values are no records, or the field holds something else.
    """
    batch = groups.values
    if not isinstance(batch, pa.RecordBatch) or not isinstance(field, str):
        raise NotInColumns
    column = field_path(field).column_in(batch)
    if column is None:
        raise NotInColumns
    values = _as_numbers(column)
    if not column.null_count:
        return Numbers(values[groups.order], groups.starts, None, None)
    at = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)[groups.order])
    group_of_row = groups.group_of_row[at]
    starts = run_starts(group_of_row)
    return Numbers(values[groups.order][at], starts, group_of_row[starts], at)


def _as_numbers(column: pa.Array) -> Column:
    kind = column.type
    if column.null_count:
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise NotInColumns
        column = column.fill_null(0)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        whole: Column = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return whole
    if pa.types.is_floating(kind):
        real: Column = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return real
    raise NotInColumns


class NumberFigures(Figures):
    """Figures in columns of equal length, the first of which says how many values there were.

    Subclasses say which columns there are, what a new group adds up to, and how two add up.
    """

    kind: ClassVar[str]
    types: ClassVar[tuple[str, ...]]

    def __init__(self, aggregator: Aggregator[Any, Any, Any], columns: Sequence[Column]) -> None:
        self._aggregator = aggregator
        self._columns = list(columns)

    @classmethod
    def empty(cls, aggregator: Aggregator[Any, Any, Any], count: int) -> Self:
        """Those of windows that have had no value."""
        return cls(aggregator, [np.zeros(count, kind) for kind in cls.types])

    @classmethod
    def unpacked(cls, aggregator: Aggregator[Any, Any, Any], parts: Sequence[Packed]) -> Self:
        """The figures in several pieces of plain data."""
        return cls(
            aggregator,
            [
                np.frombuffer(b"".join(part[at] for part in parts), kind).astype(kind)
                for at, kind in enumerate(cls.types, 2)
            ],
        )

    @override
    def __len__(self) -> int:
        return len(self._columns[0])

    @override
    def take(self, rows: Ints | Mask) -> Self:
        return type(self)(self._aggregator, [column[rows] for column in self._columns])

    @override
    def extended(self, count: int) -> Self:
        columns = [np.concatenate([one, np.zeros(count, one.dtype)]) for one in self._columns]
        return type(self)(self._aggregator, columns)

    @override
    def add(self, rows: Ints, groups: Groups) -> None:
        rows, columns = self._grouped(rows, groups)
        self._join(rows, columns)

    def add_panes(self, rows: Ints, groups: Groups, panes: Panes) -> None:
        """Add the values of panes to the windows that are in some rows.

        Raises:
            NotInColumns: when it cannot be done in this form; nothing has changed then.
        """
        self._join(rows, panes.joined(self._of_each(groups), self._sums))

    @override
    def add_each(self, rows: Ints, groups: Groups) -> pa.Array:
        each = self._of_each(groups.one_by_one())
        starts, ends = groups.starts, groups.starts + groups.counts - 1
        before = at_rows(self._columns, rows)
        for column, made in zip(each, self._sums(before, at_rows(each, starts)), strict=True):
            column[starts] = made
        self._run(each, groups)
        figures = type(self)(self._aggregator, each).results(np.arange(len(groups.order)))
        for column, made in zip(self._columns, each, strict=True):
            column[rows] = made[ends]
        return figures

    def _of_each(self, groups: Groups) -> list[Column]:
        """The columns of what each group comes to by itself."""
        count = len(groups.starts)
        each = [np.zeros(count, kind) for kind in self.types]
        rows, columns = self._grouped(np.arange(count), groups)
        for column, made in zip(each, columns, strict=True):
            column[rows] = made
        return each

    def _run(self, each: list[Column], groups: Groups) -> None:
        """Let each value take in those before it in its group, twice as many at each pass.

        The prefix sums of W. D. Hillis and G. L. Steele, Data parallel algorithms, CACM 29(12),
        1986, each group by itself.
        """
        within = np.arange(len(groups.order)) - np.repeat(groups.starts, groups.counts)
        reach = 1
        while reach <= int(within.max(initial=0)):
            rows = np.flatnonzero(within >= reach)
            made = self._sums(at_rows(each, rows - reach), at_rows(each, rows))
            for column, joined in zip(each, made, strict=True):
                column[rows] = joined
            reach *= 2

    @override
    def merge(self, targets: Ints, originals: Ints) -> None:
        self._join(targets, [column[originals] for column in self._columns])

    def _join(self, rows: Ints, columns: list[Column]) -> None:
        """Join columns to those of some rows."""
        if not len(rows):
            return
        made = self._sums(at_rows(self._columns, rows), columns)
        for column, new in zip(self._columns, made, strict=True):
            column[rows] = new

    def _sums(self, left: list[Column], right: list[Column]) -> list[Column]:
        """The columns of two parts of the same windows, each of which may have no value."""
        both = (left[0] > 0) & (right[0] > 0)
        made = [np.where(right[0] > 0, new, old) for old, new in zip(left, right, strict=True)]
        if both.any():
            joined = self._joined(at_rows(left, both), at_rows(right, both))
            for column, of_both in zip(made, joined, strict=True):
                column[both] = of_both
        return made

    def put(self, rows: list[int], others: NumberFigures) -> None:
        """Let some rows be others, of the same class."""
        for column, other in zip(self._columns, others._columns, strict=True):
            column[rows] = other

    @override
    def packed(self, begin: int, end: int) -> Packed:
        columns = (one[begin:end].tobytes() for one in self._columns)
        return self.kind, type(self._aggregator).__name__, *columns

    def _numbers(self, groups: Groups, *kinds: str) -> Numbers:
        numbers = numbers_of(groups, getattr(self._aggregator, "field", None))
        if numbers.values.dtype.kind not in kinds:
            raise NotInColumns
        return numbers

    @classmethod
    @abstractmethod
    def row_of(cls, aggregator: Aggregator[Any, Any, Any], state: Any) -> tuple[Any, ...] | None:
        """The columns' values for an aggregator's own state; ``None`` when it does not fit."""

    @abstractmethod
    def _grouped(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        """The columns of what each group comes to, and the rows that get them."""

    @abstractmethod
    def _joined(self, left: list[Column], right: list[Column]) -> list[Column]:
        """The columns of two parts of the same windows, each of which has values."""


def at_rows(columns: list[Column], rows: Ints | Mask) -> list[Column]:
    """Some rows of columns."""
    return [column[rows] for column in columns]


def masked(values: Column, there: Mask) -> pa.Array:
    """A column with nothing where nothing is there."""
    return pa.array(values) if there.all() else pa.array(values, mask=~there)
