"""Aggregates of the distribution of numbers: standard deviation and quantiles.

The argument `field`, and the values that are skipped, are as in
`flow_windowing.aggregates.numbers`.

The approximate quantile counts values in bins whose bounds grow by a factor. This is the sketch of
C. Masson, J. E. Rim and H. K. Lee, DDSketch: a fast and fully-mergeable quantile sketch with
relative-error guarantees, PVLDB 12(12), 2019. Its state follows from the values alone, so the
result depends neither on their order nor on merges. The KLL, REQ and classic quantile sketches of
Apache DataSketches draw random bits, so that a replayed epoch could have another result, and their
t-digest depends on the order of values.
"""

from __future__ import annotations

import math
import sys
from array import array
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.checks import check_flag
from flow.errors import FlowBuildError, shorten
from flow_windowing.aggregates.aggregator import FieldAggregator, Form, UnfitError, described
from flow_windowing.rules.window_logic import Arrival

Moments: TypeAlias = tuple[int, float, float]
"""The count of numbers, their mean, and the sum of the squares of their distances from it."""


@dataclass(frozen=True, repr=False)
class StdDev(FieldAggregator[Moments, float | None]):
    """The standard deviation, as a float.

    Without values the result is ``None``; with one value it is ``None`` for a sample and 0.0 for a
    population. NaN and infinities make the result NaN. Memory: three numbers.

    Sums of squares would suffer from cancellation. Values are added by the method of B. P. Welford
    (Note on a method for calculating corrected sums of squares and products, Technometrics 4(3),
    1962), and states merged by that of T. F. Chan, G. H. Golub and R. J. LeVeque (Algorithms for
    computing the sample variance, The American Statistician 37(3), 1983). The order of values and
    merges change at most the last digits.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.
        sample: True if the values are a sample (divide by n - 1), False if they are the whole
            population (divide by n).

    >>> from flow_windowing import aggregate
    >>> aggregate(StdDev(), [1, 2, 3]), aggregate(StdDev(sample=False), [1, 1, 3, 3])
    (1.0, 1.0)
    """

    form = Form(ignores_arrival=True)
    _positional: ClassVar[int] = 1
    _result_type = pa.float64()

    sample: bool = True

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag("StdDev: sample", self.sample)

    @override
    def initialize(self) -> Moments:
        return 0, 0.0, 0.0

    @override
    def result(self, state: Moments) -> float | None:
        count, _, squares = state
        divisor = count - 1 if self.sample else count
        if divisor <= 0:
            return None
        # Numbers whose difference exceeds the greatest float make a negative sum of squares.
        return math.sqrt(squares / divisor) if squares >= 0 else math.nan

    @override
    def _take(self, state: Moments, found: Any, at: Arrival) -> Moments:
        count, mean, squares = state
        number = float_of(found)
        delta = number - mean
        mean += delta / (count + 1)
        return count + 1, mean, squares + delta * (number - mean)

    @override
    def _join(self, state: Moments, other: Moments) -> Moments:
        if not state[0] or not other[0]:
            return state if state[0] else other
        count, mean, squares = state
        other_count, other_mean, other_squares = other
        both, delta = count + other_count, other_mean - mean
        squares += other_squares + delta * delta * (count * other_count / both)
        return both, mean + delta * (other_count / both), squares


@dataclass(frozen=True, repr=False)
class Quantile(FieldAggregator["array[float]", float | None]):
    """The exact quantile: the number below which a share `q` of the numbers lies, as a float.

    Between two numbers the result is interpolated linearly, as ``numpy.quantile`` does by default.

    Without values the result is ``None``. NaN is the greatest number. Memory: every number, 8 bytes
    each, which are sorted for each result.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.
        q: the share, from 0 (the least number) to 1 (the greatest); 0.5 is the median;
            required.

    >>> from flow_windowing import aggregate
    >>> aggregate(Quantile("latency", 0.5), [{"latency": 10}, {"latency": 20}, {"latency": 90}])
    20.0
    >>> aggregate(Quantile(q=0.9), range(11))
    9.0
    """

    form = Form(ignores_order=True, ignores_arrival=True)
    _result_type = pa.float64()

    q: float = None  # type: ignore[assignment]  # Fields after `field` need a default.

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        _check_number("Quantile: q", self.q, 0, 1)

    @override
    def initialize(self) -> array[float]:
        return array("d")

    @override
    def result(self, state: array[float]) -> float | None:
        if not state:
            return None
        numbers = np.array(state)
        numbers.sort()  # NaN is sorted last.
        rank = (len(numbers) - 1) * self.q
        below = math.floor(rank)
        above = min(below + 1, len(numbers) - 1)
        return _between(float(numbers[below]), float(numbers[above]), rank - below)

    @override
    def _take(self, state: array[float], found: Any, at: Arrival) -> array[float]:
        # Adding 0.0 turns -0.0 into 0.0: sorting could put either of the two first.
        state.append(float_of(found) + 0.0)
        return state

    @override
    def _join(self, state: array[float], other: array[float]) -> array[float]:
        state.extend(other)
        return state


def _check_number(name: str, value: object, least: float, most: float) -> None:
    """Raise a `FlowBuildError` unless an argument is a number between two bounds, inclusive."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise FlowBuildError(
            f"{name} must be a number from {least} to {most}, got {shorten(value)}"
        )


def float_of(found: Any) -> float:
    """Return a number as a float.

    Raises:
        UnfitError: when the value is not a number, or too great for a float.
    """
    if type(found) is float:
        return found
    if isinstance(found, Real | Decimal):
        try:
            return float(found)
        except (OverflowError, ValueError) as error:
            problem = f"cannot make a float of {described(found)}"
            raise UnfitError(found, problem) from error
    raise UnfitError(found, f"needs numbers, not {described(found)}")


def _between(low: float, high: float, share: float) -> float:
    """Interpolate from the nearer end: exact at both ends, also if both are infinite."""
    if low == high or share == 0:
        return low
    step = high - low
    return low + step * share if share < 0.5 else high - step * (1 - share)


Bins: TypeAlias = dict[int, int]
"""The number of values in each bin. Bins sort as the values in them do."""

_LEAST_ACCURACY = 0.0001
_SHIFT = 1 << 24
"""The number of the bin of 1. Numbers of bins of positive values are positive, as the logarithm of
a float is more than -745, so more than -4 million bins with the least accuracy."""
_INFINITY = 1 << 30
_NAN = _INFINITY + 1


@dataclass(frozen=True, repr=False)
class ApproxQuantile(FieldAggregator[Bins, "float | None"]):
    """The approximate quantile, in bounded memory, with a bound of the relative error.

    With n values in order, let x be the one at the place floor(q * (n - 1)), counted from 0. The
    result differs from x by at most ``accuracy * abs(x)``, for any values (C. Masson, J. E. Rim and
    H. K. Lee, DDSketch, PVLDB 12(12), 2019, proposition 3). Unlike `Quantile`, it does not
    interpolate between two values. It does not depend on the order of values, and merged windows
    have the result of all their values.

    Without values the result is ``None``. NaN is the greatest number. Memory: a count for each bin
    with a value; positive values between a and b have at most ``ln(b / a) / (2 * accuracy)`` bins,
    some 700 for values from a millisecond to a quarter of an hour.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.
        q: the share, from 0 (the least number) to 1 (the greatest); 0.5 is the median;
            required.
        accuracy: the greatest relative error, from 0.0001 to 0.5.

    >>> from flow_windowing import aggregate
    >>> median = aggregate(ApproxQuantile(q=0.5), range(1, 1000))
    >>> 495 <= median <= 505
    True
    """

    form = Form(ignores_order=True, ignores_arrival=True)
    _result_type = pa.float64()

    q: float = None  # type: ignore[assignment]  # Fields after `field` need a default.
    accuracy: float = 0.01

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        _check_number("ApproxQuantile: q", self.q, 0, 1)
        _check_number("ApproxQuantile: accuracy", self.accuracy, _LEAST_ACCURACY, 0.5)

    @cached_property
    def _log_width(self) -> float:
        """The logarithm of the factor by which the bounds of bins grow."""
        return math.log1p(self.accuracy) - math.log1p(-self.accuracy)

    @override
    def initialize(self) -> Bins:
        return {}

    @override
    def result(self, state: Bins) -> float | None:
        rank = math.floor((sum(state.values()) - 1) * self.q)
        for number, count in sorted(state.items()):
            rank -= count
            if rank < 0:
                return self._value_in(number)
        return None

    @override
    def _take(self, state: Bins, found: Any, at: Arrival) -> Bins:
        number = self._bin_of(float_of(found))
        state[number] = state.get(number, 0) + 1
        return state

    @override
    def _join(self, state: Bins, other: Bins) -> Bins:
        for number, count in other.items():
            state[number] = state.get(number, 0) + count
        return state

    def _bin_of(self, value: float) -> int:
        if value == 0:
            return 0
        if math.isnan(value):
            return _NAN
        if math.isinf(value):
            return _INFINITY if value > 0 else -_INFINITY
        number = _SHIFT + math.ceil(math.log(abs(value)) / self._log_width)
        return number if value > 0 else -number

    def _value_in(self, number: int) -> float:
        """Return the value whose relative distance from both bounds of a bin is the same."""
        if number == 0:
            return 0.0
        if abs(number) >= _INFINITY:
            return math.nan if number == _NAN else math.copysign(math.inf, number)
        # The upper bound of the bin, times 2 / (1 + factor), which is 1 - accuracy.
        log = (abs(number) - _SHIFT) * self._log_width + math.log1p(-self.accuracy)
        value = math.exp(log) if log < _GREATEST_LOG else sys.float_info.max
        return math.copysign(value, number)


_GREATEST_LOG = math.log(sys.float_info.max)
