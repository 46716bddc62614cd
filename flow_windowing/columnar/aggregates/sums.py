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
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints, Mask
from flow_windowing.aggregates import exact_totals
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.aggregates.exact_totals import Floats
from flow_windowing.columnar.aggregates.accumulators import (
    Column,
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
    def _states(cls, columns: list[Column]) -> list[Any]:
        counts: list[Any] = columns[0].tolist()
        return counts

    @override
    def _reduce(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        column = groups.column(self._aggregator.field_read)
        if column is None or not column.null_count:
            return rows, [groups.counts]
        valid = column.is_valid().to_numpy(zero_copy_only=False)[groups.rows]
        return rows, [np.add.reduceat(valid.astype(np.int64), groups.starts)]

    @override
    def _combine(self, left: list[Column], right: list[Column]) -> list[Column]:
        return [left[0] + right[0]]

    @classmethod
    @override
    def row_of(cls, aggregator: Aggregator[Any, Any, Any], state: Any) -> tuple[Any, ...] | None:
        return (state,)


class _TotalsOfNumbers(NumberAccumulators):
    """Totals of numbers of one type: the count, and the columns of the total."""

    @override
    def results(self, rows: Ints) -> pa.Array:
        counts, totals = self._columns[0][rows], self._columns[1][rows]
        # Null means the total of no values, which a column of floats may not hold.
        return with_nulls(totals, counts > 0)

    @classmethod
    @override
    def _states(cls, columns: list[Column]) -> list[Any]:
        return [total if count else None for count, total in cls._counts_and_totals(columns)]

    @classmethod
    @override
    def row_of(cls, aggregator: Aggregator[Any, Any, Any], state: Any) -> tuple[Any, ...] | None:
        return cls._row(*((0, 0) if state is None else (1, state)))

    @classmethod
    @abstractmethod
    def _counts_and_totals(cls, columns: list[Column]) -> Iterable[tuple[int, Any]]:
        """Return the count and the exact total of each row; any total for a count of 0."""

    @classmethod
    @abstractmethod
    def _row(cls, count: int, total: Any) -> tuple[Any, ...] | None:
        """Return a count and a total as a value for each column; ``None`` if it does not fit."""


class _Means(_TotalsOfNumbers):
    """Means of numbers of one type, with the columns of totals."""

    @classmethod
    @override
    def _states(cls, columns: list[Column]) -> list[Any]:
        return [(count, total if count else 0) for count, total in cls._counts_and_totals(columns)]

    @classmethod
    @override
    def row_of(cls, aggregator: Aggregator[Any, Any, Any], state: Any) -> tuple[Any, ...] | None:
        return cls._row(*state)


class WholeTotals(_TotalsOfNumbers):
    """Totals of ints, which stay below 2**62 in magnitude."""

    kind = "whole total"
    types = ("<i8", "<i8")

    @classmethod
    @override
    def _counts_and_totals(cls, columns: list[Column]) -> Iterable[tuple[int, Any]]:
        return zip(*(column.tolist() for column in columns), strict=True)

    @override
    def _reduce(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        numbers = self._numbers(groups)
        values, counts = numbers.values, numbers.counts
        if not len(values):
            return numbers.rows(rows), [counts, values]
        combine, greatest = self._form.combine, max(-int(values.min()), int(values.max()))
        with np.errstate(over="ignore"):
            if combine.reduce(np.full(counts.max(), float(greatest))) >= _MOST_WHOLE:
                raise UnfitForColumns
        return numbers.rows(rows), [counts, combine.reduceat(values, numbers.starts)]

    @override
    def _combine(self, left: list[Column], right: list[Column]) -> list[Column]:
        combine = self._form.combine
        if (np.abs(combine(left[1], right[1], dtype=np.float64)) >= _MOST_WHOLE).any():
            raise UnfitForColumns
        return [left[0] + right[0], combine(left[1], right[1])]

    @classmethod
    @override
    def _row(cls, count: int, total: Any) -> tuple[Any, ...] | None:
        if not count:
            return 0, 0
        fits = type(total) is int and abs(total) < _MOST_WHOLE
        return (count, total) if fits else None


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

    @classmethod
    @override
    def _counts_and_totals(cls, columns: list[Column]) -> Iterable[tuple[int, Any]]:
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return ((count, _floats(high, low)) for count, high, low in rows)

    @override
    def _reduce(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        numbers = self._numbers(groups)
        if not len(numbers.values):
            return numbers.rows(rows), [numbers.counts, numbers.values, numbers.values]
        totals = group_totals(numbers.values, numbers.starts)
        if totals is None:
            raise UnfitForColumns
        return numbers.rows(rows), [numbers.counts, *totals]

    @override
    def _combine(self, left: list[Column], right: list[Column]) -> list[Column]:
        totals = plus(Totals(left[1], left[2]), Totals(right[1], right[2]))
        if totals is None:
            raise UnfitForColumns
        return [left[0] + right[0], *totals]

    @classmethod
    @override
    def _row(cls, count: int, total: Any) -> tuple[Any, ...] | None:
        if not count:
            return 0, 0.0, 0.0
        if not isinstance(total, Floats):
            return None
        if total.beyond:
            return count, total.beyond, 0.0
        high = exact_totals.rounded(total)
        if not isinstance(high, float) or not math.isfinite(high):
            return None
        exact = Fraction(total.numerator, 1 << total.scale)
        low = exact - Fraction(high)
        return (count, high, float(low)) if Fraction(float(low)) == low else None


class RealMeans(_Means, RealSums):
    """Means of floats."""

    kind = "real mean"

    @override
    def results(self, rows: Ints) -> pa.Array:
        counts, high, low = (column[rows] for column in self._columns)
        quotient, certain = quotients(Totals(high, low), np.maximum(counts, 1))
        for row in np.flatnonzero(~certain & (counts > 0)).tolist():
            total = _floats(float(high[row]), float(low[row]))
            mean = exact_totals.mean(total, int(counts[row]))
            quotient[row] = float(mean)  # type: ignore[arg-type]
        return with_nulls(quotient, counts > 0)


def _floats(high: float, low: float) -> Floats:
    """Return the exact sum of two floats."""
    total = exact_totals.total_of(high)
    total = exact_totals.plus(total, exact_totals.total_of(low)) if low else total
    if not isinstance(total, Floats):
        raise TypeError(f"two floats make a total of floats, not {type(total).__name__}")
    return total
