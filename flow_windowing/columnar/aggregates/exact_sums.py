"""Exact sums of floats by group, in columns; see `flow_windowing.aggregates.exact_totals`.

A total is kept as two floats, `high` and `low`, whose exact sum it is: `high` is the total rounded
to the nearest float, `low` what is left. Two floats hold any total that spans no more than about
106 bits, which sums of like quantities do; where one does not, the functions here say so, and the
caller works with whole numbers instead. A `high` that is not finite stands for all that was
infinite or not a number.

Values are cut into slices of bits that add up without rounding, in any order (S. M. Rump, T. Ogita
and S. Oishi, Accurate floating-point summation I, SIAM J. Sci. Comput. 31(1), 2008); what the
slices give is put together by additions that keep their rounding errors (D. E. Knuth, The Art of
Computer Programming 2, 4.2.2).
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from flow.columns.arrays import Ints, Mask

Reals: TypeAlias = npt.NDArray[np.float64]

_MOST_SLICES = 6
_LEAST_EXPONENT = -960
"""Values below it have slices that are no normal numbers."""


class Totals(NamedTuple):
    """Exact totals.

    Attributes:
        high: each total, rounded.
        low: what is left of it.
    """

    high: Reals
    low: Reals


def group_totals(values: Reals, starts: Ints) -> Totals | None:
    """The exact total of each run of values; ``None`` when two floats cannot hold one of them.

    Args:
        values: the values of all groups, one group after the other.
        starts: where each group starts; none is empty.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(values)
        if finite.all():
            return _finite_totals(values, starts)
        found = _finite_totals(np.where(finite, values, 0.0), starts)
        beyond = np.add.reduceat(np.where(finite, 0.0, values), starts)
        return None if found is None else _with_beyond(found, beyond)


def plus(left: Totals, right: Totals) -> Totals | None:
    """The totals of two columns, row by row; ``None`` when two floats cannot hold one of them."""
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(left.high) & np.isfinite(right.high)
        parts = [left.high, right.high, left.low, right.low]
        if finite.all():
            return _put_together(parts)
        found = _put_together([np.where(finite, part, 0.0) for part in parts])
        beyond = np.where(np.isfinite(left.high), 0.0, left.high)
        beyond += np.where(np.isfinite(right.high), 0.0, right.high)
        return None if found is None else _with_beyond(found, np.where(finite, 0.0, beyond))


def quotients(totals: Totals, counts: Ints) -> tuple[Reals, Mask]:
    """Each total divided by its count, rounded once, and where that is certain."""
    with np.errstate(invalid="ignore", over="ignore"):
        divisor = counts.astype(np.float64)
        scaled = totals.high / divisor
        left = np.where(np.isfinite(scaled), _left_over(totals, scaled, divisor), 0.0)
        quotient = scaled + left / divisor
        left = np.abs(_left_over(totals, quotient, divisor))
        room = np.spacing(np.abs(quotient)) * divisor
        certain = left * 2 < room * (1 - 1e-9)
        # Just below a power of 2 the next float is only half as far away.
        power = np.abs(np.frexp(quotient)[0]) == 0.5
        certain &= (~power | (left * 4 < room)) & (divisor < 1 << 26)
        # To divide by a power of 2 is to round no more than once.
        halves = (counts & (counts - 1)) == 0
        certain |= halves
        certain &= (np.abs(quotient) < 1e290) & (np.abs(quotient) > 1e-290)
        certain |= (totals.high == 0) & (totals.low == 0)
        certain |= ~np.isfinite(totals.high)
    return np.where(halves, scaled, quotient), certain


def _left_over(totals: Totals, quotient: Reals, divisor: Reals) -> Reals:
    """What a total has beyond quotient times divisor, by products of half as many digits each."""
    factor = 134217729.0 * quotient
    upper = factor - (factor - quotient)
    return (totals.high - upper * divisor) - (quotient - upper) * divisor + totals.low


def _finite_totals(values: Reals, starts: Ints) -> Totals | None:
    longest = int(np.diff(starts, append=len(values)).max())
    if longest == 1:
        return Totals(values[starts] + 0.0, np.zeros(len(starts)))
    spare = math.ceil(math.log2(longest)) + 1
    slices: list[Reals] = []
    left = values
    while True:
        greatest = float(np.abs(left).max())
        if greatest == 0.0:
            break
        exponent = math.frexp(greatest)[1] + spare
        if len(slices) == _MOST_SLICES or not _LEAST_EXPONENT < exponent < 1023:
            return None
        unit = math.ldexp(1.0, exponent)
        part = (unit + left) - unit
        slices.append(np.add.reduceat(part, starts))
        left = left - part
    if not slices:
        return Totals(np.zeros(len(starts)), np.zeros(len(starts)))
    return _put_together(slices)


def _put_together(parts: list[Reals]) -> Totals | None:
    """Two floats for the exact sum of several, row by row."""
    parts = [part.copy() for part in parts]
    if len(parts) == 1:
        return Totals(parts[0] + 0.0, np.zeros(len(parts[0])))
    for _ in range(len(parts)):
        for at in range(len(parts) - 1, 0, -1):
            parts[at - 1], parts[at] = _two_sum(parts[at - 1], parts[at])
    if any(part.any() for part in parts[2:]) or not np.isfinite(parts[0]).all():
        return None
    high, low = _two_sum(parts[0], parts[1])
    return Totals(high + 0.0, low + 0.0)


def _two_sum(left: Reals, right: Reals) -> tuple[Reals, Reals]:
    """The rounded sum, and the rounding error."""
    total = left + right
    came = total - left
    return total, (left - (total - came)) + (right - came)


def _with_beyond(totals: Totals, beyond: Reals) -> Totals:
    is_beyond = beyond != 0.0
    return Totals(np.where(is_beyond, beyond, totals.high), np.where(is_beyond, 0.0, totals.low))
