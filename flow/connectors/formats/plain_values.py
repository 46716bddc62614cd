"""Values as plain data, and their JSON text."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import numpy as np

from flow.connectors.formats.epoch_column import check_names
from flow.connectors.sink import to_record
from flow.errors import SinkError, shorten


def plain(value: Any) -> Any:
    """Return a value with its dataclasses, sets, tuples and enums as dicts, lists and values.

    >>> plain({"ids": {3, 1, 2}, "at": (1, 2)})
    {'ids': [1, 2, 3], 'at': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, (set, frozenset)):
        return [plain(part) for part in _sorted(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, (np.generic, np.ndarray)):
        if value.dtype.kind in "mM":
            raise TypeError(
                f"{value.dtype} has no time zone or unit: map it to datetime or timedelta"
            )
        return value.tolist()
    return value


def json_line(item: Any, step_id: str) -> bytes:
    """Return an item as a line of JSON, without a line end.

    Raises:
        SinkError: a field has no form in JSON; the error names it.
    """
    record = to_record(item)
    check_names(record, step_id)
    try:
        return _encode(record).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SinkError(f"step {step_id!r}: {_json_problem(record)}") from error


def json_text(value: Any) -> str:
    """Return a value as JSON.

    Raises:
        TypeError, ValueError: the value has no form in JSON.
    """
    return _encode(value)


def instant_text(value: datetime) -> str:
    """Return an aware datetime as RFC 3339 text.

    >>> instant_text(datetime(2013, 1, 1, tzinfo=UTC))
    '2013-01-01T00:00:00Z'
    """
    offset = value.utcoffset()
    if offset is None:
        raise ValueError(naive_problem(value.isoformat()))
    if offset % timedelta(minutes=1):
        value, offset = value.astimezone(UTC), timedelta(0)
    text = value.isoformat()
    return text if offset else text.removesuffix("+00:00") + "Z"


def naive_problem(what: str) -> str:
    """Return the error text of a datetime without a time zone."""
    return f"{what} has no time zone, so it names no point in time: give it one"


def _default(value: Any) -> Any:
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return str(value)
    laid_out = plain(value)
    if laid_out is value:
        raise TypeError(f"a value of type {type(value).__name__} cannot be written as JSON")
    return laid_out


_encode = json.JSONEncoder(default=_default, ensure_ascii=False, allow_nan=False).encode


def _json_problem(record: Mapping[Any, Any]) -> str:
    for name, value in record.items():
        try:
            _encode({name: value}).encode()
        except (TypeError, ValueError, RecursionError) as error:
            what = f"{type(value).__name__} {shorten(value)}"
            return f"field {shorten(name)} ({what}) {_why(value, error)}"
    return f"{shorten(record)} cannot be written as JSON"


def _why(value: Any, error: Exception) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "has no form in JSON: map it to None or to text before the output"
    return f"cannot be written as JSON: {error}. Map it to text, numbers, lists or dicts before"


def _sorted(values: set[Any] | frozenset[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=lambda value: (type(value).__name__, repr(value)))
