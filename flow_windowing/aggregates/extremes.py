"""Aggregates that return the least or the greatest value.

The argument `field`, and the values that are skipped, are as in
`flow_windowing.aggregates.numbers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from typing_extensions import override

from flow_windowing.aggregates.aggregator import FieldAggregator
from flow_windowing.aggregates.form import ExtremeForm
from flow_windowing.aggregates.value_order import compare
from flow_windowing.contract.arrival import Arrival

NumberedValue: TypeAlias = tuple[int, Any] | None
"""The arrival number of a value, and the value; ``None`` before the first value."""


@dataclass(frozen=True, repr=False)
class _Extreme(FieldAggregator[NumberedValue, Any]):
    """The best value by comparison; of equal values, the first to arrive."""

    form: ClassVar[ExtremeForm]

    @override
    def result_type(self, field_type: Any) -> Any:
        return field_type

    @override
    def initialize(self) -> NumberedValue:
        return None

    @override
    def result(self, state: NumberedValue) -> Any:
        return None if state is None else state[1]

    @override
    def _take(self, state: NumberedValue, found: Any, at: Arrival) -> NumberedValue:
        return self._join(state, (at.number, found))

    @override
    def _join(self, state: NumberedValue, other: NumberedValue) -> NumberedValue:
        if state is None or other is None:
            return other if state is None else state
        order = compare(other[1], state[1]) * (-1 if self.form.is_greatest else 1)
        return other if order < 0 or (order == 0 and other[0] < state[0]) else state


@dataclass(frozen=True, repr=False)
class Min(_Extreme):
    """The least value; of equal values, the first to arrive.

    Values must compare with each other: numbers, text, aware datetimes, tuples. NaN is
    greater than every other number. Without values the result is ``None``. Memory: one value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(Min("price"), [{"price": 7}, {"price": 5}, {}])
    5
    """

    form = ExtremeForm(is_greatest=False)


@dataclass(frozen=True, repr=False)
class Max(_Extreme):
    """The greatest value; of equal values, the first to arrive.

    Values must compare with each other: numbers, text, aware datetimes, tuples. NaN is
    greater than every other number. Without values the result is ``None``. Memory: one value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(Max("price"), [{"price": 7}, {"price": 5}, {}])
    7
    """

    form = ExtremeForm(is_greatest=True)
