"""Disks that a run writes to, and which of them is full.

Spark often hides a full disk. Its state server, which dies of one, says so in Spark's log alone; a
worker then finds its socket closed, and Spark reports that. And as a task fails Spark removes what
it had written, so that there may be room again when the driver hears of it. So a worker whose state
is gone looks at the disks at once, see `flow.engine.spark.store`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

NO_SPACE = "No space left on device"
_FULL = (NO_SPACE, "Disk quota exceeded")
_LITTLE_BYTES = 1 << 20
"""Free bytes below which a disk cannot hold the files of an epoch."""
_MUCH_MORE = 16
"""Ratio of free space above which the disk with more space is not the full one."""
_FILE = "file:"


def tells_of_a_full_disk(text: str) -> bool:
    """Return True if a message says that a disk, or a user's share of it, is full."""
    return any(one in text for one in _FULL)


@dataclass(frozen=True)
class RunDisks:
    """Directories that a run writes to beside its outputs.

    Attributes:
        checkpoint: path or URI of the checkpoint; ``None`` without one.
        local: Spark's directories for temporary files on this machine.
    """

    checkpoint: str | None = None
    local: tuple[str, ...] = ()

    def full(self) -> tuple[str, ...]:
        """Return the local directories whose file system is full."""
        return tuple(one for one in self._all() if _free_bytes(one) < _LITTLE_BYTES)

    def explain(self, messages: Iterable[str] = ()) -> str:
        """Return one line that names the full disk and gives advice.

        Args:
            messages: messages of the failure, which may name a file on the full disk.
        """
        suspects = self._named(messages) or self.full() or self._least_free()
        if len(suspects) == 1:
            return f"{NO_SPACE} on the disk of {self._name(suspects[0])}: {self._advice(suspects)}"
        named = " or ".join(
            f"{self._name(one)} ({_megabytes(_free_bytes(one))} free now)" for one in suspects
        )
        return f"{NO_SPACE} on the disk of {named}: {self._advice(suspects)}"

    def _all(self) -> tuple[str, ...]:
        return (*([] if self.checkpoint is None else [self.checkpoint]), *self.local)

    def _name(self, directory: str) -> str:
        if directory == self.checkpoint:
            return f"the checkpoint, {directory}"
        return f"Spark's temporary files, {directory}"

    def _advice(self, suspects: tuple[str, ...]) -> str:
        if suspects == (self.checkpoint,):
            return "make room there and run the flow again"
        return "make room there, or set spark.local.dir to another disk, and run the flow again"

    def _named(self, messages: Iterable[str]) -> tuple[str, ...]:
        """Return the directories named in lines about a full disk."""
        named: set[str] = set()
        for text in messages:
            # A trace in Spark's log has its first line, with the file, before the exception.
            for before, line in pairwise(["", *text.splitlines()]):
                if tells_of_a_full_disk(line):
                    found = [one for one in self._all() if _path(one) in f"{before} {line}"]
                    named.update(sorted(found, key=len)[-1:])  # one may lie below another
        return tuple(one for one in self._all() if one in named)

    def _least_free(self) -> tuple[str, ...]:
        """Return the directories with far less free space than the others; all if none has."""
        free = {one: _free_bytes(one) for one in self._all()}
        least = min(free.values(), default=0)
        if least == float("inf"):
            return self._all()
        return tuple(one for one, space in free.items() if space <= _MUCH_MORE * least)


def _path(directory: str) -> str:
    """Return the path of a local directory given as a path or a URI."""
    if not directory.startswith(_FILE):
        return directory
    return "/" + directory[len(_FILE) :].lstrip("/")


def _free_bytes(directory: str) -> float:
    """Return the free bytes of a directory's file system for this user; infinite if unknown."""
    path = _path(directory)
    if ":" in path.partition("/")[0]:  # a URI of another file system
        return float("inf")
    try:
        found = os.statvfs(path)
    except OSError:
        return float("inf")
    if found.f_files and not found.f_favail:  # no room for another file, whatever its size
        return 0
    return found.f_bavail * found.f_frsize


def _megabytes(size: float) -> str:
    return "unknown" if size == float("inf") else f"{size / 1e6:,.1f} MB"
