"""Aggregates of numbers, in columns of numbers.

Each class here keeps what one of `flow_windowing.aggregates` does, for the numbers that columns
hold: whole ones of 64 bits, and floats. Whatever else turns up is `NotInColumns`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from flow_windowing import exact_totals
from flow_windowing.aggregates import Count, Mean, Sum
from flow_windowing.aggregators import Aggregator
from flow_windowing.columnar import exact_sums
from flow_windowing.columnar.exact_sums import Totals
from flow_windowing.columnar.figures import Figures, Groups, NotInColumns, Packed
from flow_windowing.columnar.segmented import Ints, Mask, run_starts
from flow_windowing.columnar.timestamps import column_at
from flow_windowing.exact_totals import Floats
from flow_windowing.kept_aggregates import Max, Min

Column: TypeAlias = npt.NDArray[Any]

_MOST_WHOLE = 1 << 62
_EXACT_FLOAT = 1 << 53


@dataclass(frozen=True)
class Numbers:
    """The numbers of a field, window after window, where there are any.

    Attributes:
        values: the numbers, int64 or float64.
        starts: where those of each window start.
        groups: the number of each of these windows among all that get values; ``None`` for all.
    """

    values: Column
    starts: Ints
    groups: Ints | None

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
    column = column_at(batch, field) if isinstance(batch, pa.RecordBatch) and field else None
    if column is None or not isinstance(field, str):
        raise NotInColumns
    values = _as_numbers(column)
    if not column.null_count:
        return Numbers(values[groups.order], groups.starts, None)
    valid = column.is_valid().to_numpy(zero_copy_only=False)[groups.order]
    group_of_row = groups.group_of_row[valid]
    starts = run_starts(group_of_row)
    return Numbers(values[groups.order][valid], starts, group_of_row[starts])


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

    @override
    def add_each(self, rows: Ints, groups: Groups) -> pa.Array:
        each = self._one_by_one(groups)
        starts, ends = groups.starts, groups.starts + groups.counts - 1
        before = _at(self._columns, rows)
        for column, made in zip(each, self._sums(before, _at(each, starts)), strict=True):
            column[starts] = made
        self._run(each, groups)
        figures = type(self)(self._aggregator, each).results(np.arange(len(groups.order)))
        for column, made in zip(self._columns, each, strict=True):
            column[rows] = made[ends]
        return figures

    def _one_by_one(self, groups: Groups) -> list[Column]:
        """The columns of what each value comes to by itself."""
        count = len(groups.order)
        each = [np.zeros(count, kind) for kind in self.types]
        rows, columns = self._grouped(np.arange(count), groups.one_by_one())
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
            made = self._sums(_at(each, rows - reach), _at(each, rows))
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
        made = self._sums(_at(self._columns, rows), columns)
        for column, new in zip(self._columns, made, strict=True):
            column[rows] = new

    def _sums(self, left: list[Column], right: list[Column]) -> list[Column]:
        """The columns of two parts of the same windows, each of which may have no value."""
        both = (left[0] > 0) & (right[0] > 0)
        made = [np.where(right[0] > 0, new, old) for old, new in zip(left, right, strict=True)]
        if both.any():
            joined = self._joined(_at(left, both), _at(right, both))
            for column, of_both in zip(made, joined, strict=True):
                column[both] = of_both
        return made

    @override
    def packed(self, begin: int, end: int) -> Packed:
        columns = (one[begin:end].tobytes() for one in self._columns)
        return self.kind, type(self._aggregator).__name__, *columns

    def _numbers(self, groups: Groups, *kinds: str) -> Numbers:
        numbers = numbers_of(groups, getattr(self._aggregator, "field", None))
        if numbers.values.dtype.kind not in kinds:
            raise NotInColumns
        return numbers

    @abstractmethod
    def _grouped(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        """The columns of what each group comes to, and the rows that get them."""

    @abstractmethod
    def _joined(self, left: list[Column], right: list[Column]) -> list[Column]:
        """The columns of two parts of the same windows, each of which has values."""


class Counts(NumberFigures):
    """How many values there are, or how many have a field."""

    kind = "count"
    types = ("<i8",)

    @override
    def results(self, rows: Ints) -> pa.Array:
        return pa.array(self._columns[0][rows])

    @override
    def states(self) -> list[Any]:
        found: list[Any] = self._columns[0].tolist()
        return found

    @override
    def _grouped(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        field = getattr(self._aggregator, "field", None)
        if field is None:
            return rows, [groups.counts]
        batch = groups.values
        column = (
            column_at(batch, field)
            if isinstance(field, str) and isinstance(batch, pa.RecordBatch)
            else None
        )
        if column is None:
            raise NotInColumns
        if not column.null_count:
            return rows, [groups.counts]
        valid = column.is_valid().to_numpy(zero_copy_only=False)[groups.order]
        return rows, [np.add.reduceat(valid.astype(np.int64), groups.starts)]

    @override
    def _joined(self, left: list[Column], right: list[Column]) -> list[Column]:
        return [left[0] + right[0]]


class WholeSums(NumberFigures):
    """Sums of whole numbers: how many, and the total."""

    kind = "whole"
    types = ("<i8", "<i8")

    @override
    def results(self, rows: Ints) -> pa.Array:
        counts, totals = (column[rows] for column in self._columns)
        return pa.array(totals) if _is_sum(self) else _whole_means(counts, totals)

    @override
    def states(self) -> list[Any]:
        rows = zip(*(column.tolist() for column in self._columns), strict=True)
        if _is_sum(self):
            return [total if count else None for count, total in rows]
        return [(count, total) for count, total in rows]

    @override
    def _grouped(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        numbers = self._numbers(groups, "i")
        values = numbers.values
        if len(values) and max(-int(values.min()), int(values.max())) * len(values) >= _MOST_WHOLE:
            raise NotInColumns
        totals = np.add.reduceat(values, numbers.starts) if len(values) else values
        return numbers.rows(rows), [numbers.counts, totals]

    @override
    def _joined(self, left: list[Column], right: list[Column]) -> list[Column]:
        total = left[1] + right[1]
        if (np.abs(total) >= _MOST_WHOLE).any():
            raise NotInColumns
        return [left[0] + right[0], total]


class RealSums(NumberFigures):
    """Sums of floats: how many, and the exact total in two floats."""

    kind = "real"
    types = ("<i8", "<f8", "<f8")

    @override
    def results(self, rows: Ints) -> pa.Array:
        counts, high, low = (column[rows] for column in self._columns)
        if _is_sum(self):
            # The sum of nothing is the whole number 0.
            return _masked(high, counts > 0)
        quotient, certain = exact_sums.quotients(Totals(high, low), np.maximum(counts, 1))
        for row in np.flatnonzero(~certain & (counts > 0)).tolist():
            total = _floats(float(high[row]), float(low[row]))
            mean = exact_totals.mean(total, int(counts[row]))
            quotient[row] = float(mean)  # type: ignore[arg-type]
        return _masked(quotient, counts > 0)

    @override
    def states(self) -> list[Any]:
        rows = zip(*(column.tolist() for column in self._columns), strict=True)
        totals = [(count, _floats(high, low)) for count, high, low in rows]
        if _is_sum(self):
            return [total if count else None for count, total in totals]
        return [(count, total if count else 0) for count, total in totals]

    @override
    def _grouped(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        numbers = self._numbers(groups, "f")
        if not len(numbers.values):
            return numbers.rows(rows), [numbers.counts, numbers.values, numbers.values]
        totals = exact_sums.group_totals(numbers.values, numbers.starts)
        if totals is None:
            raise NotInColumns
        return numbers.rows(rows), [numbers.counts, *totals]

    @override
    def _joined(self, left: list[Column], right: list[Column]) -> list[Column]:
        totals = exact_sums.plus(Totals(left[1], left[2]), Totals(right[1], right[2]))
        if totals is None:
            raise NotInColumns
        return [left[0] + right[0], *totals]


class _Extremes(NumberFigures):
    """The least, or the greatest, of numbers of one kind: whether there is one, and which."""

    @override
    def results(self, rows: Ints) -> pa.Array:
        found, values = (column[rows] for column in self._columns)
        return _masked(values, found > 0)

    @override
    def states(self) -> list[Any]:
        # The number of the arrival tells equals apart: here they are the same, bit by bit.
        rows = zip(*(column.tolist() for column in self._columns), strict=True)
        return [(-1, value) if found else None for found, value in rows]

    @override
    def _grouped(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        numbers = self._numbers(groups, self.types[1][1])
        values, starts = numbers.values, numbers.starts
        if values.dtype.kind == "f" and ((values == 0) & np.signbit(values)).any():
            raise NotInColumns  # -0.0 equals 0.0, and which of the two stays is a matter of order
        chosen = self._best.reduceat(values, starts) if len(values) else values
        return numbers.rows(rows), [np.ones(len(starts), np.int8), chosen]

    @override
    def _joined(self, left: list[Column], right: list[Column]) -> list[Column]:
        return [left[0], self._best(left[1], right[1])]

    @property
    def _best(self) -> np.ufunc:
        # NaN is greater than every number: the least is NaN only where there is nothing else.
        return np.maximum if isinstance(self._aggregator, Max) else np.fmin


class WholeExtremes(_Extremes):
    """Of whole numbers."""

    kind = "whole extreme"
    types = ("<i1", "<i8")


class RealExtremes(_Extremes):
    """Of floats."""

    kind = "real extreme"
    types = ("<i1", "<f8")


class _Forms(NamedTuple):
    """The forms that an aggregate of numbers has."""

    whole: type[NumberFigures]
    real: type[NumberFigures]


_FORMS: dict[type[Aggregator[Any, Any, Any]], _Forms] = {
    Sum: _Forms(WholeSums, RealSums),
    Mean: _Forms(WholeSums, RealSums),
    Min: _Forms(WholeExtremes, RealExtremes),
    Max: _Forms(WholeExtremes, RealExtremes),
}
KINDS: dict[str, type[NumberFigures]] = {
    one.kind: one for one in (Counts, WholeSums, RealSums, WholeExtremes, RealExtremes)
}


def has_columns(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Whether an aggregate of records can be worked out in columns of numbers."""
    kind = type(aggregator)
    field = getattr(aggregator, "field", None)
    return (kind is Count and field is None) or (
        (kind is Count or kind in _FORMS) and isinstance(field, str)
    )


def tells_equals_apart(aggregator: Aggregator[Any, Any, Any]) -> bool:
    """Whether it matters which of equal numbers, such as 0.0 and -0.0, or 1 and 1.0, came first."""
    return type(aggregator) in (Min, Max)


def form_for(
    aggregator: Aggregator[Any, Any, Any], values: pa.RecordBatch | list[Any]
) -> type[NumberFigures] | None:
    """The form in which an aggregate of these values can be worked out; ``None`` for none."""
    if type(aggregator) is Count:
        whole = aggregator.field is None
        return Counts if whole or isinstance(values, pa.RecordBatch) else None
    forms = _FORMS.get(type(aggregator))
    field = getattr(aggregator, "field", None)
    if forms is None or not isinstance(field, str) or not isinstance(values, pa.RecordBatch):
        return None
    column = column_at(values, field)
    if column is None:
        return None
    if pa.types.is_integer(column.type):
        return forms.whole
    return forms.real if pa.types.is_floating(column.type) else None


def from_states(
    form: type[NumberFigures], aggregator: Aggregator[Any, Any, Any], states: list[Any]
) -> NumberFigures | None:
    """States in a form of columns; ``None`` when one of them does not fit there."""
    rows = [_row_of(form, aggregator, state) for state in states]
    if any(row is None for row in rows):
        return None
    columns = zip(*rows, strict=True) if rows else ([] for _ in form.types)
    return form(
        aggregator,
        [np.array(column, kind) for column, kind in zip(columns, form.types, strict=True)],
    )


def _row_of(
    form: type[NumberFigures], aggregator: Aggregator[Any, Any, Any], state: Any
) -> tuple[Any, ...] | None:
    if form is Counts:
        return (state,)
    if form in (WholeSums, RealSums):
        # A sum does not keep how many there were, only whether there was one.
        count, total = (0 if state is None else 1, state or 0) if type(aggregator) is Sum else state
        return _sum_row(form, count, total)
    if state is None:
        return 0, 0
    value = state[1]
    wanted = int if form is WholeExtremes else float
    return (1, value) if type(value) is wanted and _fits(value) else None


def _sum_row(form: type[NumberFigures], count: int, total: Any) -> tuple[Any, ...] | None:
    if not count:
        return (0,) * len(form.types)
    if form is WholeSums:
        return (count, total) if type(total) is int and _fits(total) else None
    if not isinstance(total, Floats):
        return None
    if total.beyond:
        return count, total.beyond, 0.0
    high = exact_totals.figure(total)
    if not isinstance(high, float) or not math.isfinite(high):
        return None
    exact = Fraction(total.numerator, 1 << total.scale)
    low = exact - Fraction(high)
    return (count, high, float(low)) if Fraction(float(low)) == low else None


def _at(columns: list[Column], rows: Ints | Mask) -> list[Column]:
    return [column[rows] for column in columns]


def _fits(value: float) -> bool:
    if type(value) is int:
        return abs(value) < _MOST_WHOLE
    return value != 0 or math.copysign(1.0, value) > 0


def _floats(high: float, low: float) -> Floats:
    total = exact_totals.total_of(high)
    total = exact_totals.plus(total, exact_totals.total_of(low)) if low else total
    if not isinstance(total, Floats):
        raise TypeError(f"two floats make a total of floats, not {type(total).__name__}")
    return total


def _is_sum(figures: NumberFigures) -> bool:
    return type(figures._aggregator) is Sum


def _whole_means(counts: Column, totals: Column) -> pa.Array:
    means = totals / np.maximum(counts, 1)
    for row in np.flatnonzero(np.abs(totals) >= _EXACT_FLOAT).tolist():
        means[row] = int(totals[row]) / max(int(counts[row]), 1)
    return _masked(means, counts > 0)


def _masked(values: Column, there: Mask) -> pa.Array:
    return pa.array(values) if there.all() else pa.array(values, mask=~there)
