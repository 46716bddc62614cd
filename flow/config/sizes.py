"""Sizes of memory as text, in the form that a JVM takes."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+)([kmgt])", re.IGNORECASE)
_BYTES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size_bytes(text: str) -> int | None:
    """Return the bytes of a size such as ``512m`` or ``4g``; ``None`` for other text.

    >>> size_bytes("4g"), size_bytes("512M"), size_bytes("4 GB")
    (4294967296, 536870912, None)
    """
    match = _SIZE.fullmatch(text)
    return None if match is None else int(match[1]) * _BYTES[match[2].lower()]


def size_text(size: int) -> str:
    """Return a number of bytes with a unit, rounded.

    >>> size_text(4 << 30), size_text(300 << 20), size_text(25_000_000_000)
    ('4.0 GiB', '300 MiB', '23.3 GiB')
    """
    if size >= _BYTES["g"]:
        return f"{size / _BYTES['g']:,.1f} GiB"
    return f"{size / _BYTES['m']:,.0f} MiB"
