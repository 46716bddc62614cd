"""Counts of late values, by how late they were and the source partition they came from."""

from __future__ import annotations

import numpy as np

from flow.columns.arrays import Ints
from flow.keyed.lateness import round_up
from flow.keyed.logic import Counted


def counted_late(late_by_us: Ints, sources: Ints | None = None) -> list[Counted]:
    """Return what to count of late values.

    Args:
        late_by_us: by how much each was behind the watermark, int64 µs, more than none.
        sources: the number of the source partition that each came from, -1 where it is not known.
    """
    came_from = np.full(len(late_by_us), -1) if sources is None else sources
    each = np.stack([round_up(late_by_us), came_from])
    (late, numbers), counts = np.unique(each, axis=1, return_counts=True)
    return [
        Counted("late_by", count, late_by_us=one, source=number)
        for one, number, count in zip(late.tolist(), numbers.tolist(), counts.tolist(), strict=True)
    ]
