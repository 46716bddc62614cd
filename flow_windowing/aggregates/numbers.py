"""Aggregates that count and calculate: counts, sums and means.

The first argument of each selects the values to aggregate: a field's path (``"amount"``,
``"details.price"``), a function of the value, or ``None``, for the value itself. A value without
the field, or with ``None`` in it, is skipped, and so is a value for which the function returns
``None``. A value that an aggregate cannot use, such as text in a `Sum`, stops the flow with a
`RejectedValue`.

NaN is the greatest number and the same as any other NaN
(see `flow_windowing.aggregates.value_order`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.predicate import ColumnPredicate
from flow_windowing.aggregates import exact_totals
from flow_windowing.aggregates.aggregator import CountForm, FieldAggregator, Form, MeanForm, SumForm
from flow_windowing.aggregates.exact_totals import Total, total_of, with_number
from flow_windowing.aggregates.value_order import key_of
from flow_windowing.rules.window_logic import Arrival


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
        if self.field is not None:
            return state if self._find(value) is None else state + 1
        return state + 1 if self.where is None or self._selects(value) else state

    @override
    def column_in(self, records: pa.RecordBatch) -> pa.Array | None:
        if self.field is not None or not isinstance(self.where, ColumnPredicate):
            return super().column_in(records)
        return self._selected(pa.array(np.ones(len(records), np.bool_)), records)

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


def _type_of_sums(kind: Any) -> Any:
    """Return the Arrow type of sums of values of a type; ``None`` if it is not known."""
    if kind is None or pa.types.is_duration(kind) or pa.types.is_decimal(kind):
        return kind
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()
