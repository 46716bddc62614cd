"""The lag of watermarks behind system time, over the keys that an epoch touched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple


class WatermarkLag(NamedTuple):
    """The lag of a step's watermarks behind system time, in seconds, rounded up to two digits.

    Only keys that the epoch touched count: those with values, and those whose windows closed. The
    lag has the wait of the clock, and the delay of the data.

    Attributes:
        least: the least lag of a key; 0 for a watermark that is ahead of system time.
        median: the median lag.
        greatest: the greatest lag.
        keys: the number of keys.
    """

    least: float
    median: float
    greatest: float
    keys: int


def watermark_lags(lags: Mapping[tuple[str, int], int]) -> dict[str, WatermarkLag]:
    """Return the lag of each step.

    Args:
        lags: the number of keys, by (step, lag in µs).

    >>> watermark_lags({("hourly", 1_000_000): 2, ("hourly", 5_000_000): 1})
    {'hourly': WatermarkLag(least=1.0, median=1.0, greatest=5.0, keys=3)}
    """
    by_step: dict[str, Counter[int]] = {}
    for (step_id, lag_us), count in lags.items():
        by_step.setdefault(step_id, Counter())[lag_us] += count
    return {step_id: _lag(counts) for step_id, counts in by_step.items()}


def _lag(counts: Counter[int]) -> WatermarkLag:
    keys = counts.total()
    passed, median_us = 0, 0
    for lag_us, count in sorted(counts.items()):
        passed += count
        if 2 * passed >= keys:
            median_us = lag_us
            break
    return WatermarkLag(min(counts) / 1e6, median_us / 1e6, max(counts) / 1e6, keys)
