"""Versions of tables, which the log of an epoch names, and their files in a checkpoint.

A version is written before the log of an epoch names it::

    tables/<table>/000000004.whole      the contents of version 4
    tables/<table>/000000005.changes    the changes from version 4 to 5

A file is a sealed pickle of changes. Version 5 above has the base 4: a reader applies the changes
of ``000000004.whole`` to empty contents, then those of each later version. A run that is killed
before the epoch is logged leaves files that the next run replaces.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from flow.engine.tables.contents import Change
from flow.format_version import Seal

FOLDER = "tables"
WHOLE = ".whole"
CHANGES = ".changes"
SEAL = Seal("table", "file of a table")


class TableVersion(NamedTuple):
    """A version of a table.

    Attributes:
        number: the number of sets of changes since the table was empty.
        base: the number of the newest version that was written whole; the changes of each later
            version are written by themselves.
        read_at_us: the system time at which a lookup table was last read, in µs; ``None`` before
            the first reading, and for other tables.
    """

    number: int = 0
    base: int = 0
    read_at_us: int | None = None

    def to_json(self) -> Any:
        """Return the version as JSON."""
        return list(self)

    @classmethod
    def from_json(cls, content: Any) -> TableVersion:
        """Return the version in JSON made by `to_json`."""
        number, base, read_at_us = content
        return cls(int(number), int(base), None if read_at_us is None else int(read_at_us))


def folder_of(name: str) -> str:
    """Return the folder of a table in the checkpoint, by the table's name in it."""
    return f"{FOLDER}/{quote(name, safe='')}"


def files_of(version: TableVersion, above: int = 0) -> Iterator[str]:
    """Yield the names of the files of a version in the table's folder, in order; none if empty.

    Args:
        version: the version.
        above: the number of the version to start from; 0 for empty contents.
    """
    if version.base and not above:
        yield file_name(version.base, WHOLE)
    for number in range((above or version.base) + 1, version.number + 1):
        yield file_name(number, CHANGES)


def file_name(number: int, kind: str) -> str:
    """Return the name of a file of version `number`."""
    return f"{number:09d}{kind}"


def encode(changes: Iterable[Change]) -> bytes:
    """Return the bytes of a file; the values of changes are pickled already."""
    return SEAL.close(pickle.dumps([tuple(change) for change in changes], 5))


def decode(name: str, data: bytes, load: Callable[[bytes], Any] = pickle.loads) -> list[Change]:
    """Return the changes in a file, with pickled values.

    Args:
        name: the file's name, for errors.
        data: the bytes of the file.
        load: reads the pickle, which has plain values only.

    Raises:
        CheckpointError: when the file is truncated or changed, or has another format.
    """
    return [Change(*change) for change in load(SEAL.open(name, data))]


def read_version(
    name: str, version: TableVersion, read: Callable[[str], bytes], above: int = 0
) -> Iterator[list[Change]]:
    """Yield the sets of changes that lead to a version.

    Args:
        name: the table's name in the checkpoint.
        version: the version.
        read: returns the bytes of a file of the checkpoint.
        above: the number of the version to start from; 0 for empty contents.
    """
    for file in files_of(version, above):
        path = f"{folder_of(name)}/{file}"
        yield decode(path, read(path))


def with_values(changes: Iterable[Change]) -> Iterator[Change]:
    """Yield changes with their values in the place of pickled bytes."""
    for key, value, at_us in changes:
        yield Change(key, None if value is None else pickle.loads(value), at_us)
