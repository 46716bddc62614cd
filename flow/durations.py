"""Durations: the forms that users write, and whole microseconds inside.

A duration is a `datetime.timedelta` (a `pendulum` duration is one), or text such as ``"30s"``,
``"1h30m"``, ``"100ms"``, or ISO 8601 ``"PT5M"``.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from typing import TypeAlias

import pendulum

from flow.errors import DurationError, FlowBuildError, shorten

Duration: TypeAlias = timedelta | str
"""The types of a duration argument."""

MAX_US = timedelta.max // timedelta(microseconds=1)
"""Microseconds of `timedelta.max`, which stands for an unlimited duration."""

_UNITS = {
    "us µs microseconds microsecond micros": 1,
    "ms milliseconds millisecond millis": 1_000,
    "s seconds second secs sec": 1_000_000,
    "m minutes minute mins min": 60_000_000,
    "h hours hour hrs hr": 3_600_000_000,
    "d days day": 86_400_000_000,
    "w weeks week": 604_800_000_000,
}
"""The microseconds of each unit, by its names."""
_UNITS_US = {name: micros for names, micros in _UNITS.items() for name in names.split()}
_NAMES = "|".join(sorted(_UNITS_US, key=len, reverse=True))
_PART = re.compile(rf"([0-9]{{1,99}}(?:\.[0-9]{{1,99}})?)\s*({_NAMES})(?![a-zµ])")
_WHOLE = re.compile(rf"([+-]?)\s*((?:{_PART.pattern}\s*)+)")
_ISO_NUMBER = "([0-9]{1,99}(?:[.,][0-9]{1,99}(?=[A-Z]$))?)"
"""A number of ISO 8601: only that of the last part may have a fraction."""
_DATE, _TIME = ("".join(f"(?:{_ISO_NUMBER}{one})?" for one in units) for units in ("WYMD", "HMS"))
_ISO = re.compile(rf"P(?!.*W.)(?=.*[0-9][A-Z]$){_DATE}(?:T{_TIME})?", re.ASCII | re.IGNORECASE)
"""A duration of ISO 8601: weeks stand alone, and the last character is the unit of a number."""
_FORMS = 'write it as a timedelta, "30s", "5m", "1h30m", "100ms" or ISO 8601 "PT5M"'
_TOO_FINE = "is finer than a microsecond"
_UNFIXED = "holds years or months, which have no fixed length"


def duration_us(value: Duration, what: str = "duration") -> int:
    """Read a duration as a whole number of microseconds.

    Args:
        value: a `timedelta`, a `pendulum` duration, or text.
        what: the parameter's name, for errors.

    Raises:
        DurationError: for any other value, and for one that is finer than a microsecond, is
            longer than `timedelta.max`, or holds years or months.

    >>> duration_us("1h30m"), duration_us("5 minutes")
    (5400000000, 300000000)
    >>> duration_us(timedelta(milliseconds=100)) == duration_us("100ms")
    True
    >>> duration_us("PT5M")
    300000000
    """
    if isinstance(value, timedelta):
        return _timedelta_us(value, what)
    if not isinstance(value, str):
        raise DurationError(
            f"{what} must be a duration, got {type(value).__name__} {shorten(value)}: {_FORMS}"
        )
    micros = _text_us(value.strip(), what)
    if micros is None:
        raise _refusal(value, what, "is not a duration")
    if micros.denominator > 1:
        raise _refusal(value, what, _TOO_FINE)
    if abs(micros) > MAX_US:
        raise _refusal(value, what, "is longer than timedelta.max")
    return int(micros)


def positive_us(value: Duration, what: str) -> int:
    """Read a duration that must be positive, in microseconds; `what` names it in errors.

    Raises:
        DurationError: the value is no duration.
        FlowBuildError: the duration is not positive.
    """
    micros = duration_us(value, what)
    if micros <= 0:
        raise FlowBuildError(f"{what} must be positive, got {value!r}")
    return micros


def natural_us(value: Duration, what: str) -> int:
    """Read a duration that must not be negative, in microseconds; `what` names it in errors.

    Raises:
        DurationError: the value is no duration.
        FlowBuildError: the duration is negative.
    """
    micros = duration_us(value, what)
    if micros < 0:
        raise FlowBuildError(f"{what} must not be negative, got {value!r}")
    return micros


def duration_text(micros: int) -> str:
    """Return the shortest text of a duration in µs; ``forever`` for an unlimited one.

    >>> duration_text(5_400_000_000)
    '1h30m'
    >>> duration_text(0)
    '0s'
    """
    if micros >= MAX_US:
        return "forever"
    sign, rest, parts = ("-" if micros < 0 else ""), abs(micros), []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, rest = divmod(rest, _UNITS_US[unit])
        if count:
            parts.append(f"{count}{unit}")
    return sign + ("".join(parts) or "0s")


def _timedelta_us(value: timedelta, what: str) -> int:
    if isinstance(value, pendulum.Duration) and (value.years or value.months):
        raise _refusal(value, what, _UNFIXED)
    if getattr(value, "nanoseconds", 0):  # A `pandas` Timedelta.
        raise _refusal(value, what, _TOO_FINE)
    return timedelta.__floordiv__(value, timedelta(microseconds=1))


def _refusal(value: Duration, what: str, problem: str) -> DurationError:
    return DurationError(f"{what} {shorten(value)} {problem}: {_FORMS}")


def _text_us(text: str, what: str) -> Fraction | None:
    """Return a duration in µs; ``None`` for text in none of the forms."""
    if match := _WHOLE.fullmatch(text):
        parts = _PART.findall(match[2])
    elif match := _ISO.fullmatch(text):
        weeks, years, months, *rest = match.groups("0")
        if (years + months).strip("0.,"):
            raise _refusal(text, what, _UNFIXED)
        parts = list(zip([weeks, *rest], "wdhms", strict=True))
    else:
        return None
    each = (Fraction(number.replace(",", ".")) * _UNITS_US[unit] for number, unit in parts)
    total = sum(each, Fraction())
    return -total if text[0] == "-" else total
