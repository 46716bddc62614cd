"""Due times: when the logic of a key is to be called without a value of its own.

A due time is an int64 in microseconds. A key that is due, but whose watermark is *held* by source
partitions that are behind, has a due time in a range of its own, far before any date.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flow.columns.arrays import Ints, Mask
from flow.instants import NEVER

_HELD = -(1 << 61)
_HELD_SPAN = 1 << 60


def held_until(watermark_us: int) -> int:
    """Return the due time of a key that waits until its step's bound reaches `watermark_us`."""
    return _HELD + max(-_HELD_SPAN + 1, min(watermark_us, _HELD_SPAN - 1))


def held_at_us(due_us: int) -> int | None:
    """Return the watermark that a held key waits for; ``None`` for a key that is not held."""
    waits = abs(due_us - _HELD) < _HELD_SPAN
    return due_us - _HELD if waits else None


def split_dues(dues: Ints) -> tuple[Ints, Ints]:
    """Split due times into system times and watermarks of held keys.

    Args:
        dues: due times, int64 µs, shape (keys,).

    Returns:
        Two arrays of that shape; the first is `NEVER` for held keys, the second for the others.
    """
    held_us = dues - held_until(0)
    is_held = np.abs(held_us) < held_until(0) // -2
    return np.where(is_held, NEVER, dues), np.where(is_held, held_us, NEVER)


class DueLimit(NamedTuple):
    """The due times that an epoch has reached.

    Attributes:
        time_us: the greatest due time that is reached.
        bound_us: the greatest watermark that the step may go by, for held keys.
    """

    time_us: int
    bound_us: int = NEVER

    def reached(self, due_us: int) -> bool:
        """Return True if a key with this due time is to be called."""
        held_us = held_at_us(due_us)
        return due_us <= self.time_us if held_us is None else held_us <= self.bound_us

    def reached_by(self, dues: Ints, held: Ints) -> Mask:
        """Return a mask of the segments that hold a key which is to be called.

        Args:
            dues: the least due time of each segment, int64 µs, shape (segments,).
            held: the least watermark that a held key of each waits for, of the same shape.
        """
        passed: Mask = (held <= self.bound_us) & (held < NEVER)
        return passed | (dues <= self.time_us)
