"""Conversion of values to plain JSON, and of JSON to indented text."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import Any, TypeAlias

from flow.durations import duration_text, duration_us
from flow.instants import MAX_US, MIN_US, from_us
from flow.keyed.state import held_watermark_us
from recovery.reading.inert import Inert

Json: TypeAlias = Any

_LONGEST_BYTES = 32


def time_text(micros: int) -> str | None:
    """Return an instant in RFC 3339; ``None`` outside the years 1 to 9999.

    >>> time_text(1_500_000), time_text(2**62)
    ('1970-01-01T00:00:01.500000Z', None)
    """
    return _utc_text(from_us(micros)) if MIN_US <= micros <= MAX_US else None


def command(tool: str, root: str, *rest: object) -> str:
    """Return the shell command that runs a tool on a checkpoint.

    >>> command("rewind", "/data/my flow", "--epoch", 3)
    "python -m recovery rewind '/data/my flow' --epoch 3"
    """
    return shlex.join(["python", "-m", "recovery", tool, root, *map(str, rest)])


def due_text(due_us: int) -> str | None:
    """Return a due time as an instant or as the reason of a hold; ``None`` without a timer.

    >>> from flow.keyed.state import held_due_us
    >>> due_text(1_500_000), due_text(held_due_us(0))
    ('1970-01-01T00:00:01.500000Z', 'held until partitions behind reach 1970-01-01T00:00:00Z')
    """
    held_us = held_watermark_us(due_us)
    if held_us is None:
        return time_text(due_us)
    return f"held until partitions behind reach {time_text(held_us) or 'their end'}"


def plain(value: Any) -> Json:
    """Convert a value to JSON: fields by name, times in RFC 3339, other objects as text.

    >>> plain({"at": timedelta(minutes=5), 7: (1, b"ab")})
    {'at': '5m', '7': [1, '0x6162']}
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {_key(key): plain(one) for key, one in value.items()}
    if isinstance(value, Inert):
        return _inert(value)
    return _structured(value)


def _structured(value: Any) -> Json:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain(one) for name, one in zip(value._fields, value, strict=True)}
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(one) for one in value), key=json.dumps)
    try:
        elements = None if isinstance(value, (bytes, bytearray)) else list(value)
    except TypeError:
        elements = None
    return _text(value) if elements is None else [plain(one) for one in elements]


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return _utc_text(value) if value.tzinfo is not None else value.isoformat()
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return duration_text(duration_us(value))
    if isinstance(value, (bytes, bytearray)):
        more = f"… ({len(value)} bytes)" if len(value) > _LONGEST_BYTES else ""
        return f"0x{value[:_LONGEST_BYTES].hex()}{more}"
    return str(value)


def _inert(value: Inert) -> Json:
    """Convert a stand-in: its class, and its non-empty contents."""
    named = value.fields()
    rest = None if named else value.state
    shown = {
        "class": value.name,
        "args": plain(list(value.args)),
        "fields": plain(named),
        "state": plain(rest),
        "items": plain(value.items),
        "entries": {_key(key): plain(one) for key, one in value.entries},
    }
    return {name: one for name, one in shown.items() if one not in (None, [], {})}


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(plain(key), ensure_ascii=False).strip('"')


def _utc_text(value: datetime) -> str:
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def indented(value: Json, depth: int = 0) -> Iterator[str]:
    r"""Yield JSON as lines of indented text: a line for each name, and dashes for elements.

    >>> print("\n".join(indented({"key": "a", "windows": [{"id": 1, "value": [1, 2]}]})))
    key: a
    windows:
      - id: 1
        value: [1, 2]
    """
    pad = "  " * depth
    if isinstance(value, dict) and value:
        for name, one in value.items():
            yield from _entry(f"{pad}{name}:", one, depth)
    elif isinstance(value, list) and value:
        for one in value:
            lines = list(indented(one, depth + 1))
            yield f"{pad}- {lines[0].strip()}"
            yield from lines[1:]
    else:
        yield pad + _line(value)


def _entry(head: str, value: Json, depth: int) -> Iterator[str]:
    if _nested(value):
        yield head
        yield from indented(value, depth + 1)
    else:
        yield f"{head} {_line(value)}"


_LONGEST_LINE = 76


def _nested(value: Json) -> bool:
    """Return True if a value needs separate lines."""
    if not isinstance(value, (dict, list)) or not value:
        return False
    objects = isinstance(value, list) and any(isinstance(one, dict) and one for one in value)
    return objects or len(_line(value)) > _LONGEST_LINE


def _line(value: Json) -> str:
    if isinstance(value, str):
        return value if _is_plain_text(value) else json.dumps(value, ensure_ascii=False)
    return "-" if value is None else json.dumps(value, ensure_ascii=False)


def _is_plain_text(text: str) -> bool:
    return bool(text) and text == text.strip() and text.isprintable() and text != "-"
