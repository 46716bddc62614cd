"""Places of files: a path on this machine or in a store, and the file system that holds it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyarrow import fs

from flow.connectors.files.places.credentials import without_passwords
from flow.connectors.files.places.paths import URI, absolute, split_glob

LOCAL = ""
"""Store of the files on this machine's own file system."""

_HADOOP_S3 = re.compile(r"^s3[an](?=://)")
"""Schemes that Hadoop, and so the path of a checkpoint, has for S3."""


@dataclass(frozen=True)
class Place:
    """A path or URI, resolved.

    Attributes:
        store: `LOCAL`, or the start of the URI without credentials, such as ``s3://bucket``.
        path: the path as pyarrow takes it; absolute on this machine.
        uri: the URI that connects to the file system; not used for `LOCAL`.
    """

    store: str
    path: str
    uri: str = ""

    @property
    def filesystem(self) -> Any:
        """The `pyarrow.fs.FileSystem` of the place."""
        return fs.LocalFileSystem() if self.store == LOCAL else _connect(self.uri)[0]

    def __str__(self) -> str:
        return display_name(self.store, self.path)


def locate(text: str) -> Place:
    """Resolve a path or URI.

    Raises:
        OSError: the file system cannot be connected to.
        pyarrow.ArrowInvalid: the URI cannot be read.
    """
    if not URI.match(text):
        return Place(LOCAL, absolute(text))
    filesystem, path = _connect(text)
    path = path.rstrip("/") or "/"
    if filesystem.type_name == "local":
        return Place(LOCAL, path)
    return Place(_store(text), path, text)


def file_identity(store: str, path: str) -> tuple[str, str]:
    """Return the store and path of a file with links resolved, equal for all names of the file.

    >>> file_identity("s3a://bucket", "bucket/a.csv")
    ('s3://bucket', 'bucket/a.csv')
    """
    return (LOCAL, os.path.realpath(path)) if store == LOCAL else (canonical_store(store), path)


def canonical_store(store: str) -> str:
    """Return a store with the scheme ``s3`` in place of Hadoop's schemes for S3.

    >>> canonical_store("s3a://bucket")
    's3://bucket'
    """
    return _HADOOP_S3.sub("s3", store)


def connect(store: str, paths: Sequence[str]) -> Any:
    """Return the file system of a store.

    Args:
        store: the store of a `Place`.
        paths: paths as the user gave them; a URI of the store has the options of the connection.
    """
    if store == LOCAL:
        return fs.LocalFileSystem()
    uris = [base for base, _ in map(split_glob, paths) if _store(base) == store]
    return _connect(uris[0] if uris else store)[0]


def display_name(store: str, path: str) -> str:
    """Return the name of a file for messages."""
    if store == LOCAL or path.startswith("/"):
        return store + path
    return f"{store.partition('://')[0]}://{path}"


def _store(uri: str) -> str:
    match = URI.match(without_passwords(uri))
    return f"{match[1].lower()}://{match[2] or ''}" if match else LOCAL


@lru_cache(maxsize=32)
def _connect(uri: str) -> tuple[Any, str]:
    connection: tuple[Any, str] = fs.FileSystem.from_uri(canonical_store(uri))
    return connection
