"""Aggregates that collect values into a list, a set or a dict.

A state holds the entry number of each value, which gives the order after a merge. A state is sorted
for each result; this is cheap, as only states of merged windows are unsorted.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
from typing_extensions import override

from flow_windowing.aggregates.aggregator import AT_ONCE, Aggregator, FieldAggregator, ListForm
from flow_windowing.aggregates.value_order import key_of
from flow_windowing.rules.window_logic import Arrival

S = TypeVar("S")

Entries: TypeAlias = list[tuple[int, Any]]
"""Values, each with its entry number."""

EntryOfKey: TypeAlias = dict[Any, tuple[int, Any]]
"""The entry number of a value, and the value, by a key."""

_entry_number = itemgetter(0)


@dataclass(frozen=True, repr=False)
class _Collection(FieldAggregator[S, list[Any]]):
    """An aggregate that collects values into a list, in the order of entering."""

    depends_on_order = True
    spans_keys = False

    @override
    def result_type(self, field_type: Any) -> Any:
        return None if field_type is None else pa.list_(field_type)


@dataclass(frozen=True, repr=False)
class Collect(_Collection[Entries]):
    """All values, in a list, in the order in which they entered the window.

    By default, this is the order of timestamps; with ``ordered=False``, the order of arrival. The
    same holds in merged windows. Without values the result is ``[]``. Memory: every value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself.

    >>> from flow_windowing import aggregate
    >>> aggregate(Collect("page"), [{"page": "home"}, {}, {"page": "cart"}, {"page": "home"}])
    ['home', 'cart', 'home']
    """

    form = ListForm()

    @override
    def initialize(self) -> Entries:
        return []

    @override
    def result(self, state: Entries) -> list[Any]:
        return [value for _, value in sorted(state, key=_entry_number)]

    @override
    def _take(self, state: Entries, found: Any, at: Arrival) -> Entries:
        state.append((at.entered, found))
        return state

    @override
    def _join(self, state: Entries, other: Entries) -> Entries:
        state += other
        return state


@dataclass(frozen=True, repr=False)
class CollectUnique(_Collection[EntryOfKey]):
    """The different values, in a list, each once, in the order in which they entered the window.

    Equal values, such as 1, 1.0 and True, count as one value; the first to enter represents them.
    Without values the result is ``[]``. Memory: every different value.

    Args:
        field: a field's path, a function of the value, or ``None`` for the value itself. A
            value must have a hash: make a tuple of a list to collect it.

    >>> from flow_windowing import aggregate
    >>> aggregate(CollectUnique("page"), [{"page": "home"}, {"page": "cart"}, {"page": "home"}])
    ['home', 'cart']
    """

    @override
    def initialize(self) -> EntryOfKey:
        return {}

    @override
    def result(self, state: EntryOfKey) -> list[Any]:
        return [value for _, value in sorted(state.values(), key=_entry_number)]

    @override
    def _take(self, state: EntryOfKey, found: Any, at: Arrival) -> EntryOfKey:
        key = key_of(found)
        known = state.get(key)
        if known is None or at.entered < known[0]:
            state[key] = at.entered, found
        return state

    @override
    def _join(self, state: EntryOfKey, other: EntryOfKey) -> EntryOfKey:
        for key, (entered, value) in other.items():
            known = state.get(key)
            if known is None or entered < known[0]:
                state[key] = entered, value
        return state


class _EntryAggregator(Aggregator[Any, Any, Any]):
    """An aggregator that needs the entry number of each value, and includes ``None`` values."""

    depends_on_order = True

    @override
    def add(self, state: Any, value: Any) -> Any:
        return self.add_at(state, value, AT_ONCE)


class IntoList(_EntryAggregator):
    """All values, in a list, in order of entering."""

    form = ListForm()

    @override
    def initialize(self) -> Entries:
        return []

    @override
    def add_at(self, state: Entries, value: Any, at: Arrival) -> Any:
        state.append((at.entered, value))
        return state

    @override
    def merge(self, state: Entries, other: Entries) -> Any:
        return [*state, *other]

    @override
    def result(self, state: Entries) -> list[Any]:
        return [value for _, value in sorted(state, key=_entry_number)]


class IntoSet(_EntryAggregator):
    """The different values, in a set."""

    @override
    def initialize(self) -> set[Any]:
        return set()

    @override
    def add_at(self, state: set[Any], value: Any, at: Arrival) -> set[Any]:
        state.add(value)
        return state

    @override
    def merge(self, state: set[Any], other: set[Any]) -> set[Any]:
        return state | other

    @override
    def result(self, state: set[Any]) -> set[Any]:
        return set(state)


class IntoDict(_EntryAggregator):
    """The last value of each key, in a dict; the values of the window are pairs."""

    @override
    def initialize(self) -> EntryOfKey:
        return {}

    @override
    def add_at(self, state: EntryOfKey, value: Any, at: Arrival) -> Any:
        key, of_key = value
        state[key] = (at.entered, of_key)
        return state

    @override
    def merge(self, state: EntryOfKey, other: EntryOfKey) -> EntryOfKey:
        merged = dict(state)
        for key, entry in other.items():
            if key not in merged or merged[key][0] < entry[0]:
                merged[key] = entry
        return merged

    @override
    def result(self, state: EntryOfKey) -> dict[Any, Any]:
        return {key: value for key, (_, value) in state.items()}


COLLECTORS: dict[object, Aggregator[Any, Any, Any]] = {
    list: IntoList(),
    set: IntoSet(),
    dict: IntoDict(),
}
