"""Disks that a run writes to, and the search for the full disk.

Spark often hides a full disk. Its state server ends on a full disk, and only Spark's log has the
reason; a worker then finds its socket closed, and Spark reports the closed socket. A failed task's
files are removed, so the disk may have room again when the driver gets the error. A worker that
loses its state therefore checks the disks at once, see `flow.engine.spark.store`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

NO_SPACE = "No space left on device"
_FULL = (NO_SPACE, "Disk quota exceeded")
_LITTLE_BYTES = 1 << 20
"""The number of free bytes below which a disk counts as full."""
_MUCH_MORE = 16
"""The ratio of free space between two disks above which only the disk with less may be full."""
_FILE = "file:"


def tells_of_a_full_disk(text: str) -> bool:
    """Return True if a message reports a full disk or an exceeded quota."""
    return any(phrase in text for phrase in _FULL)


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
        return tuple(path for path in self._all() if _free_bytes(path) < _LITTLE_BYTES)

    def explain(self, messages: Iterable[str] = ()) -> str:
        """Return one line that names the full disk and gives advice.

        Args:
            messages: messages of the failure, which may name a file on the full disk.
        """
        suspects = self._named(messages) or self.full() or self._least_free()
        if len(suspects) == 1:
            return f"{NO_SPACE} on the disk of {self._name(suspects[0])}: {self._advice(suspects)}"
        names = " or ".join(
            f"{self._name(path)} ({_megabytes(_free_bytes(path))} free now)" for path in suspects
        )
        return f"{NO_SPACE} on the disk of {names}: {self._advice(suspects)}"

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
            # Spark's log names the file in the line before the exception.
            for before, line in pairwise(["", *text.splitlines()]):
                if tells_of_a_full_disk(line):
                    paths = [path for path in self._all() if _path(path) in f"{before} {line}"]
                    # A directory may be below another, whose path then is in the line as well.
                    named.update(sorted(paths, key=len)[-1:])
        return tuple(path for path in self._all() if path in named)

    def _least_free(self) -> tuple[str, ...]:
        """Return the directories whose free space is near the least; all if it is unknown."""
        free = {path: _free_bytes(path) for path in self._all()}
        least = min(free.values(), default=0)
        if least == float("inf"):
            return self._all()
        return tuple(path for path, space in free.items() if space <= _MUCH_MORE * least)


def _path(directory: str) -> str:
    """Return the path of a local directory given as a path or a URI."""
    if not directory.startswith(_FILE):
        return directory
    return "/" + directory[len(_FILE) :].lstrip("/")


def _free_bytes(directory: str) -> float:
    """Return the free bytes of a directory's file system for this user; infinite if unknown."""
    path = _path(directory)
    if ":" in path.partition("/")[0]:  # The directory is the URI of another file system.
        return float("inf")
    try:
        stat = os.statvfs(path)
    except OSError:
        return float("inf")
    if stat.f_files and not stat.f_favail:  # Without free inodes, no file of any size can be made.
        return 0
    return stat.f_bavail * stat.f_frsize


def _megabytes(size: float) -> str:
    return "unknown" if size == float("inf") else f"{size / 1e6:,.1f} MB"
