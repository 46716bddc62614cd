"""Rounding of lateness, so that few counters cover all late values."""

from __future__ import annotations

import numpy as np

from flow.columns.arrays import Ints


def round_up(late_by_us: Ints) -> Ints:
    """Return durations rounded up to two decimal digits.

    Args:
        late_by_us: positive durations, int64 µs, shape (rows,).

    >>> round_up(np.array([7, 123, 99_100])).tolist()
    [7, 130, 100000]
    """
    digits = np.floor(np.log10(np.maximum(late_by_us, 1).astype(np.float64))).astype(np.int64)
    unit = 10 ** np.maximum(digits - 1, 0)
    rounded: Ints = -(-late_by_us // unit) * unit
    return rounded
