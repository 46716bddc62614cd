"""Aggregates that choose a number, in columns: the least, the greatest, the first, the last."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints
from flow.instants import NEVER
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.aggregates.chosen import Edge, Max
from flow_windowing.columnar.aggregates.figures import Groups, NotInColumns
from flow_windowing.columnar.aggregates.number_figures import Column, NumberFigures, at_rows, masked

_MOST = 1 << 63


class _Extremes(NumberFigures):
    """The least, or the greatest, of numbers of one kind: whether there is one, and which."""

    @override
    def results(self, rows: Ints) -> pa.Array:
        found, values = (column[rows] for column in self._columns)
        return masked(values, found > 0)

    @override
    def states(self) -> list[Any]:
        # The number of the arrival tells equals apart: here they are the same, bit by bit.
        rows = zip(*(column.tolist() for column in self._columns), strict=True)
        return [(-1, value) if found else None for found, value in rows]

    @classmethod
    @override
    def row_of(cls, aggregator: Aggregator[Any, Any, Any], state: Any) -> tuple[Any, ...] | None:
        if state is None:
            return 0, 0
        value = state[1]
        if cls.types[1] == "<i8":
            return (1, value) if type(value) is int and -_MOST <= value < _MOST else None
        is_negative_zero = value == 0 and math.copysign(1.0, value) < 0
        return (1, value) if type(value) is float and not is_negative_zero else None

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


class _Edges(NumberFigures):
    """The first or the last of numbers of one kind: whether there is one, when it came, and which.

    When it came is its timestamp, where that decides, and the number of its arrival.
    """

    @override
    def results(self, rows: Ints) -> pa.Array:
        found, _, _, values = at_rows(self._columns, rows)
        return masked(values, found > 0)

    @override
    def states(self) -> list[Any]:
        rows = zip(*(column.tolist() for column in self._columns), strict=True)
        by_time = self._edge._by_time
        return [
            ((time_us, number) if by_time else number, value) if found else None
            for found, time_us, number, value in rows
        ]

    @classmethod
    @override
    def row_of(cls, aggregator: Aggregator[Any, Any, Any], state: Any) -> tuple[Any, ...] | None:
        if state is None:
            return 0, 0, 0, 0
        turn, value = state
        time_us, number = turn if isinstance(turn, tuple) else (0, turn)
        if cls.types[-1] == "<i8":
            fits = type(value) is int and -_MOST <= value < _MOST
        else:
            fits = type(value) is float
        return (1, time_us, number, value) if fits else None

    @override
    def _grouped(self, rows: Ints, groups: Groups) -> tuple[Ints, list[Column]]:
        numbers = self._numbers(groups, self.types[-1][1])
        times_us, arrived, _ = groups.arrival_columns
        if numbers.at is not None:
            times_us, arrived = times_us[numbers.at], arrived[numbers.at]
        if not self._edge._by_time:
            times_us = np.zeros_like(times_us)
        chosen = self._chosen(times_us, arrived, numbers.starts, numbers.counts)
        found = np.ones(len(chosen), np.int8)
        columns: list[Column] = [found, times_us[chosen], arrived[chosen], numbers.values[chosen]]
        return numbers.rows(rows), columns

    def _chosen(self, times_us: Ints, arrived: Ints, starts: Ints, counts: Ints) -> Ints:
        """Which value of each group it is; no two of a group came at the same time."""
        if not len(starts):
            return starts
        best, worst = (np.maximum, -NEVER) if self._edge._last else (np.minimum, NEVER)
        if self._edge._by_time:
            edge_us = np.repeat(best.reduceat(times_us, starts), counts)
            arrived = np.where(times_us == edge_us, arrived, worst)
        return np.flatnonzero(arrived == np.repeat(best.reduceat(arrived, starts), counts))

    @override
    def _joined(self, left: list[Column], right: list[Column]) -> list[Column]:
        (_, left_us, left_number, _), (_, right_us, right_number, _) = left, right
        later = (right_us > left_us) | ((right_us == left_us) & (right_number >= left_number))
        wins = later if self._edge._last else ~later
        return [np.where(wins, new, old) for old, new in zip(left, right, strict=True)]

    @property
    def _edge(self) -> Edge:
        return self._aggregator  # type: ignore[return-value]


class WholeEdges(_Edges):
    """Of whole numbers."""

    kind = "whole edge"
    types = ("<i1", "<i8", "<i8", "<i8")


class RealEdges(_Edges):
    """Of floats."""

    kind = "real edge"
    types = ("<i1", "<i8", "<i8", "<f8")
