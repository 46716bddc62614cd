"""Arithmetic on arrays that are divided into runs, such as the rows of each key."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_MAX_COMBINED = 1 << 62
"""Upper bound of a run number and a value combined in one int64."""


def starts_of(counts: Ints) -> Ints:
    """Return the index of the first row of each run, given the lengths of the runs.

    >>> starts_of(np.array([2, 1, 3])).tolist()
    [0, 2, 3]
    """
    ends = np.cumsum(counts)
    return ends - counts


def run_starts(*columns: Ints) -> Ints:
    """Return the index of the first row of each run of rows that are equal in all columns.

    >>> run_starts(np.array([4, 4, 7, 9, 9])).tolist()
    [0, 2, 3]
    >>> run_starts(np.array([4, 4, 7, 9, 9]), np.array([1, 2, 2, 3, 3])).tolist()
    [0, 1, 2, 3]
    """
    first, *others = columns
    if not len(first):
        return np.empty(0, np.int64)
    is_start = first[1:] != first[:-1]
    for column in others:
        is_start |= column[1:] != column[:-1]
    return np.concatenate([[0], np.flatnonzero(is_start) + 1])


def numbered(counters: Ints, slots: Ints) -> Ints:
    """Number rows from the counter of their slot on, and advance the counters.

    Args:
        counters: the next number of each slot, int64, which is changed.
        slots: the slot of each row, sorted.

    >>> counters = np.array([5, 0])
    >>> numbered(counters, np.array([0, 0, 1])).tolist(), counters.tolist()
    ([5, 6, 0], [7, 1])
    """
    starts = run_starts(slots)
    counts = np.diff(starts, append=len(slots))
    of_runs = slots[starts]
    numbers = ranges(counters[of_runs], counts)
    counters[of_runs] += counts
    return numbers


def running_max(values: Ints, run_of_row: Ints) -> Ints:
    """Return the running maximum of each run.

    Args:
        values: int64, shape (rows,).
        run_of_row: the number of each row's run, from 0, sorted, shape (rows,).

    >>> running_max(np.array([3, 1, 5, -2, 4, 0]), np.array([0, 0, 0, 1, 1, 1])).tolist()
    [3, 3, 5, -2, 4, 4]
    """
    if not len(values):
        return values
    least = int(values.min())
    span = int(values.max()) - least + 1
    if span * (int(run_of_row[-1]) + 1) < _MAX_COMBINED:
        combined = (values - least) + run_of_row * span
        return np.maximum.accumulate(combined) - run_of_row * span + least
    # The values differ too much to be combined with run numbers, but their ranks do not.
    distinct, ranks = np.unique(values, return_inverse=True)
    ranks = ranks.reshape(-1).astype(np.int64)
    return distinct[running_max(ranks, run_of_row)]


def order_by(runs: Ints, values: Ints) -> Ints:
    """Return the stable permutation that sorts rows by (run, value).

    Rows that consist of a few sorted stretches take linear time.

    >>> order_by(np.array([1, 0, 1, 0]), np.array([5, 9, 2, 9])).tolist()
    [1, 3, 2, 0]
    """
    if not len(values):
        return np.empty(0, np.int64)
    least = int(values.min())
    span = int(values.max()) - least + 1
    if span * (int(runs.max()) + 1) < _MAX_COMBINED:
        return np.argsort(runs * span + (values - least), kind="stable")
    return np.lexsort((values, runs))


def ranges(firsts: Ints, counts: Ints) -> Ints:
    """Return the concatenation of `range(firsts[i], firsts[i] + counts[i])`.

    >>> ranges(np.array([5, 1]), np.array([2, 3])).tolist()
    [5, 6, 1, 2, 3]
    """
    within = np.arange(int(counts.sum())) - np.repeat(starts_of(counts), counts)
    return np.repeat(firsts, counts) + within


def distinct(values: Ints) -> Ints:
    """Return the distinct numbers, sorted.

    >>> distinct(np.array([7, 4, 7, 5])).tolist()
    [4, 5, 7]
    """
    if not len(values):
        return values
    least = int(values.min())
    span = int(values.max()) - least + 1
    if span > 2 * len(values) + 64:
        return np.unique(values)
    is_present = np.zeros(span, np.bool_)
    is_present[values - least] = True
    return np.flatnonzero(is_present) + least


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
