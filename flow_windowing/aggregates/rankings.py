"""Aggregates that return the `k` best values: the most frequent, the greatest, the least.

The argument `field`, and the values that are skipped, are as in
`flow_windowing.aggregates.numbers`.

The approximate most frequent values have a bounded number of counts. This is the summary of J.
Misra and D. Gries (Finding repeated elements, Science of Computer Programming 2(2), 1982), whose
counts are reduced many at a time, and merged as P. K. Agarwal et al. describe (Mergeable summaries,
PODS 2012). The counts follow from the sequence of values. The frequent-items sketch of Apache
DataSketches merges in the order of a hash table, which changes as a sketch is written and read:
with it a resumed flow could have another result.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from dataclasses import dataclass
from functools import cmp_to_key, partial
from typing import Any, ClassVar, TypeAlias, TypeVar

import pyarrow as pa
from typing_extensions import override

from flow.checks import check_whole
from flow.errors import FlowBuildError
from flow_windowing.aggregates.aggregator import FieldAggregator, Form
from flow_windowing.aggregates.value_order import compare, key_of
from flow_windowing.rules.window_logic import Arrival

S = TypeVar("S")

Ranking: TypeAlias = list[tuple[Any, int]]
"""Values with their arrival numbers, the best first."""


Counts: TypeAlias = dict[Any, tuple[int, int, Any]]
"""The count, the first arrival number and the first of equal values, by key of the value."""


@dataclass(frozen=True, repr=False)
class _KValues(FieldAggregator[S, list[Any]]):
    """An aggregate that returns a list of at most `k` values."""

    k: int = None  # type: ignore[assignment]  # Fields after `field` need a default.

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(f"{type(self).__name__}: k", self.k, 1)

    @override
    def result_type(self, field_type: Any) -> Any:
        return None if field_type is None else pa.list_(field_type)


@dataclass(frozen=True, repr=False)
class TopK(_KValues[Counts]):
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

    @override
    def initialize(self) -> Counts:
        return {}

    @override
    def result(self, state: Counts) -> list[Any]:
        best = heapq.nsmallest(self.k, state.values(), key=lambda one: (-one[0], one[1]))
        return [value for _, _, value in best]

    @override
    def _take(self, state: Counts, found: Any, at: Arrival) -> Counts:
        _count(state, key_of(found), 1, at.number, found)
        return state

    @override
    def _join(self, state: Counts, other: Counts) -> Counts:
        for key, (count, number, value) in other.items():
            _count(state, key, count, number, value)
        return state


def _count(state: Counts, key: Any, count: int, number: int, value: Any) -> None:
    """Add to the count of a value; an entry is (count, first arrival number, first value)."""
    known = state.get(key)
    if known is None:
        state[key] = count, number, value
    elif number < known[1]:
        state[key] = known[0] + count, number, value
    else:
        state[key] = known[0] + count, known[1], known[2]


@dataclass(frozen=True, repr=False)
class _BestK(_KValues[Ranking]):
    """The `k` best values by comparison; of equal values, the first to arrive."""

    # 1 if the least value is the best, -1 if the greatest is.
    _sign: ClassVar[int]

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


def _compare_ranks(sign: int, left: tuple[Any, int], right: tuple[Any, int]) -> int:
    """Compare (value, arrival number): by value, descending with sign -1; equals by arrival."""
    return sign * compare(left[0], right[0]) or left[1] - right[1]


_sort_keys = {sign: cmp_to_key(partial(_compare_ranks, sign)) for sign in (1, -1)}


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


@dataclass(frozen=True, repr=False)
class ApproxTopK(TopK):
    """The `k` most frequent values, in a list, in bounded memory.

    Exact up to `counters` different values. With more, the count of a value is too small by at most
    ``n / (counters + 1)`` for `n` values, and never too great (P. K. Agarwal et al., Mergeable
    summaries, PODS 2012). So a value is in the result if its count exceeds that of all but k - 1
    values by more than this, such as 0.1 % of all values by default. The bound holds for merged
    windows too, and the result is the same whatever the epochs.

    The result depends on the order of values, so `ordered` is true by default. Equally frequent
    values are sorted by their first arrival. Equal values, such as 1, 1.0 and True, count as one
    value. Without values the result is ``[]``. Memory: at most twice `counters` values.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself. A
            value must have a hash: make a tuple of a list to count it.
        k: the number of values, at least 1; required.
        counters: the number of values that are counted, at least `k`.

    >>> from flow_windowing import aggregate
    >>> aggregate(ApproxTopK(k=2), ["a", "b", "c", "b", "c", "d"])
    ['b', 'c']
    """

    depends_on_order = True

    counters: int = 1000

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("ApproxTopK: counters", self.counters, 1)
        if self.counters < self.k:
            raise FlowBuildError(
                f"ApproxTopK: counters must be at least k={self.k}, got {self.counters}"
            )

    @override
    def _take(self, state: Counts, found: Any, at: Arrival) -> Counts:
        return self._reduced(super()._take(state, found, at))

    @override
    def _join(self, state: Counts, other: Counts) -> Counts:
        return self._reduced(super()._join(state, other))

    def _reduced(self, state: Counts) -> Counts:
        """Subtract a number from all counts, and drop those that reach zero, if there are too many.

        The number is subtracted from `counters` + 1 counts at least, so all subtracted numbers
        together are at most the number of values by `counters` + 1.
        """
        if len(state) <= 2 * self.counters:
            return state
        counts = (count for count, _, _ in state.values())
        *_, least = heapq.nlargest(self.counters + 1, counts)
        return {
            key: (count - least, number, value)
            for key, (count, number, value) in state.items()
            if count > least
        }
