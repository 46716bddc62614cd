"""Columns of accumulators, and windows that are runs of consecutive groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from flow.columns.arrays import Ints, Mask

Column: TypeAlias = npt.NDArray[Any]

Combine: TypeAlias = Callable[[list[Column], list[Column]], list[Column]]
"""A function that combines the columns of two parts of the same windows, row by row."""


def take_rows(columns: list[Column], rows: Ints | Mask) -> list[Column]:
    """Return the given rows of columns."""
    return [column[rows] for column in columns]


class GroupRuns(NamedTuple):
    """Windows that are runs of consecutive groups of values.

    Attributes:
        first: the first group of each window.
        counts: the number of groups in each window, at least 1.
    """

    first: Ints
    counts: Ints

    def combine(self, parts: list[Column], combine: Combine) -> list[Column]:
        """Return the columns of windows, combined from the columns of groups.

        The method makes the columns of all runs of two groups, then of four, and so on. A window
        combines one run for each bit of its number of groups, so the cost is logarithmic in the
        longest window.
        """
        windows = take_rows(parts, self.first)
        next_group, remaining, reach = self.first + 1, self.counts - 1, 1
        most = int(remaining.max(initial=0))
        while True:
            chosen = np.flatnonzero(remaining & reach)
            combined = combine(take_rows(windows, chosen), take_rows(parts, next_group[chosen]))
            for column, new in zip(windows, combined, strict=True):
                column[chosen] = new
            next_group[chosen] += reach
            if most < 2 * reach:
                return windows
            parts = combine([part[:-reach] for part in parts], [part[reach:] for part in parts])
            reach *= 2
