"""Removal of credentials from URIs, for messages and checkpoints."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

_CREDENTIALS = re.compile(r"(?<=://)[^/@]*:[^/@]*@")


def without_credentials(text: str) -> str:
    """Return a URI, or a text with URIs, without users and passwords.

    >>> without_credentials("s3://me:secret@bucket/data")
    's3://bucket/data'
    """
    return _CREDENTIALS.sub("", text)


def repr_without_credentials(self: Any) -> str:
    """Return the `repr` of a dataclass, without users and passwords of URIs in its fields."""
    shown = [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr]
    return without_credentials(f"{type(self).__name__}({', '.join(shown)})")
