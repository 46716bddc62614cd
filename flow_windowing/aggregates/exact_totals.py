"""Totals of numbers that come out the same in whatever order and parts the numbers are added.

A sum of floats that is rounded at each step depends on the order of the steps, so two windows that
become one would have another total than one window with the same values. Here a total is exact, and
is rounded once, when it is read: the sum is that of `math.fsum`.

A total is one of four immutable things: an `int`; `Floats`, for floats and what they were added to;
a `decimal.Decimal`; a `datetime.timedelta`. Ints go with floats and with Decimals; nothing else
mixes, as in Python.

An exact total of floats is a whole number of units of 2 to the power of minus `scale`. Every finite
float is one, so the numerator grows no longer than the distance between the largest and the
smallest bit ever added: about 2 100 bits at the very worst, below 100 for most data.
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
        numerator: the total of all finite numbers is this times 2 to the power of minus `scale`.
        scale: not negative, and no greater than the numbers made necessary.
        beyond: the sum of all that is infinite or not a number; 0.0 when there was none.
    """

    numerator: int
    scale: int
    beyond: float


Total: TypeAlias = int | Floats | Decimal | timedelta

# Wide enough for sums of any amounts that people write down to be exact. Without traps, so that
# infinities of both signs make a NaN, as they do with floats.
_WIDE = Context(prec=1000, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
_USUAL = Context(prec=28, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])


def total_of(number: Any) -> Total:
    """The total of one number.

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
    # A Rational, such as a Fraction, is Real too, but a float would not be exactly it.
    if isinstance(number, Real) and not isinstance(number, Rational):
        return _floats_of(float(number))
    raise UnfitError(number, f"cannot add {described(number)}")


def with_number(total: Total, number: Any) -> Total:
    """`plus` of a total and a number, faster where both are of the usual kinds.

    Raises:
        UnfitError: when it is not a number, or not one that mixes with the total.
    """
    if type(number) is int and type(total) is int:
        return total + number
    if type(number) is float and type(total) is Floats and math.isfinite(number):
        return _plus_finite(total, number)
    return plus(total, total_of(number))


def plus(total: Total, other: Total) -> Total:
    """The total of two totals.

    Raises:
        UnfitError: when the two do not mix, such as floats with Decimals.

    >>> figure(plus(plus(total_of(0.1), total_of(1e100)), total_of(-1e100)))
    0.1
    """
    if isinstance(total, int) and isinstance(other, int):
        return total + other
    made = _plus_int(other, total) if isinstance(total, int) else _plus_alike(total, other)
    if made is None:
        added = described(figure(other))
        raise UnfitError(figure(other), f"cannot add {added} to a total of {_kind(total)}")
    return made


def figure(total: Total) -> int | float | Decimal | timedelta:
    """The sum, rounded once: half to even, and to infinity beyond the greatest float."""
    return _quotient(total, 1) if isinstance(total, Floats) else total


def mean(total: Total, count: int) -> float | Decimal | timedelta:
    """The sum divided by a count, rounded once; Decimals to 28 digits.

    >>> mean(plus(total_of(1e308), total_of(1e308)), 2)
    1e+308
    """
    if isinstance(total, Decimal):
        return _USUAL.divide(total, count)
    if isinstance(total, timedelta):
        return total / count
    return _quotient(total if isinstance(total, Floats) else Floats(total, 0, 0.0), count)


def _floats_of(number: float) -> Floats:
    if not math.isfinite(number):
        return Floats(0, 0, float(number))
    numerator, denominator = number.as_integer_ratio()
    return Floats(numerator, denominator.bit_length() - 1, 0.0)


def _length_of(length: timedelta) -> timedelta:
    """A plain timedelta: a pendulum duration may hold months, which have no fixed length."""
    if type(length) is timedelta:
        return length
    try:
        return timedelta(microseconds=duration_us(length, "it"))
    except DurationError as error:
        raise UnfitError(length, f"cannot add {described(length)}") from error


def _plus_int(total: Total, number: int) -> Total | None:
    if isinstance(total, Floats):
        return _plus_floats(total, Floats(number, 0, 0.0))
    return _WIDE.add(total, number) if isinstance(total, Decimal) else None


def _plus_alike(total: Total, other: Total) -> Total | None:
    """The total of two, the first of which is not an int; ``None`` when they do not mix."""
    if isinstance(other, int):
        return _plus_int(total, other)
    if isinstance(total, Floats) and isinstance(other, Floats):
        return _plus_floats(total, other)
    if isinstance(total, Decimal) and isinstance(other, Decimal):
        return _WIDE.add(total, other)
    if isinstance(total, timedelta) and isinstance(other, timedelta):
        return _plus_lengths(total, other)
    return None


def _plus_floats(total: Floats, other: Floats) -> Floats:
    numerator, scale, beyond = total
    more, its_scale, its_beyond = other
    if scale < its_scale:
        numerator <<= its_scale - scale
        scale = its_scale
    else:
        more <<= scale - its_scale
    return Floats(numerator + more, scale, beyond + its_beyond)


def _plus_finite(total: Floats, number: float) -> Floats:
    more, unit = number.as_integer_ratio()
    numerator, scale, beyond = total
    finer = unit.bit_length() - 1 - scale
    if finer > 0:
        return Floats((numerator << finer) + more, scale + finer, beyond)
    return Floats(numerator + (more << -finer), scale, beyond)


def _plus_lengths(total: timedelta, other: timedelta) -> timedelta:
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
