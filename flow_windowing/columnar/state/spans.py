"""The bounds of open windows that follow from the values in them, not from the windows' ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from flow.columns.arrays import Ints, Mask
from flow.instants import NEVER

Merged: TypeAlias = npt.NDArray[np.object_]
"""Tuples of ids, in order."""


@dataclass
class Spans:
    """The bounds of windows, a row each, and what became part of them.

    Attributes:
        first_us: the least timestamp in each.
        last_us: the greatest.
        merged: the ids of the windows that have become part of each.
    """

    first_us: Ints
    last_us: Ints
    merged: Merged

    @classmethod
    def fresh(cls, count: int) -> Spans:
        """Those of so many windows that have had no value."""
        merged = np.empty(count, np.object_)
        merged.fill(())
        return cls(np.full(count, NEVER), np.full(count, -NEVER), merged)

    def take(self, rows: Ints | Mask) -> Spans:
        """Some of them, in the order given."""
        return Spans(self.first_us[rows], self.last_us[rows], self.merged[rows])

    def followed_by(self, other: Spans) -> Spans:
        """These, and others after them."""
        return Spans(
            np.concatenate([self.first_us, other.first_us]),
            np.concatenate([self.last_us, other.last_us]),
            np.concatenate([self.merged, other.merged]),
        )

    def put(self, rows: Ints, others: Spans) -> None:
        """Let some of them be others."""
        self.first_us[rows] = others.first_us
        self.last_us[rows] = others.last_us
        self.merged[rows] = others.merged

    def widen(self, rows: Ints, first_us: Ints, last_us: Ints) -> None:
        """Let some of them, no row twice, reach this far."""
        self.first_us[rows] = np.minimum(self.first_us[rows], first_us)
        self.last_us[rows] = np.maximum(self.last_us[rows], last_us)


def merged_of(ids: Sequence[Any]) -> Merged:
    """A column of tuples of ids."""
    column = np.empty(len(ids), np.object_)
    for row, one in enumerate(ids):
        column[row] = tuple(one)
    return column
