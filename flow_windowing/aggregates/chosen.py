"""Aggregates that give back values they were given: one, a few of them, or all.

Which one is first, last or earliest, and which of equal values stands for them, is settled by when
they came (`Arrival`), never by which window was merged into which. What `field` means, and what is
skipped, is the same as for the aggregates of `flow_windowing.aggregates.numbers`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from dataclasses import dataclass
from functools import cmp_to_key
from operator import itemgetter
from typing import Any, ClassVar, TypeAlias

from typing_extensions import override

from flow.checks import check_whole
from flow_windowing.aggregates.aggregator import Arrival, FieldAggregator
from flow_windowing.aggregates.value_order import compare, key_of

Placed: TypeAlias = tuple[Any, Any] | None
"""A value after what decides whether it is kept; ``None`` before there is one."""
Ranked: TypeAlias = list[tuple[Any, int]]
"""Values with the numbers of their arrival, the best first."""
_place = itemgetter(0)


@dataclass(frozen=True, repr=False)
class Edge(FieldAggregator[Placed, Any]):
    """The first or the last value in some order of arrivals: (what decides, value)."""

    _by_time: ClassVar[bool]
    _last: ClassVar[bool]

    @override
    def initialize(self) -> Placed:
        return None

    @override
    def result(self, state: Placed) -> Any:
        return None if state is None else state[1]

    @override
    def _take(self, state: Placed, found: Any, at: Arrival) -> Placed:
        order = (at.timestamp_us, at.number) if self._by_time else at.number
        return self._join(state, (order, found))

    @override
    def _join(self, state: Placed, other: Placed) -> Placed:
        if state is None or other is None:
            return other if state is None else state
        wins = other[0] >= state[0] if self._last else other[0] < state[0]
        return other if wins else state


@dataclass(frozen=True, repr=False)
class First(Edge):
    """The value that came first.

    That is the order of arrival, whatever the values' timestamps: for those see `Earliest`. Of
    nothing it is ``None``. Memory: one value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(First("price"), [{}, {"price": 5}, {"price": 7}])
    5
    """

    _by_time: ClassVar[bool] = False
    _last: ClassVar[bool] = False


@dataclass(frozen=True, repr=False)
class Last(Edge):
    """The value that came last.

    That is the order of arrival, whatever the values' timestamps: for those see `Latest`. Of
    nothing it is ``None``. Memory: one value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(Last("price"), [{"price": 5}, {"price": 7}, {}])
    7
    """

    _by_time: ClassVar[bool] = False
    _last: ClassVar[bool] = True


@dataclass(frozen=True, repr=False)
class Earliest(Edge):
    """The value with the least timestamp; of several, the first to arrive.

    Of nothing it is ``None``. Memory: one value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(Earliest(), ["a", "b", "c"], times=[20, 10, 10])
    'b'
    """

    _by_time: ClassVar[bool] = True
    _last: ClassVar[bool] = False


@dataclass(frozen=True, repr=False)
class Latest(Edge):
    """The value with the greatest timestamp; of several, the last to arrive.

    Of nothing it is ``None``. Memory: one value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(Latest(), ["a", "b", "c"], times=[10, 10, 5])
    'b'
    """

    _by_time: ClassVar[bool] = True
    _last: ClassVar[bool] = True


@dataclass(frozen=True, repr=False)
class _Extreme(FieldAggregator[Placed, Any]):
    """The best value by comparison, and of equals the first to arrive: (number, value)."""

    # 1 when less is better, -1 when more is.
    _sign: ClassVar[int]

    @override
    def initialize(self) -> Placed:
        return None

    @override
    def result(self, state: Placed) -> Any:
        return None if state is None else state[1]

    @override
    def _take(self, state: Placed, found: Any, at: Arrival) -> Placed:
        return self._join(state, (at.number, found))

    @override
    def _join(self, state: Placed, other: Placed) -> Placed:
        if state is None or other is None:
            return other if state is None else state
        order = self._sign * compare(other[1], state[1])
        return other if order < 0 or (order == 0 and other[0] < state[0]) else state


@dataclass(frozen=True, repr=False)
class Min(_Extreme):
    """The least value; of equals, the first to arrive.

    Any values that compare with each other will do: numbers, text, aware datetimes, tuples. NaN is
    greater than every other number. Of nothing it is ``None``. Memory: one value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(Min("price"), [{"price": 7}, {"price": 5}, {}])
    5
    """

    _sign: ClassVar[int] = 1


@dataclass(frozen=True, repr=False)
class Max(_Extreme):
    """The greatest value; of equals, the first to arrive.

    Any values that compare with each other will do: numbers, text, aware datetimes, tuples. NaN is
    greater than every other number. Of nothing it is ``None``. Memory: one value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(Max("price"), [{"price": 7}, {"price": 5}, {}])
    7
    """

    _sign: ClassVar[int] = -1


@dataclass(frozen=True, repr=False)
class Collect(FieldAggregator[list[tuple[int, Any]], list[Any]]):
    """All values, in a list, in the order in which they entered the window.

    With ``ordered=True`` that is the order of timestamps, otherwise the order of arrival; merged
    windows keep it. Of nothing it is ``[]``. Memory: every value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(Collect("page"), [{"page": "home"}, {}, {"page": "cart"}, {"page": "home"}])
    ['home', 'cart', 'home']
    """

    @override
    def initialize(self) -> list[tuple[int, Any]]:
        return []

    @override
    def result(self, state: list[tuple[int, Any]]) -> list[Any]:
        # Sorting is cheap here: a state is in order but where windows were merged.
        return [value for _, value in sorted(state, key=_place)]

    @override
    def _take(self, state: list[tuple[int, Any]], found: Any, at: Arrival) -> list[tuple[int, Any]]:
        state.append((at.entered, found))
        return state

    @override
    def _join(
        self, state: list[tuple[int, Any]], other: list[tuple[int, Any]]
    ) -> list[tuple[int, Any]]:
        state += other
        return state


@dataclass(frozen=True, repr=False)
class CollectUnique(FieldAggregator[dict[Any, tuple[int, Any]], list[Any]]):
    """The different values, in a list, each once, in the order in which they entered the window.

    Values are the same when they are equal, so 1, 1.0 and True are one, and the first to enter
    stands for them. Of nothing it is ``[]``. Memory: every different value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself. What it
            gives must have a hash: make a tuple of a list to collect it.

    >>> from flow_windowing import aggregate
    >>> aggregate(CollectUnique("page"), [{"page": "home"}, {"page": "cart"}, {"page": "home"}])
    ['home', 'cart']
    """

    @override
    def initialize(self) -> dict[Any, tuple[int, Any]]:
        return {}

    @override
    def result(self, state: dict[Any, tuple[int, Any]]) -> list[Any]:
        return [value for _, value in sorted(state.values(), key=_place)]

    @override
    def _take(
        self, state: dict[Any, tuple[int, Any]], found: Any, at: Arrival
    ) -> dict[Any, tuple[int, Any]]:
        key = key_of(found)
        kept = state.get(key)
        if kept is None or at.entered < kept[0]:
            state[key] = at.entered, found
        return state

    @override
    def _join(
        self, state: dict[Any, tuple[int, Any]], other: dict[Any, tuple[int, Any]]
    ) -> dict[Any, tuple[int, Any]]:
        for key, (entered, value) in other.items():
            kept = state.get(key)
            if kept is None or entered < kept[0]:
                state[key] = entered, value
        return state


@dataclass(frozen=True, repr=False)
class TopK(FieldAggregator[dict[Any, tuple[int, int, Any]], list[Any]]):
    """The `k` most frequent values, in a list, the most frequent first.

    Of values that are as frequent, the one that came first goes first. Values are the same when
    they are equal, so 1, 1.0 and True are one, and the first to arrive stands for them. Of nothing
    it is ``[]``. Memory: every different value, with its count, since any may yet become frequent.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself. What it
            gives must have a hash: make a tuple of a list to count it.
        k: how many, at least 1. It must be given.

    >>> from flow_windowing import aggregate
    >>> aggregate(TopK(k=2), ["a", "b", "c", "b", "c", "d"])
    ['b', 'c']
    """

    k: int = None  # type: ignore[assignment]  # what comes after `field` needs a default

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("TopK: k", self.k, 1)

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
    """Count a value: (how often, number of its first arrival, the value that came then)."""
    kept = state.get(key)
    if kept is None:
        state[key] = count, number, value
    elif number < kept[1]:
        state[key] = kept[0] + count, number, value
    else:
        state[key] = kept[0] + count, kept[1], kept[2]


def _most_frequent(entry: tuple[int, int, Any]) -> tuple[int, int]:
    return -entry[0], entry[1]


@dataclass(frozen=True, repr=False)
class _BestK(FieldAggregator[Ranked, list[Any]]):
    """The `k` best values by comparison, and of equals those that came first."""

    # 1 when less is better, -1 when more is.
    _sign: ClassVar[int]

    k: int = None  # type: ignore[assignment]  # what comes after `field` needs a default

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(f"{type(self).__name__}: k", self.k, 1)

    @override
    def initialize(self) -> Ranked:
        return []

    @override
    def result(self, state: Ranked) -> list[Any]:
        return [value for value, _ in state]

    @override
    def _take(self, state: Ranked, found: Any, at: Arrival) -> Ranked:
        return self._join(state, [(found, at.number)])

    @override
    def _join(self, state: Ranked, other: Ranked) -> Ranked:
        for entry in other:
            if len(state) == self.k and self._sign * compare(entry[0], state[-1][0]) > 0:
                continue
            place = bisect_right(state, _rank[self._sign](entry), key=_rank[self._sign])
            self._insert(state, place, entry)
            del state[self.k :]
        return state

    def _insert(self, state: Ranked, place: int, entry: tuple[Any, int]) -> None:
        state.insert(place, entry)


class _BestKUnique(_BestK):
    """The `k` best different values; the first to arrive stands for its equals."""

    @override
    def _insert(self, state: Ranked, place: int, entry: tuple[Any, int]) -> None:
        if place and compare(state[place - 1][0], entry[0]) == 0:
            return
        # The equal that is kept may have come later: windows merge, and values wait to enter.
        if place < len(state) and compare(state[place][0], entry[0]) == 0:
            state[place] = entry
        else:
            state.insert(place, entry)


def _least_first(left: tuple[Any, int], right: tuple[Any, int]) -> int:
    return compare(left[0], right[0]) or left[1] - right[1]


def _greatest_first(left: tuple[Any, int], right: tuple[Any, int]) -> int:
    return -compare(left[0], right[0]) or left[1] - right[1]


_rank = {1: cmp_to_key(_least_first), -1: cmp_to_key(_greatest_first)}


@dataclass(frozen=True, repr=False)
class MaxK(_BestK):
    """The `k` greatest values, in a list, the greatest first; equals count each.

    Of equals, those that came first are kept, and go first. What compares, and NaN, are as for
    `Max`. Of nothing it is ``[]``. Memory: `k` values.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.
        k: how many, at least 1. It must be given.

    >>> from flow_windowing import aggregate
    >>> aggregate(MaxK("price", 2), [{"price": price} for price in [5, 9, 9, 7]])
    [9, 9]
    """

    _sign: ClassVar[int] = -1


@dataclass(frozen=True, repr=False)
class MinK(_BestK):
    """The `k` least values, in a list, the least first; equals count each.

    Of equals, those that came first are kept, and go first. What compares, and NaN, are as for
    `Min`. Of nothing it is ``[]``. Memory: `k` values.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.
        k: how many, at least 1. It must be given.

    >>> from flow_windowing import aggregate
    >>> aggregate(MinK("price", 2), [{"price": price} for price in [5, 5, 9, 7]])
    [5, 5]
    """

    _sign: ClassVar[int] = 1


@dataclass(frozen=True, repr=False)
class MaxKUnique(_BestKUnique):
    """The `k` greatest different values, in a list, the greatest first.

    Values are the same when they are equal, so 1, 1.0 and True are one, and the first to arrive
    stands for them. What compares, and NaN, are as for `Max`. Of nothing it is
    ``[]``. Memory: `k` values.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.
        k: how many, at least 1. It must be given.

    >>> from flow_windowing import aggregate
    >>> aggregate(MaxKUnique("price", 2), [{"price": price} for price in [5, 9, 9, 7]])
    [9, 7]
    """

    _sign: ClassVar[int] = -1


@dataclass(frozen=True, repr=False)
class MinKUnique(_BestKUnique):
    """The `k` least different values, in a list, the least first.

    Values are the same when they are equal, so 1, 1.0 and True are one, and the first to arrive
    stands for them. What compares, and NaN, are as for `Min`. Of nothing it is
    ``[]``. Memory: `k` values.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.
        k: how many, at least 1. It must be given.

    >>> from flow_windowing import aggregate
    >>> aggregate(MinKUnique("price", 2), [{"price": price} for price in [5, 5, 9, 7]])
    [5, 7]
    """

    _sign: ClassVar[int] = 1
