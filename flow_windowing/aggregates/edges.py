"""Aggregates that return the first or the last value, by arrival or by timestamp.

The argument `field`, and the values that are skipped, are as in
`flow_windowing.aggregates.numbers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from typing_extensions import override

from flow_windowing.aggregates.aggregator import FieldAggregator
from flow_windowing.contract.arrival import Arrival

OrderedValue: TypeAlias = tuple[Any, Any] | None
"""The key of a value in the order, and the value; ``None`` before the first value."""


@dataclass(frozen=True, repr=False)
class Edge(FieldAggregator[OrderedValue, Any]):
    """The first or the last value in an order of arrivals; the state is (key of order, value).

    Attributes:
        is_by_time: True if the order is by timestamp, then by arrival; False if by arrival only.
        is_last: True for the last value of the order, False for the first.
    """

    is_by_time: ClassVar[bool]
    is_last: ClassVar[bool]

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
        key = (at.timestamp_us, at.number) if self.is_by_time else at.number
        return self._join(state, (key, found))

    @override
    def _join(self, state: OrderedValue, other: OrderedValue) -> OrderedValue:
        if state is None or other is None:
            return other if state is None else state
        wins = other[0] >= state[0] if self.is_last else other[0] < state[0]
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

    is_by_time: ClassVar[bool] = False
    is_last: ClassVar[bool] = False


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

    is_by_time: ClassVar[bool] = False
    is_last: ClassVar[bool] = True


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

    is_by_time: ClassVar[bool] = True
    is_last: ClassVar[bool] = False


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

    is_by_time: ClassVar[bool] = True
    is_last: ClassVar[bool] = True
