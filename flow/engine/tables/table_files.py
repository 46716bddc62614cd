"""Versions of tables, their files in a checkpoint, and the stores that steps of a task read.

A version is written before the log of an epoch names it::

    tables/<table>/000000004.whole      the contents of version 4
    tables/<table>/000000005.changes    the changes from version 4 to 5

A file is a sealed pickle of changes. Version 5 above has the base 4: a reader applies the changes
of ``000000004.whole`` to empty contents, then those of each later version. A run that is killed
before the epoch is logged leaves files that the next run replaces.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import quote

from flow.connectors.files.filesystems import locate
from flow.dataflow import Step
from flow.engine.tables.contents import Change, Contents, History, Newest, value_of
from flow.errors import CheckpointError, EngineError, StepError, error_message, first_line, shorten
from flow.format_version import Seal
from flow.operators.keyed_tables import Table

if TYPE_CHECKING:
    from flow.engine.checkpoint.storage import Storage

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


MAX_CHANGES_FILES = 32
"""The greatest number of files that a task reads after a whole version."""
REMOVAL_VERSIONS = 50
"""Versions between two removals of files that no run can need any more."""


def pickled(step_id: str, key: str, value: object) -> bytes | None:
    """Return a table's value as bytes; ``None`` for ``None``.

    Raises:
        StepError: when the value cannot be pickled.
    """
    if value is None:
        return None
    try:
        return pickle.dumps(value, 5)
    except Exception as error:  # A user's class may raise any exception as it is pickled.
        problem = (
            f"a value of the table cannot be pickled ({error_message(error)}), so it cannot be "
            f"sent to workers, got {shorten(value)}: use plain values, such as dicts"
        )
        raise StepError(step_id, problem, key) from error


@dataclass
class TableLog:
    """A table, as it is changed from epoch to epoch.

    Attributes:
        step: the table's step.
        name: the table's name in the checkpoint.
        files: the checkpoint's files; ``None`` to keep the table in memory alone.
        oldest: returns the oldest version from which a run can continue; ``None`` if unknown.
        version: the version of `contents`.
        contents: the newest contents, with pickled values.
        size: the size of the pickled values and their keys, in bytes.
    """

    step: Step
    name: str
    files: Storage | None = None
    oldest: Callable[[str], TableVersion | None] = lambda _: None
    version: TableVersion = field(default=TableVersion(), init=False)
    contents: Contents = field(init=False)
    size: int = field(default=0, init=False)
    _bytes_since_base: int = field(default=0, init=False)
    _removed_at: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.contents = empty_contents(self.operator)

    @property
    def operator(self) -> Table:
        """The table's operator."""
        if not isinstance(self.step.operator, Table):
            raise EngineError(f"step {self.step.step_id!r} is not a table")
        return self.step.operator

    def copy(self) -> TableLog:
        """Return a copy, which changes on its own."""
        copied = copy.copy(self)
        copied.contents = self.contents.copy()
        return copied

    def restore(self, version: TableVersion) -> None:
        """Read a version, unless it is the present one.

        Raises:
            CheckpointError: when a file is missing or damaged.
        """
        if version.number != self.version.number and self.files is not None:
            self.contents, self.size = empty_contents(self.operator), 0
            self._bytes_since_base = 0
            for changes in read_version(self.name, version, self.files.read_bytes):
                self.size += self.contents.apply(changes)
        self.version = version

    def change(self, changes: Sequence[Change], read_at_us: int | None = None) -> TableVersion:
        """Apply changes, and write them to the checkpoint before returning.

        Args:
            changes: the changes in order, with pickled values; empty to keep the version.
            read_at_us: the system time at which a lookup table was read, in µs; ``None`` for other
                tables.

        Raises:
            StepError: when the table grows too large.
            CheckpointError: when a file cannot be written.
        """
        if changes:
            self.size += self.contents.apply(changes)
            self._check_size()
            number = (self.version.number or self._newest_number()) + 1
            self.version = TableVersion(number, self._written(number, changes), read_at_us)
        elif read_at_us is not None:
            self.version = self.version._replace(read_at_us=read_at_us)
        return self.version

    def _newest_number(self) -> int:
        """Return the newest version with a file, which a table that is added again starts after.

        Epochs of before its removal may still need their versions.
        """
        files = () if self.files is None else self.files.names(folder_of(self.name))
        numbers = (file.partition(".")[0] for file in files)
        return max((int(number) for number in numbers if number.isdecimal()), default=0)

    def replacing(self, rows: dict[str, bytes]) -> list[Change]:
        """Return the changes by which a table without history gets these rows and no others."""
        before = {change.key: change.value for change in self.contents.changes()}
        removed = [Change(key, None) for key in before if key not in rows]
        changed = [Change(key, value) for key, value in rows.items() if before.get(key) != value]
        return removed + changed

    def _check_size(self) -> None:
        limit = self.operator.max_bytes
        if self.size > limit:
            raise StepError(
                self.step.step_id,
                f"the table has grown to {self.size:,} bytes of {len(self.contents):,} keys, "
                f"more than max_bytes={limit:,}: give it a greater max_bytes=, keep smaller values "
                "(value=), remove keys by a value of None, or join the streams (op.join)",
            )

    def _written(self, number: int, changes: Sequence[Change]) -> int:
        """Write a version, whole or as its changes; return the number of its base."""
        if self.files is None:
            return number
        base, data = self.version.base, encode(changes)
        self._bytes_since_base += len(data)
        too_many = number - base > MAX_CHANGES_FILES
        # The first version is whole, as there may be files of before a removal of the table.
        if base and not too_many and self._bytes_since_base <= self.size:
            self.files.write_bytes(f"{folder_of(self.name)}/{file_name(number, CHANGES)}", data)
            return base
        whole = encode(self.contents.changes())
        self.files.write_bytes(f"{folder_of(self.name)}/{file_name(number, WHOLE)}", whole)
        self._bytes_since_base = 0
        if number >= self._removed_at + REMOVAL_VERSIONS:
            self._removed_at = number
            self._remove_old(self.files)
        return number

    def _remove_old(self, files: Storage) -> None:
        """Remove the files of versions before the oldest from which a run can continue."""
        oldest = self.oldest(self.name)
        if oldest is None:
            return
        for file in files.names(folder_of(self.name)):
            number = file.partition(".")[0]
            if number.isdecimal() and int(number) < oldest.base:
                files.remove(f"{folder_of(self.name)}/{file}")
