"""Versions of tables, their files in a checkpoint, and the stores that steps of a task read.

A version is written before the log of an epoch names it::

    tables/<table>/000000004.whole      the contents of version 4
    tables/<table>/000000005.changes    the changes from version 4 to 5

A file is a sealed pickle of changes. Version 5 above has the base 4: a reader applies the changes
of ``000000004.whole`` to empty contents, then those of each later version. A run that is killed
before the epoch is logged leaves files that the next run replaces.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from flow.connectors.files.places.place import locate
from flow.engine.tables.contents import Change, Contents, History, Newest, value_of
from flow.errors import CheckpointError, first_line
from flow.format_version import Seal
from flow.operators.tables import Table

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
        yield Change(key, None if value is None else value_of(value), at_us)


def empty_contents(operator: Table) -> Contents:
    """Return the contents of a table before its first change."""
    return Newest() if operator.as_of is None else History(operator.keep_us)


@dataclass
class MemoryTables:
    """The tables of a run in which each task sees the same version: in this process, or in a batch.

    Attributes:
        known: the contents of each table, with pickled values.
    """

    known: dict[str, Contents] = field(default_factory=dict)
    _decoded: dict[str, tuple[Contents, Contents]] = field(default_factory=dict, init=False)

    def contents(self, step_id: str, versions: Mapping[str, TableVersion] | None) -> Contents:  # noqa: ARG002
        """Return the contents of a table."""
        known = self.known[step_id]
        found = self._decoded.get(step_id)
        if found is None or found[0] is not known:
            empty = History() if isinstance(known, History) else Newest()
            empty.apply(with_values(known.changes()))
            found = self._decoded[step_id] = known, empty
        return found[1]


@dataclass
class FileTables:
    """The tables of a checkpoint, read from its files at most once in each process.

    A process that has a version reads only the changes since then.

    Attributes:
        root: the checkpoint's path or URI.
        names: the name of each table in the checkpoint.
        empty: the contents of each table before its first change.
    """

    root: str
    names: Mapping[str, str]
    empty: Mapping[str, Contents]
    _read: dict[str, tuple[int, Contents]] = field(default_factory=dict, init=False)

    def contents(self, step_id: str, versions: Mapping[str, TableVersion] | None) -> Contents:
        """Return the contents of a table.

        Args:
            step_id: the table.
            versions: the version of each table in the epoch, by the table's name in the
                checkpoint; ``None`` in tasks that do not know the epoch.

        Raises:
            CheckpointError: when a file of the table is missing or damaged.
        """
        name = self.names[step_id]
        version = (versions or {}).get(name, TableVersion())
        number, contents = self._read.get(step_id, (0, self.empty[step_id]))
        if number == version.number:
            return contents
        has_start = number and version.base <= number < version.number
        changed = (contents if has_start else self.empty[step_id]).copy()
        for changes in read_version(name, version, self._bytes_of, number if has_start else 0):
            changed.apply(with_values(changes))
        self._read[step_id] = version.number, changed
        return changed

    def _bytes_of(self, name: str) -> bytes:
        place = locate(f"{self.root}/{name}")
        try:
            with place.filesystem.open_input_stream(place.path, compression=None) as stream:
                content: bytes = stream.read()
                return content
        except OSError as error:
            raise CheckpointError(f"{place} cannot be read: {first_line(error)}") from error


TableStore: TypeAlias = MemoryTables | FileTables
"""The tables of a plan, where its tasks run."""
