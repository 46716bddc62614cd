"""How late values are, as windowing steps report it."""

from __future__ import annotations

import numpy as np

from flow.engine.lateness import rounded_up
from flow.operators.logic import Counted
from flow.operators.shards import Ints


def counted_late(late_by_us: Ints) -> list[Counted]:
    """Return what to count of late values.

    Args:
        late_by_us: by how much each was behind the watermark, int64 µs, more than none.
    """
    found, counts = np.unique(rounded_up(late_by_us), return_counts=True)
    return [
        Counted("late_by", count, late_by_us=one)
        for one, count in zip(found.tolist(), counts.tolist(), strict=True)
    ]
