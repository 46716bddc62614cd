"""Removal of credentials from URIs, for messages and checkpoints."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

CONTAINER_SCHEMES = ("abfs", "abfss", "wasb", "wasbs")
"""Schemes with the name of a container before the host, in the place of a user."""

_PASSWORD = r"[^/@]*:[^/@]*@"
_USER_AND_PASSWORD = re.compile(rf"(?<=://){_PASSWORD}")
_BEFORE_HOST = re.compile(rf"([\w+.-]*)://((?:{_PASSWORD}|[^/@\s]*@)+)")


def without_credentials(text: str) -> str:
    """Return a URI, or a text with URIs, without all that stands before hosts and an "@".

    The name of a container stays.

    >>> without_credentials("s3://me:secret@bucket/data and https://token@host")
    's3://bucket/data and https://host'
    >>> without_credentials("abfss://box@account.dfs.core.windows.net")
    'abfss://box@account.dfs.core.windows.net'
    """
    return _BEFORE_HOST.sub(_without_user, text)


def _without_user(match: re.Match[str]) -> str:
    scheme, user = match.groups()
    is_container = scheme.lower() in CONTAINER_SCHEMES and ":" not in user
    return match[0] if is_container else f"{scheme}://"


def without_passwords(uri: str) -> str:
    """Return a URI without a user that has a password, as checkpoints hold it.

    A user alone stays: some stores are opened with it.

    >>> without_passwords("s3://me:secret@bucket/data"), without_passwords("hdfs://me@node/data")
    ('s3://bucket/data', 'hdfs://me@node/data')
    """
    return _USER_AND_PASSWORD.sub("", uri)


def repr_without_credentials(self: Any) -> str:
    """Return the `repr` of a dataclass, without credentials of URIs in its fields."""
    shown = [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr]
    return without_credentials(f"{type(self).__name__}({', '.join(shown)})")
