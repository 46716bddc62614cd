"""What `collect_window` gathers values into, as aggregators.

Values are kept with their number in order of entering, so that the order is right also when two
windows become one.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from typing_extensions import override

from flow_windowing.aggregates.aggregator import AT_ONCE, Aggregator, Arrival

_entered = itemgetter(0)


class _Gathering(Aggregator[Any, Any, Any]):
    @override
    def add(self, state: Any, value: Any) -> Any:
        return self.add_at(state, value, AT_ONCE)


class IntoList(_Gathering):
    """All values, in order of entering."""

    @override
    def initialize(self) -> list[tuple[int, Any]]:
        return []

    @override
    def add_at(self, state: list[tuple[int, Any]], value: Any, at: Arrival) -> Any:
        state.append((at.entered, value))
        return state

    @override
    def merge(self, state: list[tuple[int, Any]], other: list[tuple[int, Any]]) -> Any:
        return [*state, *other]

    @override
    def result(self, state: list[tuple[int, Any]]) -> list[Any]:
        return [value for _, value in sorted(state, key=_entered)]


class IntoSet(_Gathering):
    """The different values."""

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


class IntoDict(_Gathering):
    """The last value of each key, of values that are pairs."""

    @override
    def initialize(self) -> dict[Any, tuple[int, Any]]:
        return {}

    @override
    def add_at(self, state: dict[Any, tuple[int, Any]], value: Any, at: Arrival) -> Any:
        key, one = value
        state[key] = (at.entered, one)
        return state

    @override
    def merge(
        self, state: dict[Any, tuple[int, Any]], other: dict[Any, tuple[int, Any]]
    ) -> dict[Any, tuple[int, Any]]:
        merged = dict(state)
        for key, entry in other.items():
            if key not in merged or merged[key][0] < entry[0]:
                merged[key] = entry
        return merged

    @override
    def result(self, state: dict[Any, tuple[int, Any]]) -> dict[Any, Any]:
        return {key: one for key, (_, one) in state.items()}


GATHERERS: dict[object, Aggregator[Any, Any, Any]] = {
    list: IntoList(),
    set: IntoSet(),
    dict: IntoDict(),
}
