"""Due times: the times at which the logic of a key is called although no value arrives.

A due time is an int64 in microseconds. A key that is due while source partitions that are behind
*hold* its watermark has a due time in a separate range, far before any date: the range encodes the
watermark that the key waits for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flow.columns.arrays import Ints, Mask
from flow.instants import NEVER

_HELD = -(1 << 61)
_HELD_SPAN = 1 << 60


def held_due_us(watermark_us: int) -> int:
    """Return the due time of a key that waits until its step's bound reaches `watermark_us`."""
    return _HELD + max(-_HELD_SPAN + 1, min(watermark_us, _HELD_SPAN - 1))


def held_watermark_us(due_us: int) -> int | None:
    """Return the watermark that the due time of a held key encodes; ``None`` for other due times.

    The inverse of `held_due_us`.
    """
    is_held = abs(due_us - _HELD) < _HELD_SPAN
    return due_us - _HELD if is_held else None


def split_dues(dues: Ints) -> tuple[Ints, Ints]:
    """Split due times into system times and watermarks of held keys.

    Args:
        dues: due times, int64 µs, shape (keys,).

    Returns:
        Two arrays of that shape; the first is `NEVER` for held keys, the second for the others.
    """
    held_us = dues - held_due_us(0)
    is_held = np.abs(held_us) < held_due_us(0) // -2
    return np.where(is_held, NEVER, dues), np.where(is_held, held_us, NEVER)


class DueLimit(NamedTuple):
    """Upper bounds of the due times that an epoch has reached.

    Attributes:
        time_us: the greatest due time that is reached, inclusive.
        bound_us: the greatest watermark that the step may use, inclusive, for held keys.
    """

    time_us: int
    bound_us: int = NEVER

    def includes(self, due_us: int) -> bool:
        """Return True if a key with this due time is due."""
        held_us = held_watermark_us(due_us)
        return due_us <= self.time_us if held_us is None else held_us <= self.bound_us

    def reached_segments(self, dues: Ints, held: Ints) -> Mask:
        """Return the mask of segments with at least one key whose due time is reached.

        Args:
            dues: the least due time in each segment, int64 µs, shape (segments,).
            held: the least watermark at which a held key of each segment is due, of the same shape;
                `NEVER` for a segment without a held key.
        """
        is_released: Mask = (held <= self.bound_us) & (held < NEVER)
        return is_released | (dues <= self.time_us)
