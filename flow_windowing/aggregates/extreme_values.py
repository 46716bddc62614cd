"""Aggregates that return one value: the least or the greatest, the first or the last.

The argument `field`, and the values that are skipped, are as in
`flow_windowing.aggregates.numbers`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from typing_extensions import override

from flow_windowing.aggregates.aggregator import EdgeForm, ExtremeForm, FieldAggregator
from flow_windowing.aggregates.value_order import compare
from flow_windowing.rules.window_logic import Arrival

P = TypeVar("P")

PlacedValue: TypeAlias = tuple[P, Any] | None
"""The place of a value in an order of arrivals, and the value; ``None`` before the first value."""


@dataclass(frozen=True, repr=False)
class _OneValue(FieldAggregator[PlacedValue[P], Any], Generic[P]):
    """One of the values, which wins over all others."""

    @override
    def result_type(self, field_type: Any) -> Any:
        return field_type

    @override
    def initialize(self) -> PlacedValue[P]:
        return None

    @override
    def result(self, state: PlacedValue[P]) -> Any:
        return None if state is None else state[1]

    @override
    def _take(self, state: PlacedValue[P], found: Any, at: Arrival) -> PlacedValue[P]:
        return self._join(state, (self._place_of(at), found))

    @override
    def _join(self, state: PlacedValue[P], other: PlacedValue[P]) -> PlacedValue[P]:
        if state is None or other is None:
            return other if state is None else state
        return other if self._wins(other, state) else state

    @abstractmethod
    def _place_of(self, at: Arrival) -> P: ...

    @abstractmethod
    def _wins(self, other: tuple[P, Any], state: tuple[P, Any]) -> bool: ...


@dataclass(frozen=True, repr=False)
class _Extreme(_OneValue[int]):
    """The best value by comparison; of equal values, the first to arrive."""

    form: ClassVar[ExtremeForm]

    @override
    def _place_of(self, at: Arrival) -> int:
        return at.number

    @override
    def _wins(self, other: tuple[int, Any], state: tuple[int, Any]) -> bool:
        order = compare(other[1], state[1]) * (-1 if self.form.is_greatest else 1)
        return order < 0 or (order == 0 and other[0] < state[0])


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


Place: TypeAlias = tuple[int, int]
"""The place of a value in an order of arrivals: timestamp in µs or 0, and arrival number."""


@dataclass(frozen=True, repr=False)
class Edge(_OneValue[Place]):
    """The first or the last value in an order of arrivals, which the form gives."""

    form: ClassVar[EdgeForm]

    @override
    def _place_of(self, at: Arrival) -> Place:
        return at.timestamp_us if self.form.is_by_time else 0, at.number

    @override
    def _wins(self, other: tuple[Place, Any], state: tuple[Place, Any]) -> bool:
        return other[0] >= state[0] if self.form.is_last else other[0] < state[0]


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
