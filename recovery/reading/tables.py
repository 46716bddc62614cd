"""Tables in a checkpoint: the version that an epoch saw, and its contents."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from flow.engine.tables.contents import Contents, History, Newest
from flow.engine.tables.versions import TableVersion, decode, files_of, folder_of
from flow.errors import CheckpointError
from recovery.reading.checkpoint import CheckpointReader
from recovery.reading.inert import load_inert


class TableValue(NamedTuple):
    """A value of a key.

    Attributes:
        key: the key.
        at_us: the time from which the value holds, in µs; 0 in a table without history.
        value: the value, with `Inert` objects in the place of objects that are not plain; ``None``
            where the key was removed.
        content: the pickled value; ``None`` where the key was removed.
    """

    key: str
    at_us: int
    value: Any
    content: bytes | None


@dataclass(frozen=True)
class TableState:
    """A version of a table.

    Attributes:
        step: the table's step.
        version: the version.
        contents: the values by key, pickled. A history may have values that `keep` lets the next
            run drop.
        size: the size of the pickled values and their keys, in bytes.
    """

    step: str
    version: TableVersion
    contents: Contents
    size: int

    @property
    def has_history(self) -> bool:
        """True if the table has the values of earlier times."""
        return isinstance(self.contents, History)

    def values(self) -> Iterator[TableValue]:
        """Yield the values by key, those of one key by time.

        Raises:
            CheckpointError: if a value cannot be read.
        """
        for key, content, at_us in sorted(self.contents.changes(), key=lambda each: each.key):
            yield TableValue(key, at_us, self._loaded(key, content), content)

    def _loaded(self, key: str, content: bytes | None) -> Any:
        try:
            return None if content is None else load_inert(content)
        except pickle.UnpicklingError as error:
            problem = f"table {self.step!r}: the value of key {key!r} cannot be read: {error}"
            raise CheckpointError(problem) from error


def tables_at(checkpoint: CheckpointReader, epoch: int) -> Mapping[str, TableVersion]:
    """Return the version of each table that an epoch saw, by the table's step."""
    control = checkpoint.log(epoch).offset.control
    versions = {} if control is None else control.tables
    return {checkpoint.step_of(name): version for name, version in versions.items()}


def read_table(checkpoint: CheckpointReader, step_id: str, version: TableVersion) -> TableState:
    """Read a version of a table.

    Raises:
        CheckpointError: if a file of the table is missing or damaged.
    """
    folder = folder_of(checkpoint.state_name(step_id))
    changes = [
        change
        for file in files_of(version)
        for change in decode(file, checkpoint.files.read_checked(f"{folder}/{file}"), load_inert)
    ]
    described = checkpoint.tables.get(step_id, {})
    has_history = described.get("as_of") is not None or any(change.at_us for change in changes)
    contents: Contents = History() if has_history else Newest()
    size = contents.apply(changes)
    return TableState(step_id, version, contents, size)
