"""Counts, sums and means, in columns."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints
from flow.fields import field_path
from flow_windowing.aggregates import exact_totals
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.aggregates.exact_totals import Floats
from flow_windowing.aggregates.numbers import Sum
from flow_windowing.columnar.aggregates import exact_sums
from flow_windowing.columnar.aggregates.accumulators import UnfitForColumns
from flow_windowing.columnar.aggregates.exact_sums import Totals
from flow_windowing.columnar.aggregates.groups import Groups
from flow_windowing.columnar.aggregates.number_accumulators import NumberAccumulators, with_nulls
from flow_windowing.columnar.aggregates.runs import Column

_MOST_WHOLE = 1 << 62
_EXACT_FLOAT = 1 << 53


class Counts(NumberAccumulators):
    """Counts of values, or of values that have a field."""

    kind = "count"
    types = ("<i8",)

    @override
    def results(self, rows: Ints) -> pa.Array:
        return pa.array(self._columns[0][rows])

    @override
    def states(self) -> list[Any]:
        counts: list[Any] = self._columns[0].tolist()
        return counts

    @override
    def _reduce(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        field = self._aggregator.field_read
        if field is None:
            return rows, [groups.counts]
        batch = groups.values
        column = (
            field_path(field).column_in(batch)
            if isinstance(field, str) and isinstance(batch, pa.RecordBatch)
            else None
        )
        if column is None:
            raise UnfitForColumns
        if not column.null_count:
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


class WholeSums(NumberAccumulators):
    """Sums and means of ints: the count, and the total, which stays below 2**62 in magnitude."""

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
    def _reduce(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        numbers = self._numbers(groups, "i")
        values = numbers.values
        if len(values) and max(-int(values.min()), int(values.max())) * len(values) >= _MOST_WHOLE:
            raise UnfitForColumns
        totals = np.add.reduceat(values, numbers.starts) if len(values) else values
        return numbers.rows(rows), [numbers.counts, totals]

    @override
    def _combine(self, left: list[Column], right: list[Column]) -> list[Column]:
        total = left[1] + right[1]
        if (np.abs(total) >= _MOST_WHOLE).any():
            raise UnfitForColumns
        return [left[0] + right[0], total]

    @classmethod
    @override
    def row_of(cls, aggregator: Aggregator[Any, Any, Any], state: Any) -> tuple[Any, ...] | None:
        count, total = _count_and_total(aggregator, state)
        if not count:
            return 0, 0
        fits = type(total) is int and abs(total) < _MOST_WHOLE
        return (count, total) if fits else None


class RealSums(NumberAccumulators):
    """Sums and means of floats: the count, and the exact total in two floats."""

    kind = "real"
    types = ("<i8", "<f8", "<f8")

    @override
    def results(self, rows: Ints) -> pa.Array:
        counts, high, low = (column[rows] for column in self._columns)
        if _is_sum(self):
            # Null means the sum of no values, the int 0, which a column of floats cannot hold.
            return with_nulls(high, counts > 0)
        quotient, certain = exact_sums.quotients(Totals(high, low), np.maximum(counts, 1))
        for row in np.flatnonzero(~certain & (counts > 0)).tolist():
            total = _floats(float(high[row]), float(low[row]))
            mean = exact_totals.mean(total, int(counts[row]))
            quotient[row] = float(mean)  # type: ignore[arg-type]
        return with_nulls(quotient, counts > 0)

    @override
    def states(self) -> list[Any]:
        rows = zip(*(column.tolist() for column in self._columns), strict=True)
        totals = [(count, _floats(high, low)) for count, high, low in rows]
        if _is_sum(self):
            return [total if count else None for count, total in totals]
        return [(count, total if count else 0) for count, total in totals]

    @override
    def _reduce(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        numbers = self._numbers(groups, "f")
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
    def row_of(cls, aggregator: Aggregator[Any, Any, Any], state: Any) -> tuple[Any, ...] | None:
        count, total = _count_and_total(aggregator, state)
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


def _count_and_total(aggregator: Aggregator[Any, Any, Any], state: Any) -> tuple[int, Any]:
    """Return the count of numbers and their total from a state; a sum's count is 0 or 1."""
    if type(aggregator) is not Sum:
        return state  # type: ignore[no-any-return]
    return (0, 0) if state is None else (1, state)


def _floats(high: float, low: float) -> Floats:
    """Return the exact sum of two floats."""
    total = exact_totals.total_of(high)
    total = exact_totals.plus(total, exact_totals.total_of(low)) if low else total
    if not isinstance(total, Floats):
        raise TypeError(f"two floats make a total of floats, not {type(total).__name__}")
    return total


def _is_sum(accumulators: NumberAccumulators) -> bool:
    return type(accumulators._aggregator) is Sum


def _whole_means(counts: Column, totals: Column) -> pa.Array:
    means = totals / np.maximum(counts, 1)
    for row in np.flatnonzero(np.abs(totals) >= _EXACT_FLOAT).tolist():
        means[row] = int(totals[row]) / max(int(counts[row]), 1)
    return with_nulls(means, counts > 0)
