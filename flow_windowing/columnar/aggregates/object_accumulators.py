"""Accumulators of any aggregator, as Python objects.

Values are folded into many states with little work between two calls of a user's function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import repeat, starmap
from operator import is_, length_hint
from typing import Any

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints, Mask
from flow.columns.chunks import pick
from flow.columns.predicate import ColumnPredicate
from flow.errors import RAISED
from flow.keyed.logic import FailedCall, RejectedValue
from flow_windowing.aggregates.aggregator import (
    AT_ONCE,
    Aggregator,
    FieldAggregator,
    ListForm,
    UnfitError,
    called,
    failure_of,
    form_of,
)
from flow_windowing.aggregates.folding import Fold, result_now
from flow_windowing.columnar.aggregates.accumulators import (
    Accumulators,
    EncodedAccumulators,
    FailedRow,
    Groups,
    RowOperation,
)
from flow_windowing.columnar.values.blocks import ListTail, joined_lists
from flow_windowing.columnar.values.encoding import (
    ColumnValue,
    PickledValue,
    decode_lazy,
    encode_values,
    lazy_values,
)
from flow_windowing.rules.window_logic import Arrival

_FEW = 8
"""The greatest number of items of a state that is folded in sweeps; more are faster in `reduce`."""
_NO_VALUES = object()
"""Placeholder for the state of a window without values; the state is made for the first value."""


class FailedItem(Exception):
    """A failure of the folding function.

    Attributes:
        at: the index of the item.
        error: the exception of the folding function.
    """

    def __init__(self, at: int, error: BaseException) -> None:
        self.at = at
        self.error = error
        super().__init__(at, error)


def fold_items(
    add: Callable[[Any, Any], Any], states: Sequence[Any], items: Sequence[Any], starts: Ints
) -> list[Any]:
    """Return each state after its items have been added in order.

    A sweep adds the first item of each state, the next sweep the second item, and so on. So states
    with one or two items cost hardly more than the calls. A state with many items is folded alone.

    Args:
        add: returns a new state from a state and an item.
        states: the states, which are not changed.
        items: the items, grouped by state.
        starts: the index of each state's first item, ascending.

    Raises:
        FailedItem: when `add` raised.

    >>> fold_items(lambda total, item: total + item, [0, 10], [1, 2, 3], np.array([0, 2]))
    [3, 13]
    """
    after = list(states)
    counts = np.diff(starts, append=len(items))
    for nth in range(_FEW):
        chosen = np.flatnonzero((counts > nth) & (counts <= _FEW))
        if not len(chosen):
            break
        indices = starts[chosen] + nth
        new: list[Any] = []
        try:
            new.extend(map(add, pick(after, chosen), pick(items, indices)))
        except RAISED as error:
            raise FailedItem(int(indices[len(new)]), error) from error
        for index, state in zip(chosen.tolist(), new, strict=True):
            after[index] = state
    for index in np.flatnonzero(counts > _FEW).tolist():
        start = int(starts[index])
        end = start + int(counts[index])
        remaining = iter(items[start:end])
        try:
            after[index] = reduce(add, remaining, after[index])
        except RAISED as error:
            raise FailedItem(end - length_hint(remaining) - 1, error) from error
    return after


class ObjectAccumulators(Accumulators):
    """States of an aggregator; restored states are decoded on first use."""

    kind = "objects"

    def __init__(self, aggregator: Aggregator[Any, Any, Any], states: list[Any]) -> None:
        self._aggregator = aggregator
        self._states = states

    @classmethod
    def empty(cls, aggregator: Aggregator[Any, Any, Any], count: int) -> ObjectAccumulators:
        """Return the accumulators of `count` windows without values."""
        return cls(aggregator, [_NO_VALUES] * count)

    @classmethod
    def decode(
        cls, aggregator: Aggregator[Any, Any, Any], parts: Sequence[EncodedAccumulators]
    ) -> Accumulators:
        """Return the accumulators of several pieces of plain data, one after the other."""
        states = list[Any]()
        for _, encoded, *pieces in parts:
            of_part = lazy_values(encoded)
            for row, of_row in enumerate(pieces[0] if pieces else ()):
                if of_row:
                    of_part[row] = ListTail(of_part[row].value(), of_row)
            states += of_part
        return cls(aggregator, states)

    def has_no_values(self) -> bool:
        """Return True if no window has a value."""
        return all(map(is_, self._states, repeat(_NO_VALUES)))

    @override
    def __len__(self) -> int:
        return len(self._states)

    @override
    def take(self, rows: Ints | Mask) -> Accumulators:
        chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        states = self._states
        return ObjectAccumulators(self._aggregator, [states[row] for row in chosen.tolist()])

    @override
    def with_new_rows(self, count: int) -> Accumulators:
        return ObjectAccumulators(self._aggregator, [*self._states, *([_NO_VALUES] * count)])

    @override
    def add(self, rows: Ints, groups: Groups) -> None:
        items, add = self._items_and_adder(groups)
        before: list[Any] = []
        try:
            before.extend(self._states_at(rows))
        except RAISED as error:
            at = int(groups.starts[len(before)])
            cause = failure_of(self._aggregator, "initialize", error)
            raise FailedRow(int(groups.rows[at])) from cause
        try:
            after = fold_items(add, before, items, groups.starts)
        except FailedItem as failed:
            cause = self._failure_to_add(failed.error, groups, failed.at)
            raise FailedRow(int(groups.rows[failed.at])) from cause
        for row, state in zip(rows.tolist(), after, strict=True):
            self._states[row] = state

    @override
    def add_each(self, rows: Ints, groups: Groups) -> list[Any]:
        aggregator, states = self._aggregator, self._states
        items, add = self._items_and_adder(groups)
        row_of_item = np.repeat(rows, groups.counts).tolist()
        results = []
        for at, (row, item) in enumerate(zip(row_of_item, items, strict=True)):
            try:
                state = self._state(row)
                try:
                    states[row] = add(state, item)
                except RAISED as error:
                    cause = self._failure_to_add(error, groups, at)
                    raise FailedRow(int(groups.rows[at])) from cause
                results.append(result_now(aggregator, states[row]))
            except (FailedCall, RejectedValue) as error:
                raise FailedRow(int(groups.rows[at])) from error
        return results

    @override
    def merge(self, targets: Ints, originals: Ints) -> None:
        states = self._states
        for at, (target, original) in enumerate(
            zip(targets.tolist(), originals.tolist(), strict=True)
        ):
            try:
                states[target] = self._merged(target, original)
            except RAISED as error:
                raise FailedRow(at) from error

    def apply(
        self, operations: Iterable[RowOperation], values: list[Any], arrivals: list[Arrival]
    ) -> None:
        """Add values and merge windows in order, as `WindowDriver` does for one key.

        Args:
            operations: the additions and merges.
            values: the values that operations refer to by index.
            arrivals: the arrival of each value.

        Raises:
            FailedRow: when a user's function raised, with the index of the value that was added or
                caused the merge; its cause is the error.
        """
        aggregator, states = self._aggregator, self._states
        for target, original, value in operations:
            try:
                if original is None:
                    new = self._state(target), values[value], arrivals[value]
                    states[target] = called(aggregator, "add_at", *new)
                else:
                    states[target] = self._merged(target, original)
            except RAISED as error:
                raise FailedRow(value) from error

    def apply_each(
        self, operations: Iterable[RowOperation], values: list[Any], arrivals: list[Arrival]
    ) -> list[Any]:
        """Apply operations as `apply` does, and return a result for each of them.

        For an addition, it is the result of the window with the value; for a merge, the result of
        the original before it is merged.
        """
        aggregator, results = self._aggregator, []
        for operation in operations:
            target, original, value = operation
            try:
                if original is not None:
                    results.append(result_now(aggregator, self._state(original)))
                self.apply([operation], values, arrivals)
                if original is None:
                    results.append(result_now(aggregator, self._states[target]))
            except FailedRow:
                raise
            except RAISED as error:
                raise FailedRow(value) from error
        return results

    @override
    def results(self, rows: Ints) -> list[Any]:
        aggregator, states = self._aggregator, self._states_at(rows)
        if type(aggregator) is Fold and not aggregator.copies:
            return list(states)
        try:
            return list(map(aggregator.result, states))
        except RAISED as error:
            failure = failure_of(aggregator, "result", error)
            raise failure from failure.__cause__

    @override
    def states(self) -> list[Any]:
        self._states = list(self._states_at(np.arange(len(self._states))))
        return list(self._states)

    @override
    def encode(self, begin: int, end: int) -> EncodedAccumulators:
        states = [
            self._state(row) if one is _NO_VALUES else one
            for row, one in enumerate(self._states[begin:end], begin)
        ]
        pieces = [state.pieces if type(state) is ListTail else () for state in states]
        if not any(pieces):
            return self.kind, encode_values(states)
        plain = [list(state) if type(state) is ListTail else state for state in states]
        return self.kind, encode_values(plain), pieces

    def map_lists(self, rows: Ints, change: Callable[[list[Any]], list[Any]]) -> Ints:
        """Change the lists of the given rows, if the aggregate has the form of lists.

        Args:
            rows: the rows; a list that has not been decoded stays.
            change: returns a list with the same entries that is stored in another way, or the list.

        Returns:
            The rows whose list has changed.
        """
        changed = list[int]()
        if isinstance(form_of(self._aggregator), ListForm):
            for row in rows.tolist():
                state = self._states[row]
                if isinstance(state, list) and (new := change(state)) is not state:
                    self._states[row] = new
                    changed.append(row)
        return np.array(changed, np.int64)

    def _items_and_adder(self, groups: Groups) -> tuple[Sequence[Any], Callable[[Any, Any], Any]]:
        """Return an item for each value, and the function that adds an item to a state.

        The items are as cheap to make as the aggregator allows: values without their arrival, or
        the field of each value, read from its column. An expression that selects values is
        computed for all of them at once.
        """
        aggregator, selected = self._aggregator, None
        where = aggregator.where if isinstance(aggregator, FieldAggregator) else None
        if isinstance(where, ColumnPredicate) and groups.column(aggregator) is None:
            selected = groups.selected(where)
        if selected is None or not isinstance(aggregator, FieldAggregator):
            return self._items_of(aggregator, groups)
        items, add = self._items_of(replace(aggregator, where=None), groups)
        pairs = list(zip(selected, items, strict=True))
        return pairs, lambda state, pair: add(state, pair[1]) if pair[0] else state

    def _items_of(
        self, aggregator: Aggregator[Any, Any, Any], groups: Groups
    ) -> tuple[Sequence[Any], Callable[[Any, Any], Any]]:
        add = _adder_without_arrival(aggregator)
        if add is not None:
            return groups.objects, add
        add_at: Callable[[Any, Any, Arrival], Any]
        inputs = _field_objects(aggregator, groups)
        if inputs is None or not isinstance(aggregator, FieldAggregator):
            add_at, inputs = aggregator.add_at, groups.objects
        elif form_of(aggregator).ignores_arrival:
            add_found = aggregator.add_found
            return inputs, lambda state, value: add_found(state, value, AT_ONCE)
        else:
            add_at = aggregator.add_found
        items = list(zip(inputs, groups.arrivals(), strict=True))
        return items, lambda state, item: add_at(state, item[0], item[1])

    def _failure_to_add(self, error: BaseException, groups: Groups, at: int) -> Exception:
        """Return the error that `add_at` would raise for the value at an index of `rows`."""
        aggregator, value = self._aggregator, groups.value_at(at)
        if isinstance(error, UnfitError) and isinstance(aggregator, FieldAggregator):
            failure: Exception = aggregator.rejected(value, error)
            failure.__cause__ = error.__cause__
            return failure
        return failure_of(aggregator, "add", error, value)

    def _states_at(self, rows: Ints) -> Iterator[Any]:
        states = decode_lazy(pick(self._states, rows))
        is_empty = list(map(is_, states, repeat(_NO_VALUES)))
        if not any(is_empty):
            return iter(states)
        aggregator = self._aggregator
        initialize = aggregator.builder if type(aggregator) is Fold else aggregator.initialize
        if all(is_empty):
            return starmap(initialize, repeat((), len(states)))
        return (
            initialize() if empty else state for state, empty in zip(states, is_empty, strict=True)
        )

    def _merged(self, target: int, original: int) -> Any:
        """Return the state of two windows that merge; the blocks of lists are not read."""
        state, other = self._state(target), self._state(original)
        if type(state) is ListTail or type(other) is ListTail:
            return joined_lists(state, other)
        return called(self._aggregator, "merge", state, other)

    def _state(self, row: int) -> Any:
        state = self._states[row]
        if state is _NO_VALUES:
            state = self._states[row] = called(self._aggregator, "initialize")
        elif type(state) in (PickledValue, ColumnValue):
            state = self._states[row] = state.value()
        return state


def _adder_without_arrival(
    aggregator: Aggregator[Any, Any, Any],
) -> Callable[[Any, Any], Any] | None:
    """Return the function that adds a value to a state; ``None`` if it needs the arrival."""
    if type(aggregator) is Fold:
        return aggregator.folder
    return aggregator.add if type(aggregator).add_at is Aggregator.add_at else None


def _field_objects(aggregator: Aggregator[Any, Any, Any], groups: Groups) -> list[Any] | None:
    """Return the aggregator's field of each value; ``None`` if the field is not in a column."""
    field = aggregator.column_read if isinstance(aggregator, FieldAggregator) else None
    return None if field is None else groups.column_objects(aggregator)
