"""Exact sums of floats by group, in columns; see `flow_windowing.aggregates.exact_totals`.

A total is the exact sum of two floats: `high` is the total rounded to the nearest float, `low` the
remainder. Two floats hold any total of up to about 106 bits, and most sums of measurements have
fewer. For a longer total the functions here return ``None``, and the caller uses the totals of
`exact_totals` instead. A `high` that is infinite or NaN is the sum of all values that were infinite
or NaN.

Values are cut into slices of bits that add up without rounding, in any order (S. M. Rump, T. Ogita
and S. Oishi, Accurate floating-point summation I, SIAM J. Sci. Comput. 31(1), 2008). The sums of
the slices are added with their rounding errors (D. E. Knuth, The Art of Computer Programming 2,
4.2.2).
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
"""Values with a lower exponent have subnormal slices, whose sums are not exact."""


class Totals(NamedTuple):
    """Exact totals, in two columns.

    Attributes:
        high: each total, rounded.
        low: the remainder of each total.
    """

    high: Reals
    low: Reals


def group_totals(values: Reals, starts: Ints) -> Totals | None:
    """Return the exact total of each group, ``None`` when two floats cannot hold one of them.

    Args:
        values: the values of all groups, one group after the other.
        starts: the index of each group's first value, ascending; no group is empty.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(values)
        if finite.all():
            return _finite_totals(values, starts)
        totals = _finite_totals(np.where(finite, values, 0.0), starts)
        not_finite = np.add.reduceat(np.where(finite, 0.0, values), starts)
        return None if totals is None else _with_not_finite(totals, not_finite)


def plus(left: Totals, right: Totals) -> Totals | None:
    """Add totals row by row; return ``None`` when two floats cannot hold one of the sums."""
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(left.high) & np.isfinite(right.high)
        parts = [left.high, right.high, left.low, right.low]
        if finite.all():
            return _add_parts(parts)
        sums = _add_parts([np.where(finite, part, 0.0) for part in parts])
        not_finite = np.where(np.isfinite(left.high), 0.0, left.high)
        not_finite += np.where(np.isfinite(right.high), 0.0, right.high)
        return None if sums is None else _with_not_finite(sums, np.where(finite, 0.0, not_finite))


def quotients(totals: Totals, counts: Ints) -> tuple[Reals, Mask]:
    """Return each total divided by its count, and the mask of correctly rounded quotients.

    A quotient outside the mask may be rounded twice.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        divisor = counts.astype(np.float64)
        scaled = totals.high / divisor
        remainder = np.where(np.isfinite(scaled), _remainder(totals, scaled, divisor), 0.0)
        quotient = scaled + remainder / divisor
        remainder = np.abs(_remainder(totals, quotient, divisor))
        spacing = np.spacing(np.abs(quotient)) * divisor
        certain = remainder * 2 < spacing * (1 - 1e-9)
        # Just below a power of 2 the next float is only half as far away.
        is_power = np.abs(np.frexp(quotient)[0]) == 0.5
        certain &= (~is_power | (remainder * 4 < spacing)) & (divisor < 1 << 26)
        # Division by a power of 2 rounds no more than once.
        is_power_count = (counts & (counts - 1)) == 0
        certain |= is_power_count
        certain &= (np.abs(quotient) < 1e290) & (np.abs(quotient) > 1e-290)
        certain |= (totals.high == 0) & (totals.low == 0)
        certain |= ~np.isfinite(totals.high)
    return np.where(is_power_count, scaled, quotient), certain


def _remainder(totals: Totals, quotient: Reals, divisor: Reals) -> Reals:
    """Return total - quotient * divisor, from exact products of half as many digits each."""
    factor = 134217729.0 * quotient
    upper = factor - (factor - quotient)
    return (totals.high - upper * divisor) - (quotient - upper) * divisor + totals.low


def _finite_totals(values: Reals, starts: Ints) -> Totals | None:
    """Return the exact total of each group of finite values; see `group_totals`."""
    longest = int(np.diff(starts, append=len(values)).max())
    if longest == 1:
        return Totals(values[starts] + 0.0, np.zeros(len(starts)))
    spare = math.ceil(math.log2(longest)) + 1
    slices: list[Reals] = []
    remainder = values
    while True:
        greatest = float(np.abs(remainder).max())
        if greatest == 0.0:
            break
        exponent = math.frexp(greatest)[1] + spare
        if len(slices) == _MOST_SLICES or not _LEAST_EXPONENT < exponent < 1023:
            return None
        unit = math.ldexp(1.0, exponent)
        part = (unit + remainder) - unit
        slices.append(np.add.reduceat(part, starts))
        remainder = remainder - part
    if not slices:
        return Totals(np.zeros(len(starts)), np.zeros(len(starts)))
    return _add_parts(slices)


def _add_parts(parts: list[Reals]) -> Totals | None:
    """Return the exact sum of columns, row by row, ``None`` when two floats cannot hold one."""
    parts = [part.copy() for part in parts]
    if len(parts) == 1:
        return Totals(parts[0] + 0.0, np.zeros(len(parts[0])))
    for _ in range(len(parts)):
        for index in range(len(parts) - 1, 0, -1):
            parts[index - 1], parts[index] = _two_sum(parts[index - 1], parts[index])
    if any(part.any() for part in parts[2:]) or not np.isfinite(parts[0]).all():
        return None
    high, low = _two_sum(parts[0], parts[1])
    return Totals(high + 0.0, low + 0.0)


def _two_sum(left: Reals, right: Reals) -> tuple[Reals, Reals]:
    """Return the rounded sum and its rounding error."""
    total = left + right
    rounded_right = total - left
    return total, (left - (total - rounded_right)) + (right - rounded_right)


def _with_not_finite(totals: Totals, sums: Reals) -> Totals:
    """Return totals, of which those with values that are not finite are the sums of these values.

    Args:
        totals: the totals of finite values.
        sums: the sums of values that are not finite; 0.0 for a total without such values.
    """
    has_sum = sums != 0.0
    return Totals(np.where(has_sum, sums, totals.high), np.where(has_sum, 0.0, totals.low))
