"""Stores of tables, from which steps of a task read the version that their epoch sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from flow.connectors.files.places.place import locate
from flow.engine.tables.contents import Contents, History, Newest
from flow.engine.tables.versions import TableVersion, read_version, with_values
from flow.errors import CheckpointError, first_line
from flow.operators.tables import Table


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
