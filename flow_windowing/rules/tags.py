"""Tags of the values that a join by time retains: arrival number, side and mark in one number."""

from __future__ import annotations

from typing import TypeVar

from flow.columns.arrays import Ints

N = TypeVar("N", int, Ints)


def tag_of(number: N, side: N, mark: N) -> N:
    """Return arrival number, side and mark of a retained value as one number.

    The mark is 0 or 1; see `JoinValue.is_marked`. Tags sort by arrival number. Segments and
    snapshots hold them.

    >>> tag_of(5, 1, 1), number_of(23), side_of(23), mark_of(23)
    (23, 5, 1, 1)
    """
    return number * 4 + side * 2 + mark


def number_of(tag: N) -> N:
    """Return the arrival number in a tag."""
    return tag >> 2


def side_of(tag: N) -> N:
    """Return the side in a tag."""
    return tag >> 1 & 1


def mark_of(tag: N) -> N:
    """Return the mark in a tag."""
    return tag & 1
