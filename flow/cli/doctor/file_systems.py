"""File systems of directories: type, options, free space, and a file written on trial."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

IN_MEMORY = ("tmpfs", "ramfs")
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs")
_REMOTE_PREFIX = "fuse."
_ESCAPE = re.compile(r"\\(\d{3})")


@dataclass(frozen=True)
class FileSystem:
    """The file system of a directory.

    Attributes:
        kind: the type, such as ``ext4``; empty if unknown.
        options: the mount's options.
        free: the free bytes for this user.
        size: the bytes of the file system.
    """

    kind: str
    options: tuple[str, ...]
    free: int
    size: int

    @property
    def is_in_memory(self) -> bool:
        """True if files are in memory."""
        return self.kind in IN_MEMORY

    @property
    def is_remote(self) -> bool:
        """True if files are on another machine."""
        return self.kind in REMOTE or self.kind.startswith(_REMOTE_PREFIX)


def file_system_of(directory: Path, mounts: Path = Path("/proc/self/mounts")) -> FileSystem:
    """Return the file system of an existing directory.

    Args:
        directory: the directory.
        mounts: the table of mounts; where it is missing, type and options are unknown.

    Raises:
        OSError: if the directory does not exist.
    """
    usage = shutil.disk_usage(directory)
    path, best = directory.resolve(), Path()
    kind, options = "", ""
    for line in _lines(mounts):
        fields = line.split(" ")
        if len(fields) < 4:
            continue
        place = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        # A later mount hides an earlier one of the same place.
        if path.is_relative_to(place) and len(place.parts) >= len(best.parts):
            best, kind, options = place, fields[2], fields[3]
    return FileSystem(kind, tuple(options.split(",")), usage.free, usage.total)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def existing_part(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    return next((each for each in (path, *path.parents) if each.exists()), path)


def try_renames(directory: Path) -> None:
    """Replace a file in a directory by renaming another, and remove it.

    Raises:
        OSError: if a file cannot be written, renamed or read again.
    """
    name = f".flow-doctor-{uuid.uuid4().hex}"
    target, new = directory / name, directory / f"{name}.new"
    try:
        target.write_bytes(b"old")
        with new.open("wb") as file:
            file.write(b"new")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, target)
        if target.read_bytes() != b"new":
            raise OSError(f"{target} has the old content after a rename")
    finally:
        for path in (target, new):
            path.unlink(missing_ok=True)
