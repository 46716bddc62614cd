"""Lateness: late values and closed windows, and the counts of late values.

Both paths use `is_behind` and `has_closed`, with integers or int64 arrays.
All times are µs since the Unix epoch.
"""

from __future__ import annotations

from typing import overload

import numpy as np

from flow.columns.arrays import Ints, Mask
from flow.keyed.logic import Counted, round_up
from flow_windowing.contract.metadata import LateReason

REASONS: tuple[LateReason | None, ...] = (None, *LateReason)
"""The reasons for which a value is rejected, by number; 0 stands for a value that is not."""


@overload
def is_behind(timestamp_us: int, watermark_us: int) -> bool: ...
@overload
def is_behind(timestamp_us: Ints, watermark_us: Ints) -> Mask: ...
def is_behind(timestamp_us: int | Ints, watermark_us: int | Ints) -> bool | Mask:
    """Return True if a value is behind the watermark; without grace, such a value is late.

    A value with a timestamp equal to the watermark is on time.
    """
    return timestamp_us < watermark_us


@overload
def has_closed(closed_at_us: int, watermark_us: int) -> bool: ...
@overload
def has_closed(closed_at_us: Ints, watermark_us: Ints) -> Mask: ...
def has_closed(closed_at_us: int | Ints, watermark_us: int | Ints) -> bool | Mask:
    """Return True if a window has closed; a value for such a window is late even with grace.

    Args:
        closed_at_us: the least watermark at which the window is closed, grace included.
        watermark_us: the watermark.
    """
    return closed_at_us <= watermark_us


def counted_late(late_by_us: Ints, sources: Ints | None = None) -> list[Counted]:
    """Return the counts of late values by lateness, rounded up, and source partition.

    Args:
        late_by_us: the watermark less the timestamp of each value, int64 µs, positive.
        sources: the number of the source partition of each value, -1 where it is not known.
    """
    known = np.full(len(late_by_us), -1) if sources is None else sources
    pairs = np.stack([round_up(late_by_us), known])
    (late, numbers), counts = np.unique(pairs, axis=1, return_counts=True)
    return [
        Counted("late_by", count, late_by_us=lateness_us, source=number)
        for lateness_us, number, count in zip(
            late.tolist(), numbers.tolist(), counts.tolist(), strict=True
        )
    ]
