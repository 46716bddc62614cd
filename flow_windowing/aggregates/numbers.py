"""Aggregates that count and calculate: counts, sums, means, deviations, quantiles.

The first argument of each selects the values to aggregate: a field's path (``"amount"``,
``"details.price"``), a function of the value, or ``None``, for the value itself. A value without
the field, or with ``None`` in it, is skipped, and so is a value for which the function returns
``None``. A value that an aggregate cannot use, such as text in a `Sum`, stops the flow with a
`RejectedValue`.

NaN is the greatest number and the same as any other NaN
(see `flow_windowing.aggregates.value_order`).
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa
from typing_extensions import override

from flow.errors import FlowBuildError, FlowTypeError, shorten
from flow_windowing.aggregates import exact_totals
from flow_windowing.aggregates.aggregator import (
    CountForm,
    FieldAggregator,
    Form,
    MeanForm,
    SumForm,
    UnfitError,
    described,
)
from flow_windowing.aggregates.exact_totals import Total, total_of, with_number
from flow_windowing.aggregates.value_order import key_of
from flow_windowing.contract.arrival import Arrival


@dataclass(frozen=True, repr=False)
class Count(FieldAggregator[int, int]):
    """The number of values; with a field, the number of values that have it.

    Without values the result is 0. Memory: one number.

    Args:
        field: a field's path, or a function of the value; ``None`` counts all values, even
            ``None``.

    >>> from flow_windowing import aggregate
    >>> values = [{"tip": 2}, {"tip": None}, {}]
    >>> aggregate(Count(), values), aggregate(Count("tip"), values)
    (3, 1)
    """

    form = CountForm()
    _result_type = pa.int64()

    @override
    def initialize(self) -> int:
        return 0

    @override
    def add_at(self, state: int, value: Any, at: Arrival) -> int:
        if self.field is None or self._find(value) is not None:
            return state + 1
        return state

    @override
    def result(self, state: int) -> int:
        return state

    @override
    def _take(self, state: int, found: Any, at: Arrival) -> int:
        return state + 1

    @override
    def _join(self, state: int, other: int) -> int:
        return state + other


@dataclass(frozen=True, repr=False)
class CountDistinct(FieldAggregator[set[Any], int]):
    """The exact number of different values.

    Equal values, such as 1, 1.0 and True, count as one value. Without values the result is 0.
    Memory: every different value, so use it for fields with at most a few thousand values.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself. A
            value must have a hash: make a tuple of a list to count it.

    >>> from flow_windowing import aggregate
    >>> aggregate(CountDistinct("user"), [{"user": "a"}, {"user": "b"}, {"user": "a"}])
    2
    """

    form = Form(ignores_order=True, ignores_arrival=True)
    _result_type = pa.int64()

    @override
    def initialize(self) -> set[Any]:
        return set()

    @override
    def result(self, state: set[Any]) -> int:
        return len(state)

    @override
    def _take(self, state: set[Any], found: Any, at: Arrival) -> set[Any]:
        state.add(key_of(found))
        return state

    @override
    def _join(self, state: set[Any], other: set[Any]) -> set[Any]:
        state |= other
        return state


@dataclass(frozen=True, repr=False)
class Sum(FieldAggregator[Total | None, Any]):
    """The sum.

    A sum of ints is exact. A sum of floats is rounded once, as by `math.fsum`, so it does not
    depend on the order of the values or on merges of windows. Decimals can be added to Decimals and
    ints, and timedeltas to timedeltas. True counts as 1; NaN makes the sum NaN.

    Without values the result is 0. Memory: one number, with as many digits as exactness takes.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(Sum("amount"), [{"amount": 2}, {"amount": 3}, {}])
    5
    >>> aggregate(Sum(), [0.1] * 10)
    1.0
    """

    form = SumForm()

    @override
    def result_type(self, field_type: Any) -> Any:
        return _type_of_sums(field_type)

    @override
    def initialize(self) -> Total | None:
        return None

    @override
    def result(self, state: Total | None) -> Any:
        return 0 if state is None else exact_totals.rounded(state)

    @override
    def _take(self, state: Total | None, found: Any, at: Arrival) -> Total:
        return total_of(found) if state is None else with_number(state, found)

    @override
    def _join(self, state: Total | None, other: Total | None) -> Total | None:
        if state is None or other is None:
            return other if state is None else state
        return exact_totals.plus(state, other)


@dataclass(frozen=True, repr=False)
class Mean(FieldAggregator[tuple[int, Total], Any]):
    """The arithmetic mean: the exact sum divided by the count, rounded once.

    A float for ints and floats; a Decimal of 28 digits for Decimals; a timedelta, to the
    microsecond, for timedeltas. The same types can be added as in `Sum`.

    Without values the result is ``None``. Memory: two numbers.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(Mean("latency"), [{"latency": 2}, {"latency": 3}, {"latency": None}])
    2.5
    """

    form = MeanForm()

    @override
    def result_type(self, field_type: Any) -> Any:
        types = pa.types
        if field_type is None or types.is_decimal(field_type):
            return None  # The number of digits of a mean of decimals depends on the decimals.
        return field_type if types.is_duration(field_type) else pa.float64()

    @override
    def initialize(self) -> tuple[int, Total]:
        return 0, 0

    @override
    def result(self, state: tuple[int, Total]) -> Any:
        count, total = state
        return exact_totals.mean(total, count) if count else None

    @override
    def _take(self, state: tuple[int, Total], found: Any, at: Arrival) -> tuple[int, Total]:
        count, total = state
        return count + 1, with_number(total, found) if count else total_of(found)

    @override
    def _join(self, state: tuple[int, Total], other: tuple[int, Total]) -> tuple[int, Total]:
        if not state[0] or not other[0]:
            return state if state[0] else other
        return state[0] + other[0], exact_totals.plus(state[1], other[1])


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
        if not isinstance(self.sample, bool):
            raise FlowTypeError(f"StdDev: sample must be True or False, got {shorten(self.sample)}")

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
        check_share("Quantile: q", self.q)

    @override
    def initialize(self) -> array[float]:
        return array("d")

    @override
    def result(self, state: array[float]) -> float | None:
        if not state:
            return None
        numbers = sorted(state, key=_nan_last)
        rank = (len(numbers) - 1) * self.q
        below = math.floor(rank)
        above = min(below + 1, len(numbers) - 1)
        return _between(numbers[below], numbers[above], rank - below)

    @override
    def _take(self, state: array[float], found: Any, at: Arrival) -> array[float]:
        # Adding 0.0 turns -0.0 into 0.0: sorting could put either of the two first.
        state.append(float_of(found) + 0.0)
        return state

    @override
    def _join(self, state: array[float], other: array[float]) -> array[float]:
        state.extend(other)
        return state


def _type_of_sums(kind: Any) -> Any:
    """Return the Arrow type of sums of values of a type; ``None`` if it is not known."""
    if kind is None or pa.types.is_duration(kind) or pa.types.is_decimal(kind):
        return kind
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()


def check_share(name: str, value: object) -> None:
    """Raise a `FlowBuildError` unless an argument is a number from 0 to 1."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise FlowBuildError(f"{name} must be a number from 0 to 1, got {shorten(value)}")


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


def _nan_last(number: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(number) else (False, number)


def _between(low: float, high: float, share: float) -> float:
    """Interpolate from the nearer end: exact at both ends, also if both are infinite."""
    if low == high or share == 0:
        return low
    step = high - low
    return low + step * share if share < 0.5 else high - step * (1 - share)
