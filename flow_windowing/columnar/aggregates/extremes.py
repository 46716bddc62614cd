"""Minima, maxima, and first, last, earliest and latest numbers, in columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints
from flow.instants import NEVER
from flow_windowing.columnar.aggregates.accumulators import (
    Column,
    FieldAccumulators,
    FieldNumbers,
    Groups,
    UnfitForColumns,
    fits,
    take_rows,
    with_nulls,
)


class _Extremes(FieldAccumulators):
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
    def state_of(cls, row: tuple[Any, ...]) -> Any:
        # An arrival number decides between equal values, but equal values in columns are identical.
        has_number, value = row
        return (-1, value) if has_number else None

    @classmethod
    @override
    def row_of(cls, state: Any) -> tuple[Any, ...] | None:
        value = state[1]
        is_fit = fits(value, cls.types[1]) and (value != 0 or math.copysign(1.0, value) > 0)
        return (1, value) if is_fit else None

    @override
    def _reduce_numbers(self, numbers: FieldNumbers, groups: Groups) -> list[Column]:
        values, starts = numbers.values, numbers.starts
        if values.dtype.kind == "f" and ((values == 0) & np.signbit(values)).any():
            raise UnfitForColumns  # The result of the equal values -0.0 and 0.0 is the first one.
        return [np.ones(len(starts), np.int8), self._best.reduceat(values, starts)]

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


class _Edges(FieldAccumulators):
    """First or last numbers of one type.

    The columns: 1 if there is a number, else 0; the number's timestamp in µs, or 0 if the aggregate
    does not depend on time; its arrival number; the number.
    """

    @override
    def results(self, rows: Ints) -> pa.Array:
        has_number, _, _, values = take_rows(self._columns, rows)
        return with_nulls(values, has_number > 0)

    @classmethod
    @override
    def state_of(cls, row: tuple[Any, ...]) -> Any:
        has_number, *order, value = row
        return (tuple(order), value) if has_number else None

    @classmethod
    @override
    def row_of(cls, state: Any) -> tuple[Any, ...] | None:
        order, value = state
        return (1, *order, value) if fits(value, cls.types[-1]) else None

    @override
    def _reduce_numbers(self, numbers: FieldNumbers, groups: Groups) -> list[Column]:
        times_us, arrivals, _ = groups.arrival_columns
        if numbers.entries is not None:
            times_us, arrivals = times_us[numbers.entries], arrivals[numbers.entries]
        if not self._form.is_by_time:
            times_us = np.zeros_like(times_us)
        chosen = self._edges(times_us, arrivals, numbers.starts, numbers.counts)
        has_number = np.ones(len(chosen), np.int8)
        return [has_number, times_us[chosen], arrivals[chosen], numbers.values[chosen]]

    def _edges(self, times_us: Ints, arrivals: Ints, starts: Ints, counts: Ints) -> Ints:
        """Return the index of each group's edge; arrival numbers of a group are distinct."""
        best, worst = (np.maximum, -NEVER) if self._form.is_last else (np.minimum, NEVER)
        if self._form.is_by_time:
            edge_us = np.repeat(best.reduceat(times_us, starts), counts)
            arrivals = np.where(times_us == edge_us, arrivals, worst)
        return np.flatnonzero(arrivals == np.repeat(best.reduceat(arrivals, starts), counts))

    @override
    def _combine(self, left: list[Column], right: list[Column]) -> list[Column]:
        (_, left_us, left_number, _), (_, right_us, right_number, _) = left, right
        later = (right_us > left_us) | ((right_us == left_us) & (right_number >= left_number))
        wins = later if self._form.is_last else ~later
        return [np.where(wins, new, old) for old, new in zip(left, right, strict=True)]


class WholeEdges(_Edges):
    """First or last ints."""

    kind = "whole edge"
    types = ("<i1", "<i8", "<i8", "<i8")


class RealEdges(_Edges):
    """First or last floats."""

    kind = "real edge"
    types = ("<i1", "<i8", "<i8", "<f8")
