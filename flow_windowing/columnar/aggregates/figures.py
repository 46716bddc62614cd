"""The states of an aggregate in many windows: a row for each window.

`ObjectFigures` keeps what an aggregator of any kind makes, as Python objects, and calls it for each
value. The figures of `flow_windowing.columnar.aggregates.forms` keep numbers in columns instead.
The two change into each other without loss, so that columns need to know no more than the usual.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import repeat, starmap
from operator import is_
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints, Mask
from flow.columns.chunks import as_objects, pick
from flow.errors import RAISED
from flow.keyed.logic import FailedCall, RejectedValue
from flow_windowing.aggregates.aggregator import (
    AT_ONCE,
    Aggregator,
    Arrival,
    FieldAggregator,
    UnfitError,
    called,
    failure_of,
)
from flow_windowing.columnar.values.folds import FailedAt, folded
from flow_windowing.columnar.values.timestamps import Values
from flow_windowing.columnar.values.written import Pickled, Stored, held, known, written
from flow_windowing.folding import Fold, result_now

Packed: TypeAlias = tuple[Any, ...]
"""Figures as plain data, to be written down: their kind, the type of their aggregator, then what
that kind needs."""


class Turn(NamedTuple):
    """A value enters a window, or makes two windows one.

    Attributes:
        target: the row of the window that takes something in.
        original: the row of the one that it takes in; ``None`` when it is the value.
        value: the number of the value.
    """

    target: int
    original: int | None
    value: int


class NotInColumns(Exception):
    """These values, or what they come to, have no place in columns of numbers."""


class FailedRow(Exception):
    """A user's function raised at a row.

    Attributes:
        row: the row.
    """

    def __init__(self, row: int) -> None:
        self.row = row
        super().__init__(row)


class Groups:
    """Values that enter windows, those of each window together, in order of entering.

    Attributes:
        values: all values of the epoch.
        order: the row in `values` of each value that enters, window after window.
        starts: where each window's values start in `order`.
        in_arrival_order: whether values enter in the order in which they came.
    """

    def __init__(
        self,
        values: Values,
        order: Ints,
        starts: Ints,
        objects: Callable[[Ints], list[Any]],
        arrivals: Callable[[], tuple[Ints, Ints, Ints]],
        in_arrival_order: bool,
    ) -> None:
        self.values = values
        self.order = order
        self.starts = starts
        self.in_arrival_order = in_arrival_order
        self._objects = objects
        self._arrivals = arrivals

    def one_by_one(self) -> Groups:
        """The same values, each by itself."""
        starts = np.arange(len(self.order))
        return Groups(
            self.values, self.order, starts, self._objects, self._arrivals, self.in_arrival_order
        )

    @cached_property
    def counts(self) -> Ints:
        """How many values each window gets."""
        return np.diff(self.starts, append=len(self.order))

    @cached_property
    def objects(self) -> list[Any]:
        """The values as Python objects, in the order of `order`."""
        return self._objects(self.order)

    def found(self, field: str) -> list[Any] | None:
        """What a field of the values holds, as Python objects, in the order of `order`.

        It is ``None`` where the values are no records, or have no field of that name.
        """
        values = self.values
        if not isinstance(values, pa.RecordBatch) or field not in values.schema.names:
            return None
        return as_objects(values.column(field).take(pa.array(self.order)))

    def value_at(self, at: int) -> Any:
        """One of the values as a Python object, by its place in `order`."""
        (value,) = self._objects(self.order[at : at + 1])
        return value

    @cached_property
    def arrival_columns(self) -> tuple[Ints, Ints, Ints]:
        """When each value came, in the order of `order`: timestamp, arrival, entering."""
        times_us, numbers, entered = self._arrivals()
        return times_us[self.order], numbers[self.order], entered[self.order]

    @cached_property
    def group_of_row(self) -> Ints:
        """The number of each value's window."""
        return np.repeat(np.arange(len(self.starts)), self.counts)

    def arrivals(self) -> Iterator[Arrival]:
        """When each value came, in the order of `order`."""
        return map(Arrival, *(column.tolist() for column in self.arrival_columns))


class Figures(ABC):
    """The states of one aggregate by row, each row a window."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, rows: Ints | Mask) -> Figures:
        """Those of some rows, in the order given."""

    @abstractmethod
    def extended(self, count: int) -> Figures:
        """These, followed by so many windows that have had no value."""

    @abstractmethod
    def add(self, rows: Ints, groups: Groups) -> None:
        """Add a group of values to each of some rows, no row twice.

        Raises:
            NotInColumns: when it cannot be done in this form; nothing has changed then.
            FailedRow: when a user's function raised; its cause is what was raised.
        """

    @abstractmethod
    def add_each(self, rows: Ints, groups: Groups) -> pa.Array | list[Any]:
        """`add`, and the figure after each value, in order of group and value.

        Raises:
            NotInColumns: when it cannot be done in this form; nothing has changed then.
            FailedRow: when a user's function raised; its cause is what was raised.
        """

    @abstractmethod
    def merge(self, targets: Ints, originals: Ints) -> None:
        """Let each of some rows take in what another has, no row twice among all of them.

        Raises:
            NotInColumns: when it cannot be done in this form; nothing has changed then.
            FailedRow: when the aggregator raised, with the number of the pair; its cause is what
                was raised.
        """

    @abstractmethod
    def results(self, rows: Ints) -> pa.Array | list[Any]:
        """The figure in each of some rows."""

    @abstractmethod
    def states(self) -> list[Any]:
        """The aggregator's own state for each row."""

    @abstractmethod
    def packed(self, begin: int, end: int) -> Packed:
        """The rows from `begin` to `end` as plain data."""


class ObjectFigures(Figures):
    """States of any kind. What came out of storage is unpickled when it is needed first."""

    kind = "objects"

    def __init__(self, aggregator: Aggregator[Any, Any, Any], states: list[Any]) -> None:
        self._aggregator = aggregator
        self._states = states

    @classmethod
    def empty(cls, aggregator: Aggregator[Any, Any, Any], count: int) -> ObjectFigures:
        """Those of windows that have had no value."""
        return cls(aggregator, [_FRESH] * count)

    @classmethod
    def unpacked(cls, aggregator: Aggregator[Any, Any, Any], parts: Sequence[Packed]) -> Figures:
        """The figures in several pieces of plain data."""
        return cls(aggregator, [one for _, _, states in parts for one in held(states)])

    @override
    def __len__(self) -> int:
        return len(self._states)

    @override
    def take(self, rows: Ints | Mask) -> Figures:
        chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        states = self._states
        return ObjectFigures(self._aggregator, [states[row] for row in chosen.tolist()])

    @override
    def extended(self, count: int) -> Figures:
        return ObjectFigures(self._aggregator, [*self._states, *([_FRESH] * count)])

    @override
    def add(self, rows: Ints, groups: Groups) -> None:
        items, add = self._to_add(groups)
        before: list[Any] = []
        try:
            before.extend(self._known(rows))
        except RAISED as error:
            at = int(groups.starts[len(before)])
            cause = failure_of(self._aggregator, "initialize", error)
            raise FailedRow(int(groups.order[at])) from cause
        try:
            after = folded(add, before, items, groups.starts)
        except FailedAt as failed:
            cause = self._not_added(failed.error, groups, failed.at)
            raise FailedRow(int(groups.order[failed.at])) from cause
        for row, state in zip(rows.tolist(), after, strict=True):
            self._states[row] = state

    @override
    def add_each(self, rows: Ints, groups: Groups) -> list[Any]:
        aggregator, states = self._aggregator, self._states
        items, add = self._to_add(groups)
        windows = np.repeat(rows, groups.counts).tolist()
        figures = []
        for at, (row, item) in enumerate(zip(windows, items, strict=True)):
            try:
                state = self._state(row)
                try:
                    states[row] = add(state, item)
                except RAISED as error:
                    cause = self._not_added(error, groups, at)
                    raise FailedRow(int(groups.order[at])) from cause
                figures.append(result_now(aggregator, states[row]))
            except (FailedCall, RejectedValue) as error:
                raise FailedRow(int(groups.order[at])) from error
        return figures

    @override
    def merge(self, targets: Ints, originals: Ints) -> None:
        aggregator, states = self._aggregator, self._states
        for at, (target, original) in enumerate(
            zip(targets.tolist(), originals.tolist(), strict=True)
        ):
            try:
                pair = self._state(target), self._state(original)
                states[target] = called(aggregator, "merge", *pair)
            except RAISED as error:
                raise FailedRow(at) from error

    def replay(self, turns: Iterable[Turn], values: list[Any], arrivals: list[Arrival]) -> None:
        """Add values and merge windows in turn, as `WindowDriver` would.

        Args:
            turns: what to do.
            values: the values.
            arrivals: when each of them came.

        Raises:
            FailedRow: when a user's function raised, with the number of the value that was on its
                way then; its cause is what was raised.
        """
        aggregator, states = self._aggregator, self._states
        for target, original, value in turns:
            try:
                state = self._state(target)
                if original is None:
                    new = values[value], arrivals[value]
                    states[target] = called(aggregator, "add_at", state, *new)
                else:
                    states[target] = called(aggregator, "merge", state, self._state(original))
            except RAISED as error:
                raise FailedRow(value) from error

    def replay_each(
        self, turns: Iterable[Turn], values: list[Any], arrivals: list[Arrival]
    ) -> list[Any]:
        """`replay`, and a figure for each turn.

        It is that of the window after the value, or that of the one that is taken in, before it is.
        """
        aggregator, figures = self._aggregator, []
        for turn in turns:
            target, original, value = turn
            try:
                if original is not None:
                    figures.append(result_now(aggregator, self._state(original)))
                self.replay([turn], values, arrivals)
                if original is None:
                    figures.append(result_now(aggregator, self._states[target]))
            except FailedRow:
                raise
            except RAISED as error:
                raise FailedRow(value) from error
        return figures

    @override
    def results(self, rows: Ints) -> list[Any]:
        aggregator, states = self._aggregator, self._known(rows)
        if type(aggregator) is Fold and not aggregator.copies:
            return list(states)
        try:
            return list(map(aggregator.result, states))
        except RAISED as error:
            failure = failure_of(aggregator, "result", error)
            raise failure from failure.__cause__

    @override
    def states(self) -> list[Any]:
        self._states = list(self._known(np.arange(len(self._states))))
        return list(self._states)

    @override
    def packed(self, begin: int, end: int) -> Packed:
        states = [
            self._state(row) if one is _FRESH else one
            for row, one in enumerate(self._states[begin:end], begin)
        ]
        return self.kind, type(self._aggregator).__name__, written(states)

    def _to_add(self, groups: Groups) -> tuple[Sequence[Any], Callable[[Any, Any], Any]]:
        """What is added, value by value, and the function that adds it to a state."""
        aggregator = self._aggregator
        add = _adder(aggregator)
        if add is not None:
            return groups.objects, add
        add_at: Callable[[Any, Any, Arrival], Any]
        found = _found(aggregator, groups)
        if found is None or not isinstance(aggregator, FieldAggregator):
            add_at, found = aggregator.add_at, groups.objects
        elif aggregator.by_arrival:
            add_at = aggregator.add_found
        else:
            add_found = aggregator.add_found
            return found, lambda state, value: add_found(state, value, AT_ONCE)
        items = list(zip(found, groups.arrivals(), strict=True))
        return items, lambda state, item: add_at(state, item[0], item[1])

    def _not_added(self, error: BaseException, groups: Groups, at: int) -> Exception:
        """What `add_at` would raise of what adding a value raised, by its place in `order`."""
        aggregator, value = self._aggregator, groups.value_at(at)
        if isinstance(error, UnfitError) and isinstance(aggregator, FieldAggregator):
            failure: Exception = aggregator.rejected(value, error)
            failure.__cause__ = error.__cause__
            return failure
        return failure_of(aggregator, "add", error, value)

    def _known(self, rows: Ints) -> Iterator[Any]:
        """The states of some rows, one after the other."""
        states = known(pick(self._states, rows))
        fresh = list(map(is_, states, repeat(_FRESH)))
        if not any(fresh):
            return iter(states)
        initialize = _initializer(self._aggregator)
        if all(fresh):
            return starmap(initialize, repeat((), len(states)))
        return (initialize() if one else state for state, one in zip(states, fresh, strict=True))

    def _state(self, row: int) -> Any:
        state = self._states[row]
        if state is _FRESH:
            state = self._states[row] = called(self._aggregator, "initialize")
        elif type(state) in (Pickled, Stored):
            state = self._states[row] = state.value()
        return state


_FRESH = object()
"""The state of a window that has had no value."""


def _initializer(aggregator: Aggregator[Any, Any, Any]) -> Callable[[], Any]:
    """What makes the state of a window that has had no value."""
    return aggregator.builder if type(aggregator) is Fold else aggregator.initialize


def _adder(aggregator: Aggregator[Any, Any, Any]) -> Callable[[Any, Any], Any] | None:
    """What adds a value to a state, where it need not know when the value came."""
    if type(aggregator) is Fold:
        return aggregator.folder
    return aggregator.add if type(aggregator).add_at is Aggregator.add_at else None


def _found(aggregator: Aggregator[Any, Any, Any], groups: Groups) -> list[Any] | None:
    """What an aggregator would find in values; ``None`` where it has to look into each."""
    if not isinstance(aggregator, FieldAggregator) or not isinstance(aggregator.field, str):
        return None
    overridden = type(aggregator).add_at is not FieldAggregator.add_at
    return None if overridden else groups.found(aggregator.field)
