"""The order of test files in a run of several processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

WEIGHTS = {"cluster": 5, "slow": 5, "spark": 1}
"""Markers of tests that take long, and how they compare: roughly, in units of two seconds."""


def longest_files_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return tests with those of the files first that take longest, by the markers of their tests.

    A process takes the next file when it has done its own. With the short files at the end, none
    is at a long one when there is nothing left for the others. Tests of a file stay in order.
    """
    weights = Counter[object]()
    for item in items:
        weights[item.path] += max(
            (weight for name, weight in WEIGHTS.items() if item.get_closest_marker(name)), default=0
        )
    return sorted(items, key=lambda item: (-weights[item.path], item.path))
