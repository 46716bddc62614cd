"""The forms of accumulators, one of which each aggregate declares as `form`.

A form is plain data: `flow_windowing.columnar.aggregates.forms` has the kernels of each form in
columns of numbers. Accumulators can always be Python objects too, for values that such columns
cannot hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Form:
    """Accumulators as Python objects alone; the subclasses also have columns of numbers.

    Attributes:
        ignores_order: True if the result does not depend on the order in which values enter a
            window and windows merge. The arrivals of values may decide.
        ignores_arrival: True if the result does not depend on the arrivals of values.
    """

    ignores_order: bool = False
    ignores_arrival: bool = False


@dataclass(frozen=True, kw_only=True)
class CountForm(Form):
    """Counts of values of any type; the state is the count."""

    ignores_order: bool = True
    ignores_arrival: bool = True


@dataclass(frozen=True, kw_only=True)
class TotalForm(CountForm):
    """Totals of ints; the state is the total, ``None`` without values.

    Attributes:
        combine: the function of two ints, associative and commutative. The magnitude of a total is
            at most the total of the greatest magnitude of its ints, taken as many times.
    """

    combine: np.ufunc = np.add


@dataclass(frozen=True, kw_only=True)
class SumForm(TotalForm):
    """Sums of ints and exact sums of floats."""


@dataclass(frozen=True, kw_only=True)
class MeanForm(TotalForm):
    """Means of ints and of floats; the state is the count and the exact sum."""


@dataclass(frozen=True, kw_only=True)
class ExtremeForm(Form):
    """The least or the greatest of ints or floats; the state is an arrival number and the value.

    Attributes:
        is_greatest: True for the greatest value, False for the least; NaN is the greatest.
    """

    is_greatest: bool
    ignores_order: bool = True


@dataclass(frozen=True, kw_only=True)
class EdgeForm(Form):
    """The first or the last of ints or floats; the state is its place in the order and the value.

    Attributes:
        is_by_time: True if the order is by timestamp, then by arrival; False if by arrival only.
        is_last: True for the last value of the order, False for the first.
    """

    is_by_time: bool
    is_last: bool
    ignores_order: bool = True
