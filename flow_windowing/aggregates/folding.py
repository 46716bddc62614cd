"""Folding windows, for all windowing operators whose windows have one result.

Each of these operators is an `Aggregator`. `FoldingLogic` runs it in one window, and emits results
as the setting `emit` requires. Joins that emit as a window closes are aggregators too.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, ClassVar, TypeAlias

from typing_extensions import override

from flow.keyed.logic import detach
from flow.operators.key_join import InsertMode
from flow_windowing.aggregates.aggregator import (
    Aggregator,
    ArrivalAggregator,
    Form,
    ListForm,
    called,
    form_of,
)
from flow_windowing.rules.key_state import pack_list, unpack_list
from flow_windowing.rules.triggers import Emission
from flow_windowing.rules.window_logic import Arrival, EpochWindowLogic

ListChange: TypeAlias = Callable[[list[Any]], list[Any]]
"""A function that returns a list with the same entries that is stored in another way, or the list.
"""


@dataclass(frozen=True)
class FoldingBuilder:
    """Builder of the logic of a window that folds its values."""

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("aggregator",)

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"emit"})

    aggregator: Aggregator[Any, Any, Any]
    emit: Emission

    @cached_property
    def has_lists(self) -> bool:
        """True if a state is, or has, a list to which entries are appended."""
        forms = map(form_of, aggregators_of(self.aggregator).values())
        return any(isinstance(form, ListForm) for form in forms)

    def __call__(self, state: tuple[Any] | None) -> FoldingLogic:
        """Return the logic of a window, from a snapshot or, for a new window, from ``None``."""
        return FoldingLogic(self, state)


@dataclass(frozen=True)
class DiscardingBuilder(FoldingBuilder):
    """Builder of the logic of a window whose panes have only the values since the last pane."""


class FoldingLogic(EpochWindowLogic[Any, Any, tuple[Any]]):
    """The logic of a window that folds its values into one accumulator."""

    __slots__ = ("_aggregator", "_emit", "_has_lists", "state")

    detaches = True
    # The setting `emit` of the operator determines the emission at the end of epochs.
    emits_each_epoch = False

    def __init__(self, config: FoldingBuilder, state: tuple[Any] | None) -> None:
        self._aggregator = config.aggregator
        self._emit = config.emit
        self._has_lists = config.has_lists
        self.state = called(config.aggregator, "initialize") if state is None else state[0]

    @override
    def on_value(self, value: Any) -> Iterable[Any]:
        raise NotImplementedError("values come with their arrival")

    @override
    def on_value_at(self, value: Any, at: Arrival) -> Iterable[Any]:
        self.state = called(self._aggregator, "add_at", self.state, value, at)
        return (self._result(),) if self._emit == "update" else ()

    @override
    def on_fill(self, values: list[tuple[Any, Arrival]]) -> Iterable[Any]:
        for value, at in values:
            self.state = called(self._aggregator, "add_at", self.state, value, at)
        return (self._result(),) if self._emit == "update" else ()

    @override
    def on_merge(self, original: FoldingLogic) -> Iterable[Any]:
        """Merge without output, as the value that merges the two windows is added next."""
        self._change_lists(unpack_list)
        original._change_lists(unpack_list)
        self.state = called(self._aggregator, "merge", self.state, original.state)
        return ()

    @override
    def on_epoch_end(self) -> Iterable[Any]:
        return (self._result(),)

    def discard(self) -> None:
        """Remove all values from the accumulator, after a pane with their result."""
        self.state = called(self._aggregator, "initialize")

    @override
    def on_close(self) -> Iterable[Any]:
        if self._emit == "update":
            return ()
        result = self._result()
        return result if form_of(self._aggregator).emits_items else (result,)

    @override
    def snapshot(self) -> tuple[Any]:
        self._change_lists(pack_list)
        if isinstance(self._aggregator, NamedAggregates):
            return ([copy.copy(state) for state in self.state],)
        return (copy.copy(self.state),)

    def _result(self) -> Any:
        """Return the result of the accumulator, as a copy if later values may change it."""
        self._change_lists(unpack_list)
        if self._emit == "close":
            return called(self._aggregator, "result", self.state)
        return result_now(self._aggregator, self.state)

    def _change_lists(self, change: ListChange) -> None:
        if self._has_lists:
            self.state = map_lists(self._aggregator, self.state, change)


@dataclass(frozen=True)
class Fold(Aggregator[Any, Any, Any]):
    """The aggregator of `fold_window`.

    Attributes:
        builder: returns the initial value.
        folder: called with the current fold and the next value; returns the new fold.
        merger: called with the folds of two windows that merge; ``None`` if none merge.
        copies: True if results are copied, as the state changes after they are emitted.
    """

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"copies"})
    FUNCTIONS: ClassVar[Mapping[str, str]] = {
        "initialize": "the builder",
        "add": "the folder",
        "merge": "the merger",
        "result": "copying the result",
    }

    builder: Callable[[], Any]
    folder: Callable[[Any, Any], Any]
    merger: Callable[[Any, Any], Any] | None
    copies: bool
    depends_on_order = True

    @override
    def initialize(self) -> Any:
        return self.builder()

    @override
    def add(self, state: Any, value: Any) -> Any:
        return self.folder(state, value)

    @override
    def merge(self, state: Any, other: Any) -> Any:
        if self.merger is None:
            raise NotImplementedError("merging windows needs a merger, got None")
        return self.merger(state, other)

    @override
    def result(self, state: Any) -> Any:
        return copy.deepcopy(state) if self.copies else state


@dataclass(frozen=True)
class Reduce(Aggregator[Any, Any, Any]):
    """The aggregator of `reduce_window`; the state is a tuple, empty at first."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"copies"})
    FUNCTIONS: ClassVar[Mapping[str, str]] = {
        "add": "the reducer",
        "merge": "the reducer",
        "result": "copying the result",
    }

    reducer: Callable[[Any, Any], Any]
    copies: bool
    depends_on_order = True

    @override
    def initialize(self) -> tuple[Any, ...]:
        return ()

    @override
    def add(self, state: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
        return (self.reducer(state[0], value),) if state else (value,)

    @override
    def merge(self, state: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.reducer(state[0], other[0]),) if state and other else state or other

    @override
    def result(self, state: tuple[Any, ...]) -> Any:
        if not state:  # The pane of a window that discards has no value.
            return None
        return copy.deepcopy(state[0]) if self.copies else state[0]


def result_now(aggregator: Aggregator[Any, Any, Any], state: Any) -> Any:
    """Return the current result of an open window, which later values do not change."""
    if not isinstance(aggregator, NamedAggregates):
        return detach(called(aggregator, "result", state), state)
    parts = zip(aggregator.names, aggregator.aggregators, state, strict=True)
    return {name: result_now(one, kept) for name, one, kept in parts}


@dataclass(frozen=True)
class NamedAggregates(ArrivalAggregator[Any, list[Any], dict[str, Any]]):
    """Several aggregators side by side, each under a name."""

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("aggregators",)

    names: tuple[str, ...]
    aggregators: tuple[Aggregator[Any, Any, Any], ...]

    @property
    @override
    def depends_on_order(self) -> bool:
        return any(one.depends_on_order for one in self.aggregators)

    @override
    def initialize(self) -> list[Any]:
        return [called(one, "initialize") for one in self.aggregators]

    @override
    def add_at(self, state: list[Any], value: Any, at: Arrival) -> list[Any]:
        pairs = zip(self.aggregators, state, strict=True)
        return [called(one, "add_at", kept, value, at) for one, kept in pairs]

    @override
    def merge(self, state: list[Any], other: list[Any]) -> list[Any]:
        pairs = zip(self.aggregators, state, other, strict=True)
        return [called(one, "merge", kept, more) for one, kept, more in pairs]

    @override
    def result(self, state: list[Any]) -> dict[str, Any]:
        figures = zip(self.names, self.aggregators, state, strict=True)
        return {name: called(one, "result", kept) for name, one, kept in figures}


def map_lists(
    aggregator: Aggregator[Any, Any, Any],
    state: Any,
    change: ListChange,
) -> Any:
    """Return the state of an aggregator after a change of the lists that entries are appended to.

    Args:
        aggregator: the aggregator.
        state: its state.
        change: the change.
    """
    if isinstance(aggregator, NamedAggregates):
        pairs = zip(aggregator.aggregators, state, strict=True)
        return [map_lists(one, kept, change) for one, kept in pairs]
    return change(state) if isinstance(form_of(aggregator), ListForm) else state


def aggregators_of(
    aggregator: Aggregator[Any, Any, Any],
) -> dict[str | None, Aggregator[Any, Any, Any]]:
    """Return the aggregators of a step by name; the only one has the name ``None``."""
    if isinstance(aggregator, NamedAggregates):
        return dict(zip(aggregator.names, aggregator.aggregators, strict=True))
    return {None: aggregator}


@dataclass(frozen=True)
class Partials(NamedAggregates):
    """Several aggregators side by side whose result is the accumulator of each, by name.

    A step that merges the accumulators of several keys computes the results.
    """

    @override
    def result(self, state: list[Any]) -> dict[str, Any]:
        return dict(zip(self.names, map(copy.copy, state), strict=True))


OrderKey: TypeAlias = tuple[int, int]
"""The key of the order of values: (timestamp, arrival number), or (0, arrival number)."""
Entry: TypeAlias = tuple[OrderKey, Any]
Entries: TypeAlias = "tuple[Entry | None, ...]"
"""The value of each side, with its key; ``None`` for a side without values."""
SidedEntry: TypeAlias = tuple[OrderKey, tuple[int, Any]]
"""A value with its side, and its key."""


@dataclass(frozen=True)
class OneOfEachSide(ArrivalAggregator[tuple[int, Any], Entries, "tuple[Any, ...]"]):
    """The first, or the last, value of each side, in a tuple.

    Attributes:
        sides: the number of sides.
        insert_mode: the value of a side that is held, ``"first"`` or ``"last"``.
        ordered: True if the order is by timestamp, then by arrival; False if by arrival only.
    """

    form = Form(ignores_order=True)

    sides: int
    insert_mode: InsertMode
    ordered: bool

    @override
    def initialize(self) -> Entries:
        return (None,) * self.sides

    @override
    def add_at(self, state: Entries, value: tuple[int, Any], at: Arrival) -> Entries:
        side, of_side = value
        new: Entry = ((at.timestamp_us if self.ordered else 0, at.number), of_side)
        return (*state[:side], self._choose(state[side], new), *state[side + 1 :])

    @override
    def merge(self, state: Entries, other: Entries) -> Entries:
        return tuple(map(self._choose, state, other))

    @override
    def result(self, state: Entries) -> tuple[Any, ...]:
        return tuple(None if entry is None else entry[1] for entry in state)

    def _choose(self, one: Entry | None, other: Entry | None) -> Entry | None:
        if one is None or other is None:
            return one or other
        return other if (other[0] < one[0]) == (self.insert_mode == "first") else one


@dataclass(frozen=True)
class AllOfEachSide(ArrivalAggregator[tuple[int, Any], list[SidedEntry], "list[tuple[Any, ...]]"]):
    """All combinations of the values of the sides, each in a tuple, with ``None`` for no value.

    Attributes:
        sides: the number of sides.
        ordered: as in `OneOfEachSide`.
    """

    form = ListForm(ignores_order=True, emits_items=True)

    sides: int
    ordered: bool

    @override
    def initialize(self) -> list[SidedEntry]:
        return []

    @override
    def add_at(
        self, state: list[SidedEntry], value: tuple[int, Any], at: Arrival
    ) -> list[SidedEntry]:
        state.append(((at.timestamp_us if self.ordered else 0, at.number), value))
        return state

    @override
    def merge(self, state: list[SidedEntry], other: list[SidedEntry]) -> list[SidedEntry]:
        state += other
        return state

    @override
    def result(self, state: list[SidedEntry]) -> list[tuple[Any, ...]]:
        return list(itertools.product(*(one or [None] for one in by_side(state, self.sides))))


def by_side(state: list[SidedEntry], sides: int) -> list[list[Any]]:
    """Return the values of each side, in order."""
    values: list[list[Any]] = [[] for _ in range(sides)]
    for _, (side, value) in sorted(state, key=itemgetter(0)):
        values[side].append(value)
    return values
