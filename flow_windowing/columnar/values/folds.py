"""Folding values into many states, with as little as can be between two calls of a function."""

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
"""Up to so many values are added in sweeps; more of them keep `reduce` busy long enough."""


class FailedAt(Exception):
    """A function raised.

    Attributes:
        at: which item it was called with.
        error: what it raised.
    """

    def __init__(self, at: int, error: BaseException) -> None:
        self.at = at
        self.error = error
        super().__init__(at, error)


def folded(
    add: Callable[[Any, Any], Any], states: Sequence[Any], items: Sequence[Any], starts: Ints
) -> list[Any]:
    """Each state after the items that are added to it, in their order.

    The first items of all states are added in one sweep, then the second ones, and so on, so that
    a state with one item or two costs hardly more than the calls. A state with many items is
    dealt with by itself.

    Args:
        add: makes a new state of a state and an item.
        states: the states.
        items: the items, those of each state together.
        starts: where the items of each state begin.

    Raises:
        FailedAt: when `add` raised.

    >>> folded(lambda total, item: total + item, [0, 10], [1, 2, 3], np.array([0, 2]))
    [3, 13]
    """
    after = list(states)
    counts = np.diff(starts, append=len(items))
    for nth in range(_FEW):
        chosen = np.flatnonzero((counts > nth) & (counts <= _FEW))
        if not len(chosen):
            break
        places = starts[chosen] + nth
        made: list[Any] = []
        try:
            made.extend(map(add, pick(after, chosen), pick(items, places)))
        except RAISED as error:
            raise FailedAt(int(places[len(made)]), error) from error
        for state, one in zip(chosen.tolist(), made, strict=True):
            after[state] = one
    for state in np.flatnonzero(counts > _FEW).tolist():
        start = int(starts[state])
        end = start + int(counts[state])
        remaining = iter(items[start:end])
        try:
            after[state] = reduce(add, remaining, after[state])
        except RAISED as error:
            raise FailedAt(end - length_hint(remaining) - 1, error) from error
    return after
