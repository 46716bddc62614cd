"""How late the late values of a step were, and the longer wait that most of them needed.

What is kept is a count for each lateness, rounded up to two digits, so that it stays small.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flow.engine.chunks import Positions

ENOUGH = 0.99
"""The share of late values that a longer wait should have let in."""


def rounded_up(late_by_us: Positions) -> Positions:
    """Return durations rounded up to two decimal digits.

    Args:
        late_by_us: int64 µs, more than none.

    >>> rounded_up(np.array([7, 123, 99_100])).tolist()
    [7, 130, 100000]
    """
    digits = np.floor(np.log10(np.maximum(late_by_us, 1).astype(np.float64))).astype(np.int64)
    unit = 10 ** np.maximum(digits - 1, 0)
    rounded: Positions = -(-late_by_us // unit) * unit
    return rounded


def wait_needed_us(late_by_us: Mapping[int, int], share: float = ENOUGH) -> int:
    """Return by how much longer a wait would have been enough for a share of late values.

    Args:
        late_by_us: how many values were late by each duration, in microseconds.
        share: the share of them, from 0 to 1.

    >>> wait_needed_us({100: 98, 5_000: 1, 90_000: 1})
    5000
    """
    needed = share * sum(late_by_us.values())
    passed = 0
    for duration_us, count in sorted(late_by_us.items()):
        passed += count
        if passed >= needed:
            return duration_us
    return 0
