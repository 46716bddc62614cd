"""The part of a step's configuration that its state depends on, as JSON that can be compared.

The description leaves out parameters whose change keeps state valid: code, whose changes cannot be
judged, and the fields that a class lists in ``HARMLESS``, such as the wait of a clock.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta, tzinfo
from enum import Enum
from typing import Any, TypeAlias

from flow.durations import duration_text, duration_us
from flow.instants import datetime_us

Json: TypeAlias = Any

CODE = "code"
"""The description of a function, or of a class that is not a dataclass of configuration."""


def describe(value: Any) -> Json:
    """Return the description of a value of a step's configuration.

    >>> from flow_windowing import TumblingWindower
    >>> describe(TumblingWindower("60m", grace="5m"))
    {'type': 'TumblingWindower', 'length': '1h', 'align_to': 0, 'closed': 'left'}
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, timedelta):
        return duration_text(duration_us(value))
    if isinstance(value, datetime):
        return datetime_us(value)
    if isinstance(value, tzinfo):
        return getattr(value, "key", None) or str(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return [describe(one) for one in value]
    if isinstance(value, dict):
        return {str(name): describe(one) for name, one in value.items()}
    if isinstance(value, type) or not is_dataclass(value):
        return CODE if callable(value) else {"type": type(value).__qualname__}
    return _described_fields(value)


def _described_fields(config: Any) -> Json:
    harmless: frozenset[str] = getattr(config, "HARMLESS", frozenset())
    described: dict[str, Json] = {"type": type(config).__qualname__}
    for field in fields(config):
        if field.name not in harmless:
            value = getattr(config, field.name)
            if value is not None and "Duration" in str(field.type):
                described[field.name] = duration_text(duration_us(value))
            else:
                described[field.name] = describe(value)
    return described


def differences(before: Json, now: Json, where: str = "") -> list[str]:
    """Return the differences of two descriptions, in words.

    >>> differences({"windower": {"length": "1h"}}, {"windower": {"length": "30m"}})
    ["windower.length was '1h' and is '30m'"]
    """
    if isinstance(before, dict) and isinstance(now, dict):
        if before.get("type") != now.get("type"):
            return [_changed(where or "it", before.get("type"), now.get("type"))]
        found: list[str] = []
        for name in {**before, **now}:
            path = f"{where}.{name}" if where else name
            found += differences(before.get(name), now.get(name), path)
        return found
    return [] if before == now else [_changed(where or "it", before, now)]


def _changed(where: str, before: Json, now: Json) -> str:
    return f"{where} was {_shown(before)} and is {_shown(now)}"


def _shown(value: Json) -> str:
    if value == CODE:
        return "a function"
    return "not given" if value is None else repr(value)
