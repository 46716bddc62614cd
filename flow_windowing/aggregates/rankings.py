"""Aggregates that return the `k` best values: the most frequent, the greatest, the least.

The argument `field`, and the values that are skipped, are as in
`flow_windowing.aggregates.numbers`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa
from typing_extensions import override

from flow.checks import check_whole
from flow_windowing.aggregates.aggregator import FieldAggregator
from flow_windowing.aggregates.form import Form
from flow_windowing.aggregates.value_order import compare, key_of
from flow_windowing.contract.arrival import Arrival

Ranking: TypeAlias = list[tuple[Any, int]]
"""Values with their arrival numbers, the best first."""


@dataclass(frozen=True, repr=False)
class TopK(FieldAggregator[dict[Any, tuple[int, int, Any]], list[Any]]):
    """The `k` most frequent values, in a list, the most frequent first.

    Equally frequent values are sorted by their first arrival. Equal values, such as 1, 1.0 and
    True, count as one value; the first to arrive represents them. Without values the result is
    ``[]``. Memory: every different value and its count, since any value may become frequent later.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself. A
            value must have a hash: make a tuple of a list to count it.
        k: the number of values, at least 1; required.

    >>> from flow_windowing import aggregate
    >>> aggregate(TopK(k=2), ["a", "b", "c", "b", "c", "d"])
    ['b', 'c']
    """

    form = Form(ignores_order=True)

    k: int = None  # type: ignore[assignment]  # Fields after `field` need a default.

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(f"{type(self).__name__}: k", self.k, 1)

    @override
    def result_type(self, field_type: Any) -> Any:
        return None if field_type is None else pa.list_(field_type)

    @override
    def initialize(self) -> dict[Any, tuple[int, int, Any]]:
        return {}

    @override
    def result(self, state: dict[Any, tuple[int, int, Any]]) -> list[Any]:
        best = heapq.nsmallest(self.k, state.values(), key=_most_frequent)
        return [value for _, _, value in best]

    @override
    def _take(
        self, state: dict[Any, tuple[int, int, Any]], found: Any, at: Arrival
    ) -> dict[Any, tuple[int, int, Any]]:
        _count(state, key_of(found), 1, at.number, found)
        return state

    @override
    def _join(
        self, state: dict[Any, tuple[int, int, Any]], other: dict[Any, tuple[int, int, Any]]
    ) -> dict[Any, tuple[int, int, Any]]:
        for key, (count, number, value) in other.items():
            _count(state, key, count, number, value)
        return state


def _count(
    state: dict[Any, tuple[int, int, Any]], key: Any, count: int, number: int, value: Any
) -> None:
    """Add to the count of a value; an entry is (count, first arrival number, first value)."""
    known = state.get(key)
    if known is None:
        state[key] = count, number, value
    elif number < known[1]:
        state[key] = known[0] + count, number, value
    else:
        state[key] = known[0] + count, known[1], known[2]


def _most_frequent(entry: tuple[int, int, Any]) -> tuple[int, int]:
    return -entry[0], entry[1]


@dataclass(frozen=True, repr=False)
class _BestK(FieldAggregator[Ranking, list[Any]]):
    """The `k` best values by comparison; of equal values, the first to arrive."""

    # 1 if the least value is the best, -1 if the greatest is.
    _sign: ClassVar[int]

    k: int = None  # type: ignore[assignment]  # Fields after `field` need a default.

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(f"{type(self).__name__}: k", self.k, 1)

    @override
    def result_type(self, field_type: Any) -> Any:
        return None if field_type is None else pa.list_(field_type)

    @override
    def initialize(self) -> Ranking:
        return []

    @override
    def result(self, state: Ranking) -> list[Any]:
        return [value for value, _ in state]

    @override
    def _take(self, state: Ranking, found: Any, at: Arrival) -> Ranking:
        return self._join(state, [(found, at.number)])

    @override
    def _join(self, state: Ranking, other: Ranking) -> Ranking:
        for entry in other:
            if len(state) == self.k and self._sign * compare(entry[0], state[-1][0]) > 0:
                continue
            index = bisect_right(state, _sort_keys[self._sign](entry), key=_sort_keys[self._sign])
            self._insert(state, index, entry)
            del state[self.k :]
        return state

    def _insert(self, state: Ranking, index: int, entry: tuple[Any, int]) -> None:
        state.insert(index, entry)


class _BestKUnique(_BestK):
    """The `k` best different values; of equal values, the first to arrive represents them."""

    @override
    def _insert(self, state: Ranking, index: int, entry: tuple[Any, int]) -> None:
        if index and compare(state[index - 1][0], entry[0]) == 0:
            return
        # The equal value in the state may have arrived later, as windows merge and values are
        # buffered before they enter.
        if index < len(state) and compare(state[index][0], entry[0]) == 0:
            state[index] = entry
        else:
            state.insert(index, entry)


def _least_first(left: tuple[Any, int], right: tuple[Any, int]) -> int:
    """Compare (value, arrival number): by value, ascending; equal values by arrival."""
    return compare(left[0], right[0]) or left[1] - right[1]


def _greatest_first(left: tuple[Any, int], right: tuple[Any, int]) -> int:
    """Compare (value, arrival number): by value, descending; equal values by arrival."""
    return -compare(left[0], right[0]) or left[1] - right[1]


_sort_keys = {1: cmp_to_key(_least_first), -1: cmp_to_key(_greatest_first)}


@dataclass(frozen=True, repr=False)
class MaxK(_BestK):
    """The `k` greatest values, in a list, the greatest first; equals count each.

    Of equal values, the first to arrive are in the list, and come first. Comparison and NaN are as
    for `Max`. Without values the result is ``[]``. Memory: `k` values.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.
        k: the number of values, at least 1; required.

    >>> from flow_windowing import aggregate
    >>> aggregate(MaxK("price", 2), [{"price": price} for price in [5, 9, 9, 7]])
    [9, 9]
    """

    form = Form(ignores_order=True)
    _sign: ClassVar[int] = -1


@dataclass(frozen=True, repr=False)
class MinK(_BestK):
    """The `k` least values, in a list, the least first; equals count each.

    Of equal values, the first to arrive are in the list, and come first. Comparison and NaN are as
    for `Min`. Without values the result is ``[]``. Memory: `k` values.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.
        k: the number of values, at least 1; required.

    >>> from flow_windowing import aggregate
    >>> aggregate(MinK("price", 2), [{"price": price} for price in [5, 5, 9, 7]])
    [5, 5]
    """

    form = Form(ignores_order=True)
    _sign: ClassVar[int] = 1


@dataclass(frozen=True, repr=False)
class MaxKUnique(_BestKUnique):
    """The `k` greatest different values, in a list, the greatest first.

    Equal values, such as 1, 1.0 and True, count as one value; the first to arrive represents them.
    Comparison and NaN are as for `Max`. Without values the result is ``[]``. Memory: `k` values.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.
        k: the number of values, at least 1; required.

    >>> from flow_windowing import aggregate
    >>> aggregate(MaxKUnique("price", 2), [{"price": price} for price in [5, 9, 9, 7]])
    [9, 7]
    """

    form = Form(ignores_order=True)
    _sign: ClassVar[int] = -1


@dataclass(frozen=True, repr=False)
class MinKUnique(_BestKUnique):
    """The `k` least different values, in a list, the least first.

    Equal values, such as 1, 1.0 and True, count as one value; the first to arrive represents them.
    Comparison and NaN are as for `Min`. Without values the result is ``[]``. Memory: `k` values.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.
        k: the number of values, at least 1; required.

    >>> from flow_windowing import aggregate
    >>> aggregate(MinKUnique("price", 2), [{"price": price} for price in [5, 5, 9, 7]])
    [5, 7]
    """

    form = Form(ignores_order=True)
    _sign: ClassVar[int] = 1
