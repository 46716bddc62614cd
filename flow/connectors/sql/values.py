"""What a value becomes on its way to a database: one of the few types that its driver is given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np

from flow.connectors.formats.plain_values import naive_problem, plain

Form: TypeAlias = Callable[[Any], Any]
"""Makes of a value what a driver is given; raises ValueError, or TypeError, that says why not."""

_BITS = 63


def by_type(forms: Mapping[type, Form]) -> Form:
    """A form for all values, made of forms for some types.

    Values of other types are laid out as JSON lines lay them out, so that enums become their
    values, and dataclasses, sets and tuples become dicts and lists.

    Args:
        forms: the form for each type; a subclass comes before its base.
    """

    def form(value: Any) -> Any:
        known = forms.get(type(value))
        if known is not None:
            return known(value)
        if isinstance(value, (np.datetime64, np.timedelta64)):
            raise TypeError("map it to an aware datetime, or to a timedelta")
        laid_out = plain(value)
        for kind, known in forms.items():
            if isinstance(laid_out, kind):
                return known(laid_out)
        raise TypeError("it has no form in a table: map it to text, numbers, lists or dicts")

    return form


def same(value: Any) -> Any:
    """The value itself."""
    return value


def whole(value: int) -> int:
    """A whole number that fits the widest integer type of a database."""
    if not -(1 << _BITS) <= value < 1 << _BITS:
        raise ValueError("it is beyond 64 bits: map it to a Decimal or to text")
    return int(value)


def finite(value: float) -> float:
    """A number that is one: databases disagree on what the others are."""
    if not math.isfinite(value):
        raise ValueError("it is not a finite number: map it to None or to text")
    return float(value)


def decimal_text(value: Decimal) -> str:
    """All digits of a decimal number."""
    if not value.is_finite():
        raise ValueError("it is not a finite number: map it to None or to text")
    return str(value)


def text(value: str) -> str:
    """Text that can be written as UTF-8."""
    if not value.isascii():
        value.encode()
    return value


def in_utc(value: datetime) -> datetime:
    """An aware datetime in UTC."""
    if value != value:  # pandas' "not a time" is a datetime too
        raise ValueError("it is not a time: map it to None")
    if value.utcoffset() is None:
        raise ValueError(naive_problem("it"))
    return value.astimezone(UTC)
