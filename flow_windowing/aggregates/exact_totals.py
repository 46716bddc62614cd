"""Exact totals of numbers, independent of the order and the parts in which numbers are added.

A sum of floats that is rounded at each step depends on the order of the steps, so a merged window
could have another total than one window with the same values. A total here is exact, and is rounded
once, when it is read: the sum is that of `math.fsum`.

A total is immutable and of one of four types: `int`; `Floats`, for floats and ints added to them;
`decimal.Decimal`; `datetime.timedelta`. Ints may be added to floats and to Decimals; other types
cannot be added to each other, as in Python.

An exact total of floats is a multiple of 2 to the power of minus `scale`. Every finite float is
such a multiple, so the numerator has no more bits than lie between the largest and the smallest bit
ever added: at most about 2,100 bits, below 100 for most data.
"""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from numbers import Integral, Rational, Real
from typing import Any, NamedTuple, TypeAlias

from flow.durations import duration_us
from flow.errors import DurationError
from flow_windowing.aggregates.aggregator import UnfitError, described


class Floats(NamedTuple):
    """An exact total of floats.

    Attributes:
        numerator: the total of all finite numbers, in units of 2 to the power of minus `scale`.
        scale: the exponent of the unit, at least 0; no greater than the numbers require.
        beyond: the sum of all numbers that are infinite or NaN; 0.0 without any.
    """

    numerator: int
    scale: int
    beyond: float


Total: TypeAlias = int | Floats | Decimal | timedelta

# With this precision, sums of all usual amounts are exact. Without traps, the sum of infinities of
# both signs is NaN, as with floats.
_WIDE = Context(prec=1000, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
_USUAL = Context(prec=28, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])


def total_of(number: Any) -> Total:
    """Return the total of one number.

    Raises:
        UnfitError: for anything that is not a number or a duration of fixed length.

    >>> total_of(0.75)
    Floats(numerator=3, scale=2, beyond=0.0)
    """
    if isinstance(number, float):
        return _floats_of(number)
    if type(number) is int:
        return number
    if isinstance(number, Integral):
        return int(number)
    if isinstance(number, Decimal):
        return number
    if isinstance(number, timedelta):
        return _length_of(number)
    # A Rational, such as a Fraction, is Real too, but its float would not be exact.
    if isinstance(number, Real) and not isinstance(number, Rational):
        return _floats_of(float(number))
    fix = (
        ": give the source a schema, or map the text to a number" if isinstance(number, str) else ""
    )
    raise UnfitError(number, f"cannot add {described(number)}{fix}")


def with_number(total: Total, number: Any) -> Total:
    """Return `plus(total, total_of(number))`, faster for two ints and for two floats.

    Raises:
        UnfitError: when the number is not a number, or cannot be added to the total.
    """
    if type(number) is int and type(total) is int:
        return total + number
    if type(number) is float and type(total) is Floats and math.isfinite(number):
        return _plus_finite(total, number)
    return plus(total, total_of(number))


def plus(total: Total, other: Total) -> Total:
    """Add two totals.

    Raises:
        UnfitError: when the two cannot be added, such as floats and Decimals.

    >>> rounded(plus(plus(total_of(0.1), total_of(1e100)), total_of(-1e100)))
    0.1
    """
    if isinstance(total, int) and isinstance(other, int):
        return total + other
    if isinstance(total, int | Floats) and isinstance(other, int | Floats):
        return _plus_floats(_as_floats(total), _as_floats(other))
    if isinstance(total, int | Decimal) and isinstance(other, int | Decimal):
        return _WIDE.add(total, other)
    if isinstance(total, timedelta) and isinstance(other, timedelta):
        return _add_durations(total, other)
    added = described(rounded(other))
    raise UnfitError(rounded(other), f"cannot add {added} to a total of {_kind(total)}")


def rounded(total: Total) -> int | float | Decimal | timedelta:
    """Return the sum, rounded once: half to even, and to infinity beyond the greatest float."""
    return _quotient(total, 1) if isinstance(total, Floats) else total


def mean(total: Total, count: int) -> float | Decimal | timedelta:
    """Return the sum divided by a count, rounded once; Decimals to 28 digits.

    >>> mean(plus(total_of(1e308), total_of(1e308)), 2)
    1e+308
    """
    if isinstance(total, Decimal):
        return _USUAL.divide(total, count)
    if isinstance(total, timedelta):
        return total / count
    return _quotient(_as_floats(total), count)


def _floats_of(number: float) -> Floats:
    if not math.isfinite(number):
        return Floats(0, 0, float(number))
    numerator, denominator = number.as_integer_ratio()
    return Floats(numerator, denominator.bit_length() - 1, 0.0)


def _length_of(length: timedelta) -> timedelta:
    """Return a plain timedelta; a pendulum duration with months has no fixed length."""
    if type(length) is timedelta:
        return length
    try:
        return timedelta(microseconds=duration_us(length, "it"))
    except DurationError as error:
        raise UnfitError(length, f"cannot add {described(length)}") from error


def _as_floats(total: int | Floats) -> Floats:
    return total if isinstance(total, Floats) else Floats(total, 0, 0.0)


def _plus_floats(total: Floats, other: Floats) -> Floats:
    numerator, scale, beyond = total
    other_numerator, other_scale, other_beyond = other
    if scale < other_scale:
        numerator <<= other_scale - scale
        scale = other_scale
    else:
        other_numerator <<= scale - other_scale
    return Floats(numerator + other_numerator, scale, beyond + other_beyond)


def _plus_finite(total: Floats, number: float) -> Floats:
    added, unit = number.as_integer_ratio()
    numerator, scale, beyond = total
    shift = unit.bit_length() - 1 - scale
    if shift > 0:
        return Floats((numerator << shift) + added, scale + shift, beyond)
    return Floats(numerator + (added << -shift), scale, beyond)


def _add_durations(total: timedelta, other: timedelta) -> timedelta:
    """Return the sum of two durations.

    Raises:
        UnfitError: when the sum is longer than the greatest timedelta.
    """
    try:
        return total + other
    except OverflowError as error:
        raise UnfitError(other, f"cannot add {described(other)}: {error}") from error


def _quotient(total: Floats, count: int) -> float:
    numerator, scale, beyond = total
    if beyond:
        return beyond
    try:
        # Python rounds the quotient of two ints correctly, however long they are.
        return numerator / (count << scale)
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def _kind(total: Total) -> str:
    return "float" if isinstance(total, Floats) else type(total).__name__
