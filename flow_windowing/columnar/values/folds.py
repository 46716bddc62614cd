"""Folding items into many states with little work between two calls of a user's function."""

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
"""A state with up to this many items is folded in sweeps; for more, one `reduce` is faster."""


class FailedItem(Exception):
    """A failure of the folding function.

    Attributes:
        at: the index of the item that it was called with.
        error: the exception that it raised.
    """

    def __init__(self, at: int, error: BaseException) -> None:
        self.at = at
        self.error = error
        super().__init__(at, error)


def fold_items(
    add: Callable[[Any, Any], Any], states: Sequence[Any], items: Sequence[Any], starts: Ints
) -> list[Any]:
    """Return each state after its items have been added in order.

    A sweep adds the first items of all states, the next sweep the second ones, and so on, so that
    a state with one or two items costs hardly more than the calls. A state with many items is
    folded by itself.

    Args:
        add: makes a new state of a state and an item.
        states: the states, which stay as they are.
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
        made: list[Any] = []
        try:
            made.extend(map(add, pick(after, chosen), pick(items, indices)))
        except RAISED as error:
            raise FailedItem(int(indices[len(made)]), error) from error
        for state, one in zip(chosen.tolist(), made, strict=True):
            after[state] = one
    for state in np.flatnonzero(counts > _FEW).tolist():
        start = int(starts[state])
        end = start + int(counts[state])
        remaining = iter(items[start:end])
        try:
            after[state] = reduce(add, remaining, after[state])
        except RAISED as error:
            raise FailedItem(end - length_hint(remaining) - 1, error) from error
    return after
