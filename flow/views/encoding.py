"""The encoding of values in a view: JSON, by one rule for each type.

======================================  ============================================
value                                   JSON
======================================  ============================================
None, bool, str, int, finite float      itself
aware datetime                          text, RFC 3339: ``"2024-01-01T00:00:00Z"``
date, time                              text, ISO 8601
timedelta                               number of seconds
Decimal, UUID                           text
Enum                                    its value
list, tuple, array of NumPy             array
set, frozenset                          array, sorted
mapping, dataclass, named tuple         object; names are text, and whole numbers become text
======================================  ============================================

A dataclass with a method ``as_record``, such as the metadata of a window, is the object that this
method returns. No other value can be in a view.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import numpy as np

from flow.connectors.formats.json_encoding import instant_text
from flow.errors import shorten

_dump = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode

REFUSED = (TypeError, ValueError, OverflowError, RecursionError)
"""The exceptions of `encode`."""


def encode(value: Any) -> str:
    """Return a value as JSON text.

    Raises:
        TypeError, ValueError, RecursionError: the value, or a part of it, has no form in JSON.

    >>> encode({"at": timedelta(minutes=1), "seen": {3, 1}})
    '{"at":60.0,"seen":[1,3]}'
    """
    text = _dump(_laid_out(value))
    if not text.isascii():
        text.encode()
    return text


def decode(text: str) -> Any:
    """Return the value of JSON text: dicts, lists, text, numbers, True, False and None."""
    return json.loads(text)


def _laid_out(value: Any) -> Any:
    """Return a value as the types that JSON has."""
    if type(value) in _UNCHANGED:
        return value
    for kind, lay_out in _RULES:
        if isinstance(value, kind):
            return lay_out(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _object(_record_of(value))
    raise TypeError(
        f"{type(value).__name__} {shorten(value, 80)} has no form in JSON: map it to text, "
        "numbers, lists or dicts"
    )


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value!r} has no form in JSON: map it to None or to text")
    return float(value)


def _instant(value: datetime) -> str:
    if value != value:  # NaT of pandas is an instance of datetime.
        raise ValueError("NaT has no form in JSON: map it to None")
    return instant_text(value)


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError(f"{value!r} has no form in JSON: map it to None or to text")
    return str(value)


def _array(values: Any) -> list[Any]:
    return [_laid_out(value) for value in values]


def _tuple(values: tuple[Any, ...]) -> Any:
    if hasattr(values, "_asdict"):
        return _object(values._asdict())
    return _array(values)


def _sorted_array(values: Any) -> list[Any]:
    laid_out = _array(values)
    try:
        return sorted(laid_out)
    except TypeError:
        return sorted(laid_out, key=_dump)


def _object(record: Mapping[Any, Any]) -> dict[str, Any]:
    laid_out = {_name(name): _laid_out(value) for name, value in record.items()}
    if len(laid_out) < len(record):
        raise ValueError(
            f"the names {shorten(list(record), 80)} of an object are not distinct as text"
        )
    return laid_out


def _name(name: Any) -> str:
    """Return the name of a field as text: a text, a whole number, or an enum of them."""
    plain = name.value if isinstance(name, Enum) else name
    if isinstance(plain, str):
        return str(plain)
    if isinstance(plain, (int, np.integer)) and not isinstance(plain, bool):
        return str(int(plain))
    raise TypeError(
        f"the name {shorten(name, 80)} of an object is a {type(name).__name__}: names must be "
        "text or whole numbers"
    )


def _record_of(value: Any) -> Mapping[Any, Any]:
    if hasattr(value, "as_record"):
        record: Mapping[Any, Any] = value.as_record()
        return record
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _numpy(value: Any) -> Any:
    if value.dtype.kind in "mM":
        raise TypeError(f"{value.dtype} has no time zone or unit: map it to datetime or timedelta")
    return _laid_out(value.tolist())


_UNCHANGED = frozenset((type(None), bool, int, str))

_RULES: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (Enum, lambda value: _laid_out(value.value)),
    ((np.generic, np.ndarray), _numpy),
    (str, str),
    (int, int),
    (float, _finite),
    (datetime, _instant),
    ((date, time), lambda value: value.isoformat()),
    (timedelta, timedelta.total_seconds),
    (Decimal, _decimal),
    (UUID, str),
    (Mapping, _object),
    (tuple, _tuple),
    (list, _array),
    ((set, frozenset), _sorted_array),
)
"""The rule of each type; a subclass comes before its base."""
