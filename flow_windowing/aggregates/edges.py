"""Aggregates that return the first or the last value, by arrival or by timestamp.

The argument `field`, and the values that are skipped, are as in
`flow_windowing.aggregates.numbers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from typing_extensions import override

from flow_windowing.aggregates.aggregator import FieldAggregator
from flow_windowing.aggregates.form import EdgeForm
from flow_windowing.contract.arrival import Arrival

OrderedValue: TypeAlias = tuple[tuple[int, int], Any] | None
"""The place of a value in the order, (timestamp in µs or 0, arrival number), and the value."""


@dataclass(frozen=True, repr=False)
class Edge(FieldAggregator[OrderedValue, Any]):
    """The first or the last value in an order of arrivals, which the form gives."""

    form: ClassVar[EdgeForm]

    @override
    def result_type(self, field_type: Any) -> Any:
        return field_type

    @override
    def initialize(self) -> OrderedValue:
        return None

    @override
    def result(self, state: OrderedValue) -> Any:
        return None if state is None else state[1]

    @override
    def _take(self, state: OrderedValue, found: Any, at: Arrival) -> OrderedValue:
        timestamp_us = at.timestamp_us if self.form.is_by_time else 0
        return self._join(state, ((timestamp_us, at.number), found))

    @override
    def _join(self, state: OrderedValue, other: OrderedValue) -> OrderedValue:
        if state is None or other is None:
            return other if state is None else state
        wins = other[0] >= state[0] if self.form.is_last else other[0] < state[0]
        return other if wins else state


@dataclass(frozen=True, repr=False)
class First(Edge):
    """The value that arrived first.

    Timestamps do not matter: for those see `Earliest`. Without values the result is ``None``.
    Memory: one value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(First("price"), [{}, {"price": 5}, {"price": 7}])
    5
    """

    form = EdgeForm(is_by_time=False, is_last=False)
    spans_keys = False


@dataclass(frozen=True, repr=False)
class Last(Edge):
    """The value that arrived last.

    Timestamps do not matter: for those see `Latest`. Without values the result is ``None``. Memory:
    one value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(Last("price"), [{"price": 5}, {"price": 7}, {}])
    7
    """

    form = EdgeForm(is_by_time=False, is_last=True)
    spans_keys = False


@dataclass(frozen=True, repr=False)
class Earliest(Edge):
    """The value with the least timestamp; of equal timestamps, the first value to arrive.

    Without values the result is ``None``. Memory: one value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(Earliest(), ["a", "b", "c"], times=[20, 10, 10])
    'b'
    """

    form = EdgeForm(is_by_time=True, is_last=False)


@dataclass(frozen=True, repr=False)
class Latest(Edge):
    """The value with the greatest timestamp; of equal timestamps, the last value to arrive.

    Without values the result is ``None``. Memory: one value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(Latest(), ["a", "b", "c"], times=[10, 10, 5])
    'b'
    """

    form = EdgeForm(is_by_time=True, is_last=True)
