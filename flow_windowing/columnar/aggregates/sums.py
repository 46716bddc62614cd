"""Counts, sums and means, in columns; `flow_windowing.aggregates.exact_totals` has exact totals.

The exact total of floats is the sum of two floats: `high` is the total rounded to the nearest
float, `low` the remainder. Two floats hold any total of up to about 106 bits, and most sums of
measurements have fewer. For a longer total the functions here return ``None``, and the caller uses
the totals of `exact_totals` instead. A `high` that is infinite or NaN is the sum of all values that
were infinite or NaN.

Values are cut into slices of bits that add up without rounding, in any order (S. M. Rump, T. Ogita
and S. Oishi, Accurate floating-point summation I, SIAM J. Sci. Comput. 31(1), 2008). The sums of
the slices are added with their rounding errors (D. E. Knuth, The Art of Computer Programming 2,
4.2.2).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints, Mask
from flow_windowing.aggregates import exact_totals
from flow_windowing.aggregates.exact_totals import Floats
from flow_windowing.columnar.aggregates.accumulators import (
    Column,
    FieldAccumulators,
    FieldNumbers,
    Groups,
    NumberAccumulators,
    UnfitForColumns,
    with_nulls,
)

Reals: TypeAlias = npt.NDArray[np.float64]

_MOST_SLICES = 6
_LEAST_EXPONENT = -960
"""Values with a lower exponent have subnormal slices, whose sums are not exact."""


class Totals(NamedTuple):
    """Exact totals, in two columns.

    Attributes:
        high: each total, rounded.
        low: the remainder of each total.
    """

    high: Reals
    low: Reals


def group_totals(values: Reals, starts: Ints) -> Totals | None:
    """Return the exact total of each group, ``None`` when two floats cannot hold one of them.

    Args:
        values: the values of all groups, one group after the other.
        starts: the index of each group's first value, ascending; no group is empty.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(values)
        if finite.all():
            return _finite_totals(values, starts)
        totals = _finite_totals(np.where(finite, values, 0.0), starts)
        not_finite = np.add.reduceat(np.where(finite, 0.0, values), starts)
        return None if totals is None else _with_not_finite(totals, not_finite)


def plus(left: Totals, right: Totals) -> Totals | None:
    """Add totals row by row; return ``None`` when two floats cannot hold one of the sums."""
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(left.high) & np.isfinite(right.high)
        parts = [left.high, right.high, left.low, right.low]
        if finite.all():
            return _add_parts(parts)
        sums = _add_parts([np.where(finite, part, 0.0) for part in parts])
        not_finite = np.where(np.isfinite(left.high), 0.0, left.high)
        not_finite += np.where(np.isfinite(right.high), 0.0, right.high)
        return None if sums is None else _with_not_finite(sums, np.where(finite, 0.0, not_finite))


def quotients(totals: Totals, counts: Ints) -> tuple[Reals, Mask]:
    """Return each total divided by its count, and the mask of correctly rounded quotients.

    A quotient outside the mask may be rounded twice.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        divisor = counts.astype(np.float64)
        scaled = totals.high / divisor
        remainder = np.where(np.isfinite(scaled), _remainder(totals, scaled, divisor), 0.0)
        quotient = scaled + remainder / divisor
        remainder = np.abs(_remainder(totals, quotient, divisor))
        spacing = np.spacing(np.abs(quotient)) * divisor
        certain = remainder * 2 < spacing * (1 - 1e-9)
        # Just below a power of 2 the next float is only half as far away.
        is_power = np.abs(np.frexp(quotient)[0]) == 0.5
        certain &= (~is_power | (remainder * 4 < spacing)) & (divisor < 1 << 26)
        # Division by a power of 2 rounds no more than once.
        is_power_count = (counts & (counts - 1)) == 0
        certain |= is_power_count
        certain &= (np.abs(quotient) < 1e290) & (np.abs(quotient) > 1e-290)
        certain |= (totals.high == 0) & (totals.low == 0)
        certain |= ~np.isfinite(totals.high)
    return np.where(is_power_count, scaled, quotient), certain


def _remainder(totals: Totals, quotient: Reals, divisor: Reals) -> Reals:
    """Return total - quotient * divisor, from exact products of half as many digits each."""
    factor = 134217729.0 * quotient
    upper = factor - (factor - quotient)
    return (totals.high - upper * divisor) - (quotient - upper) * divisor + totals.low


def _finite_totals(values: Reals, starts: Ints) -> Totals | None:
    """Return the exact total of each group of finite values; see `group_totals`."""
    longest = int(np.diff(starts, append=len(values)).max())
    if longest == 1:
        return Totals(values[starts] + 0.0, np.zeros(len(starts)))
    spare = math.ceil(math.log2(longest)) + 1
    slices: list[Reals] = []
    remainder = values
    while True:
        greatest = float(np.abs(remainder).max())
        if greatest == 0.0:
            break
        exponent = math.frexp(greatest)[1] + spare
        if len(slices) == _MOST_SLICES or not _LEAST_EXPONENT < exponent < 1023:
            return None
        unit = math.ldexp(1.0, exponent)
        part = (unit + remainder) - unit
        slices.append(np.add.reduceat(part, starts))
        remainder = remainder - part
    if not slices:
        return Totals(np.zeros(len(starts)), np.zeros(len(starts)))
    return _add_parts(slices)


def _add_parts(parts: list[Reals]) -> Totals | None:
    """Return the exact sum of columns, row by row, ``None`` when two floats cannot hold one."""
    parts = [part.copy() for part in parts]
    if len(parts) == 1:
        return Totals(parts[0] + 0.0, np.zeros(len(parts[0])))
    for _ in range(len(parts)):
        for index in range(len(parts) - 1, 0, -1):
            parts[index - 1], parts[index] = _two_sum(parts[index - 1], parts[index])
    if any(part.any() for part in parts[2:]) or not np.isfinite(parts[0]).all():
        return None
    high, low = _two_sum(parts[0], parts[1])
    return Totals(high + 0.0, low + 0.0)


def _two_sum(left: Reals, right: Reals) -> tuple[Reals, Reals]:
    """Return the rounded sum and its rounding error."""
    total = left + right
    rounded_right = total - left
    return total, (left - (total - rounded_right)) + (right - rounded_right)


def _with_not_finite(totals: Totals, sums: Reals) -> Totals:
    """Return totals, of which those with values that are not finite are the sums of these values.

    Args:
        totals: the totals of finite values.
        sums: the sums of values that are not finite; 0.0 for a total without such values.
    """
    has_sum = sums != 0.0
    return Totals(np.where(has_sum, sums, totals.high), np.where(has_sum, 0.0, totals.low))


_MOST_WHOLE = 1 << 62
_EXACT_FLOAT = 1 << 53


class Counts(NumberAccumulators):
    """Counts of values, or of values that have a field."""

    kind = "count"
    types = ("<i8",)

    @override
    def results(self, rows: Ints) -> pa.Array:
        return pa.array(self._columns[0][rows])

    @classmethod
    @override
    def state_of(cls, row: tuple[Any, ...]) -> Any:
        return row[0]

    @classmethod
    @override
    def row_of(cls, state: Any) -> tuple[Any, ...] | None:
        return (state,)

    @override
    def _reduce(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        column = groups.column(self._aggregator)
        if column is None or not column.null_count:
            return rows, [groups.counts]
        valid = column.is_valid().to_numpy(zero_copy_only=False)[groups.rows]
        return rows, [np.add.reduceat(valid.astype(np.int64), groups.starts)]

    @override
    def _combine(self, left: list[Column], right: list[Column]) -> list[Column]:
        return [left[0] + right[0]]


class _TotalsOfNumbers(FieldAccumulators):
    """Totals of numbers of one type: the count, and the columns of the total."""

    @override
    def results(self, rows: Ints) -> pa.Array:
        counts, totals = self._columns[0][rows], self._columns[1][rows]
        # Null means the total of no values, which a column of floats may not hold.
        return with_nulls(totals, counts > 0)

    @classmethod
    @override
    def state_of(cls, row: tuple[Any, ...]) -> Any:
        return cls._total_of(row[1:]) if row[0] else None

    @classmethod
    @override
    def row_of(cls, state: Any) -> tuple[Any, ...] | None:
        columns = cls._columns_of(state)
        return None if columns is None else (1, *columns)

    @staticmethod
    @abstractmethod
    def _total_of(columns: tuple[Any, ...]) -> Any:
        """Return the exact total that is a value for each of its columns."""

    @staticmethod
    @abstractmethod
    def _columns_of(total: Any) -> tuple[Any, ...] | None:
        """Return a total as a value for each of its columns; ``None`` if it does not fit."""


class _Means(_TotalsOfNumbers):
    """Means of numbers of one type, with the columns of totals."""

    @classmethod
    @override
    def state_of(cls, row: tuple[Any, ...]) -> Any:
        return row[0], cls._total_of(row[1:]) if row[0] else 0

    @classmethod
    @override
    def row_of(cls, state: Any) -> tuple[Any, ...] | None:
        count, total = state
        columns = cls._columns_of(total) if count else (0,) * (len(cls.types) - 1)
        return None if columns is None else (count, *columns)


class WholeTotals(_TotalsOfNumbers):
    """Totals of ints, which stay below 2**62 in magnitude."""

    kind = "whole total"
    types = ("<i8", "<i8")

    @staticmethod
    @override
    def _total_of(columns: tuple[Any, ...]) -> Any:
        return columns[0]

    @staticmethod
    @override
    def _columns_of(total: Any) -> tuple[Any, ...] | None:
        return (total,) if type(total) is int and abs(total) < _MOST_WHOLE else None

    @override
    def _reduce_numbers(self, numbers: FieldNumbers, groups: Groups) -> list[Column]:
        values, counts = numbers.values, numbers.counts
        combine, greatest = self._form.combine, max(-int(values.min()), int(values.max()))
        with np.errstate(over="ignore"):
            if combine.reduce(np.full(counts.max(), float(greatest))) >= _MOST_WHOLE:
                raise UnfitForColumns
        return [counts, combine.reduceat(values, numbers.starts)]

    @override
    def _combine(self, left: list[Column], right: list[Column]) -> list[Column]:
        combine = self._form.combine
        if (np.abs(combine(left[1], right[1], dtype=np.float64)) >= _MOST_WHOLE).any():
            raise UnfitForColumns
        return [left[0] + right[0], combine(left[1], right[1])]


class WholeMeans(_Means, WholeTotals):
    """Means of ints."""

    kind = "whole mean"

    @override
    def results(self, rows: Ints) -> pa.Array:
        counts, totals = (column[rows] for column in self._columns)
        means = totals / np.maximum(counts, 1)
        for row in np.flatnonzero(np.abs(totals) >= _EXACT_FLOAT).tolist():
            means[row] = int(totals[row]) / max(int(counts[row]), 1)
        return with_nulls(means, counts > 0)


class RealSums(_TotalsOfNumbers):
    """Sums of floats: the count, and the exact total in two floats."""

    kind = "real sum"
    types = ("<i8", "<f8", "<f8")

    @staticmethod
    @override
    def _total_of(columns: tuple[Any, ...]) -> Floats:
        high, low = columns
        total = exact_totals.total_of(high)
        total = exact_totals.plus(total, exact_totals.total_of(low)) if low else total
        if not isinstance(total, Floats):
            raise TypeError(f"two floats make a total of floats, not {type(total).__name__}")
        return total

    @staticmethod
    @override
    def _columns_of(total: Any) -> tuple[Any, ...] | None:
        if not isinstance(total, Floats):
            return None
        if total.beyond:
            return total.beyond, 0.0
        high = exact_totals.rounded(total)
        if not isinstance(high, float) or not math.isfinite(high):
            return None
        exact = Fraction(total.numerator, 1 << total.scale)
        low = exact - Fraction(high)
        return (high, float(low)) if Fraction(float(low)) == low else None

    @override
    def _reduce_numbers(self, numbers: FieldNumbers, groups: Groups) -> list[Column]:
        totals = group_totals(numbers.values, numbers.starts)
        if totals is None:
            raise UnfitForColumns
        return [numbers.counts, *totals]

    @override
    def _combine(self, left: list[Column], right: list[Column]) -> list[Column]:
        totals = plus(Totals(left[1], left[2]), Totals(right[1], right[2]))
        if totals is None:
            raise UnfitForColumns
        return [left[0] + right[0], *totals]


class RealMeans(_Means, RealSums):
    """Means of floats."""

    kind = "real mean"

    @override
    def results(self, rows: Ints) -> pa.Array:
        counts, high, low = (column[rows] for column in self._columns)
        quotient, certain = quotients(Totals(high, low), np.maximum(counts, 1))
        for row in np.flatnonzero(~certain & (counts > 0)).tolist():
            total = self._total_of((float(high[row]), float(low[row])))
            mean = exact_totals.mean(total, int(counts[row]))
            quotient[row] = float(mean)  # type: ignore[arg-type]
        return with_nulls(quotient, counts > 0)
