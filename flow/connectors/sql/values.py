"""Conversion of values to the types that a database driver takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np

from flow.connectors.formats.json_encoding import naive_problem, plain

ValueConverter: TypeAlias = Callable[[Any], Any]
"""Conversion of a value to a database driver's form; raises ValueError or TypeError."""

_BITS = 63


def by_type(converters: Mapping[type, ValueConverter]) -> ValueConverter:
    """Return a converter of all values, given converters of some types.

    Values of other types are first laid out as in JSON lines: enums become their values, and
    dataclasses, sets and tuples become dicts and lists.

    Args:
        converters: converter of each type; a subclass comes before its base.
    """

    def convert(value: Any) -> Any:
        converter = converters.get(type(value))
        if converter is not None:
            return converter(value)
        if isinstance(value, (np.datetime64, np.timedelta64)):
            raise TypeError("map it to an aware datetime, or to a timedelta")
        laid_out = plain(value)
        for kind, converter in converters.items():
            if isinstance(laid_out, kind):
                return converter(laid_out)
        raise TypeError("no column can hold it: map it to text, numbers, lists or dicts")

    return convert


def unchanged(value: Any) -> Any:
    """Return the value itself."""
    return value


def int64(value: int) -> int:
    """Return a whole number if it fits 64 bits, the widest integer type of a database."""
    if not -(1 << _BITS) <= value < 1 << _BITS:
        raise ValueError("it exceeds 64 bits: map it to a Decimal or to text")
    return int(value)


def finite_float(value: float) -> float:
    """Return a float if it is finite, as databases differ on other floats."""
    if not math.isfinite(value):
        raise ValueError("it is not a finite number: map it to None or to text")
    return float(value)


def decimal_text(value: Decimal) -> str:
    """Return all digits of a decimal number."""
    if not value.is_finite():
        raise ValueError("it is not a finite number: map it to None or to text")
    return str(value)


def utf8_text(value: str) -> str:
    """Return a text if it can be encoded as UTF-8."""
    if not value.isascii():
        value.encode()
    return value


def to_utc(value: datetime) -> datetime:
    """Return an aware datetime in UTC."""
    if value != value:  # NaT of pandas is an instance of datetime.
        raise ValueError("it is not a time: map it to None")
    if value.utcoffset() is None:
        raise ValueError(naive_problem("it"))
    return value.astimezone(UTC)
