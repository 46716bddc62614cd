"""Values as text: equal values have equal texts, on every machine and in every process."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any
from uuid import UUID

from flow.instants import datetime_us
from flow_windowing.aggregates.aggregator import UnfitError, described
from flow_windowing.aggregates.value_order import is_nan


def canonical_text(value: Any) -> str:
    """Return a text that is equal for values that are the same, and differ for others.

    Numbers that are equal, such as 1, 1.0 and True, have equal texts, and so have all NaN.

    Raises:
        UnfitError: for a value of another type than text, bytes, numbers, times, UUIDs, and tuples
            of these.

    >>> canonical_text(1) == canonical_text(True) == canonical_text(1.0)
    True
    >>> canonical_text("1") == canonical_text(1)
    False
    """
    of_type = _BY_TYPE.get(type(value))
    if of_type is not None:
        return of_type(value)
    for kind, of_kind in _BY_TYPE.items():
        if isinstance(value, kind):
            return of_kind(value)
    if value is None:
        return "n"
    if isinstance(value, Integral):
        return _of_int(int(value))
    if isinstance(value, Real):
        return _of_number(float(value))
    raise UnfitError(
        value,
        f"cannot tell {described(value)} from others: use text, bytes, numbers, times, UUIDs or "
        "tuples of these",
    )


def _of_text(value: str) -> str:
    text = str.__str__(value)  # The members of some enums are texts with another `str`.
    # Half of a surrogate pair has no UTF-8, the bytes that the library hashes.
    return f"t{text}" if text.isascii() else f"T{text.encode('utf-8', 'surrogatepass').hex()}"


def _of_bytes(value: bytes) -> str:
    return f"b{value.hex()}"


def _of_int(value: int) -> str:
    return f"i{int(value)}"


def _of_number(value: float | Decimal | Fraction) -> str:
    if is_nan(value):
        return "fnan"
    if isinstance(value, Fraction):
        ratio = value.numerator, value.denominator
    elif math.isinf(value):
        return "finf" if value > 0 else "f-inf"
    else:
        ratio = value.as_integer_ratio()
    return _of_int(ratio[0]) if ratio[1] == 1 else f"f{ratio[0]}/{ratio[1]}"


def _of_datetime(value: datetime) -> str:
    if value.tzinfo is None:
        return f"d{value.isoformat()}"
    return f"D{datetime_us(value)}"


def _of_date(value: date) -> str:
    return f"c{value.isoformat()}"


def _of_time(value: time) -> str:
    return f"h{value.isoformat()}"


def _of_timedelta(value: timedelta) -> str:
    return f"l{value // timedelta(microseconds=1)}"


def _of_uuid(value: UUID) -> str:
    return f"u{value.hex}"


def _of_tuple(value: tuple[Any, ...]) -> str:
    parts = [canonical_text(one) for one in value]
    return "(" + "".join(f"{len(part)}:{part}" for part in parts)


_BY_TYPE: dict[type, Callable[[Any], str]] = {
    str: _of_text,
    int: _of_int,
    bool: _of_int,
    float: _of_number,
    bytes: _of_bytes,
    Decimal: _of_number,
    Fraction: _of_number,
    datetime: _of_datetime,
    date: _of_date,
    time: _of_time,
    timedelta: _of_timedelta,
    UUID: _of_uuid,
    tuple: _of_tuple,
}
"""The function for each type; of a subclass, that of its first base in the table."""
