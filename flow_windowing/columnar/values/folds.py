"""Folds of items into many states, with little work between two calls of a user's function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import length_hint
from typing import Any

import numpy as np

from flow.columns.arrays import Ints
from flow.columns.chunks import pick
from flow.errors import RAISED

_FEW = 8
"""The greatest number of items of a state that is folded in sweeps; more are faster in `reduce`."""


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
