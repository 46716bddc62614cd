"""Minima and maxima of numbers, in columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.columnar.aggregates.accumulators import UnfitForColumns
from flow_windowing.columnar.aggregates.groups import Groups
from flow_windowing.columnar.aggregates.number_accumulators import (
    NumberAccumulators,
    fits,
    with_nulls,
)
from flow_windowing.columnar.aggregates.runs import Column


class _Extremes(NumberAccumulators):
    """Minima or maxima of numbers of one type.

    The columns: 1 if there is a number, else 0; the number. They hold no arrival numbers, which
    decide between equal values.
    """

    needs_order_of_arrival = True

    @override
    def results(self, rows: Ints) -> pa.Array:
        has_number, values = (column[rows] for column in self._columns)
        return with_nulls(values, has_number > 0)

    @classmethod
    @override
    def _states(cls, columns: list[Column]) -> list[Any]:
        # An arrival number decides between equal values, but equal values in columns are identical.
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [(-1, value) if has_number else None for has_number, value in rows]

    @classmethod
    @override
    def row_of(cls, aggregator: Aggregator[Any, Any, Any], state: Any) -> tuple[Any, ...] | None:
        if state is None:
            return 0, 0
        value = state[1]
        is_fit = fits(value, cls.types[1]) and (value != 0 or math.copysign(1.0, value) > 0)
        return (1, value) if is_fit else None

    @override
    def _reduce(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        numbers = self._numbers(groups)
        values, starts = numbers.values, numbers.starts
        if values.dtype.kind == "f" and ((values == 0) & np.signbit(values)).any():
            raise UnfitForColumns  # The result of the equal values -0.0 and 0.0 is the first one.
        chosen = self._best.reduceat(values, starts) if len(values) else values
        return numbers.rows(rows), [np.ones(len(starts), np.int8), chosen]

    @override
    def _combine(self, left: list[Column], right: list[Column]) -> list[Column]:
        return [left[0], self._best(left[1], right[1])]

    @property
    def _best(self) -> np.ufunc:
        # NaN counts as greater than every number, so a minimum is NaN only if all numbers are.
        return np.maximum if self._form.is_greatest else np.fmin


class WholeExtremes(_Extremes):
    """Minima or maxima of ints."""

    kind = "whole extreme"
    types = ("<i1", "<i8")


class RealExtremes(_Extremes):
    """Minima or maxima of floats."""

    kind = "real extreme"
    types = ("<i1", "<f8")
