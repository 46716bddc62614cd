"""The open windows and buffered values in the state of keys, counted as state is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias


class StateCounts(NamedTuple):
    """The number of open windows and of buffered values in state.

    Attributes:
        windows: the number of open windows.
        values: the number of values that are retained as they are: values that wait for the
            watermark, and values that a join by time retains for partners. Values that have become
            part of an accumulator of a window do not count.

    >>> StateCounts.total([StateCounts(1, 20), StateCounts(2, 0)])
    StateCounts(windows=3, values=20)
    """

    windows: int = 0
    values: int = 0

    @classmethod
    def total(cls, counts: Iterable[tuple[int, int]]) -> StateCounts:
        """Return the sum of counts, or of pairs of the same numbers."""
        return cls(*map(sum, zip(*counts, strict=True)))


StateCounter: TypeAlias = "Callable[[Any], StateCounts | tuple[int, int]]"
"""A function that counts the open windows and buffered values in the snapshot of a key's logic. A
pair of the two numbers stands for a `StateCounts`."""
