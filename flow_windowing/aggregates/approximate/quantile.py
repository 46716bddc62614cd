"""The approximate quantile, by counts in bins whose bounds grow by a factor.

This is the sketch of C. Masson, J. E. Rim and H. K. Lee, DDSketch: a fast and fully-mergeable
quantile sketch with relative-error guarantees, PVLDB 12(12), 2019. Its state follows from the
values alone, so the result depends neither on their order nor on merges. The KLL, REQ and classic
quantile sketches of Apache DataSketches draw random bits, so that a replayed epoch could have
another result, and their t-digest depends on the order of values.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa
from typing_extensions import override

from flow.errors import FlowBuildError, shorten
from flow_windowing.aggregates.aggregator import FieldAggregator, Form
from flow_windowing.aggregates.numbers import check_share, float_of
from flow_windowing.contract.arrival import Arrival

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
        check_share("ApproxQuantile: q", self.q)
        accuracy: object = self.accuracy
        is_number = isinstance(accuracy, int | float) and not isinstance(accuracy, bool)
        if not is_number or not _LEAST_ACCURACY <= self.accuracy <= 0.5:
            raise FlowBuildError(
                f"ApproxQuantile: accuracy must be a number from {_LEAST_ACCURACY} to 0.5, "
                f"got {shorten(accuracy)}"
            )

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
