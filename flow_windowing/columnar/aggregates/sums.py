"""Counts, sums and means, in columns."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints
from flow_windowing.aggregates import exact_totals
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.aggregates.exact_totals import Floats
from flow_windowing.columnar.aggregates import exact_sums
from flow_windowing.columnar.aggregates.accumulators import Column, Groups, UnfitForColumns
from flow_windowing.columnar.aggregates.exact_sums import Totals
from flow_windowing.columnar.aggregates.number_accumulators import NumberAccumulators, with_nulls

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


class _Totals(NumberAccumulators):
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


class _Means(_Totals):
    """Means of numbers of one type, with the columns of totals."""

    @classmethod
    @override
    def _states(cls, columns: list[Column]) -> list[Any]:
        return [(count, total if count else 0) for count, total in cls._counts_and_totals(columns)]

    @classmethod
    @override
    def row_of(cls, aggregator: Aggregator[Any, Any, Any], state: Any) -> tuple[Any, ...] | None:
        return cls._row(*state)


class WholeTotals(_Totals):
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


class RealSums(_Totals):
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
        totals = exact_sums.group_totals(numbers.values, numbers.starts)
        if totals is None:
            raise UnfitForColumns
        return numbers.rows(rows), [numbers.counts, *totals]

    @override
    def _combine(self, left: list[Column], right: list[Column]) -> list[Column]:
        totals = exact_sums.plus(Totals(left[1], left[2]), Totals(right[1], right[2]))
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
        quotient, certain = exact_sums.quotients(Totals(high, low), np.maximum(counts, 1))
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
