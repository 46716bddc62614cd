"""Tables in the process that plans epochs: contents with pickled values, and their files."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flow.dataflow import Step
from flow.engine.tables.contents import Change, Contents
from flow.engine.tables.versions import (
    CHANGES,
    WHOLE,
    TableVersion,
    empty_contents,
    encode,
    file_name,
    folder_of,
    read_version,
)
from flow.errors import EngineError, StepError, error_message, shorten
from flow.operators.tables import Table

if TYPE_CHECKING:
    from flow.engine.checkpoint.storage import Storage

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
            for changes in read_version(self.name, version, self.files.read_unchecked):
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
            number = self.version.number + 1
            self.version = TableVersion(number, self._written(number, changes), read_at_us)
        elif read_at_us is not None:
            self.version = self.version._replace(read_at_us=read_at_us)
        return self.version

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
        if not too_many and self._bytes_since_base <= self.size:
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
