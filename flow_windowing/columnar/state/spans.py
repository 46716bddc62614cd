"""The bounds of windows, such as sessions, whose bounds follow from values and not from ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from flow.columns.arrays import Ints, Mask
from flow.instants import NEVER

MergedIds: TypeAlias = npt.NDArray[np.object_]
"""A column of sorted tuples of ids."""


class Bounds(NamedTuple):
    """The bounds of one window, and the ids of the windows merged into it.

    Attributes:
        first_us: the least timestamp in the window.
        last_us: the greatest timestamp in the window.
        merged_ids: the ids of the windows merged into the window, sorted.
    """

    first_us: int
    last_us: int
    merged_ids: tuple[int, ...] = ()

    def with_value(self, time_us: int) -> Bounds:
        """Return the bounds with a value added."""
        return Bounds(min(self.first_us, time_us), max(self.last_us, time_us), self.merged_ids)

    def with_session(self, session_id: int, other: Bounds) -> Bounds:
        """Return the bounds after the session of an id is merged into this session."""
        merged_ids = tuple(sorted({*self.merged_ids, *other.merged_ids, session_id}))
        first_us, last_us = min(self.first_us, other.first_us), max(self.last_us, other.last_us)
        return Bounds(first_us, last_us, merged_ids)


@dataclass
class Spans:
    """The bounds of windows, one window a row, and the ids of the windows merged into them.

    Attributes:
        first_us: the least timestamp in each window, `NEVER` without values.
        last_us: the greatest timestamp in each window, `-NEVER` without values.
        merged_ids: for each window a sorted tuple of the ids of the windows merged into it.
    """

    first_us: Ints
    last_us: Ints
    merged_ids: MergedIds

    @classmethod
    def empty(cls, count: int) -> Spans:
        """Return the bounds of `count` windows without values."""
        merged_ids = np.empty(count, np.object_)
        merged_ids.fill(())
        return cls(np.full(count, NEVER), np.full(count, -NEVER), merged_ids)

    @classmethod
    def of(cls, bounds: Sequence[Bounds]) -> Spans:
        """Return bounds as columns."""
        return cls(
            np.array([one.first_us for one in bounds], np.int64),
            np.array([one.last_us for one in bounds], np.int64),
            merged_ids_column([one.merged_ids for one in bounds]),
        )

    def take(self, rows: Ints | Mask) -> Spans:
        """Return the bounds in the given rows, in the given order."""
        return Spans(self.first_us[rows], self.last_us[rows], self.merged_ids[rows])

    def concat(self, other: Spans) -> Spans:
        """Return these bounds followed by others."""
        return Spans(
            np.concatenate([self.first_us, other.first_us]),
            np.concatenate([self.last_us, other.last_us]),
            np.concatenate([self.merged_ids, other.merged_ids]),
        )

    def replace_rows(self, rows: Ints, others: Spans) -> None:
        """Replace the given rows by others."""
        self.first_us[rows] = others.first_us
        self.last_us[rows] = others.last_us
        self.merged_ids[rows] = others.merged_ids

    def widen(self, rows: Ints, first_us: Ints, last_us: Ints) -> None:
        """Widen the bounds in the given rows, which are distinct, to include these timestamps."""
        self.first_us[rows] = np.minimum(self.first_us[rows], first_us)
        self.last_us[rows] = np.maximum(self.last_us[rows], last_us)


def merged_ids_column(ids: Sequence[Any]) -> MergedIds:
    """Return a column of tuples; `np.array` would make a matrix of tuples of equal length."""
    column = np.empty(len(ids), np.object_)
    for row, of_row in enumerate(ids):
        column[row] = tuple(of_row)
    return column
