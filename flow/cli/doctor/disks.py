"""Checks of directories: temporary files, Spark's local directories, and the checkpoint.

A check looks at the file system of a directory, and writes a file in it on trial.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from flow.cli.doctor.finding import Finding, ok, problem, warning
from flow.config.machine import size_text

LITTLE = 1 << 30
"""The free bytes below which a disk soon fills up."""
TOO_LITTLE = 100 << 20
"""The free bytes below which a run fails at once."""
SMALL_MEMORY_DISK = 4 << 30
"""The bytes below which a file system in memory is small for shuffled data."""

_LOCAL_SCHEMES = ("", "file")
IN_MEMORY = ("tmpfs", "ramfs")
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs")
_REMOTE_PREFIX = "fuse."
_ESCAPE = re.compile(r"\\(\d{3})")


def temporary_findings(conf: Mapping[str, str]) -> Iterator[Finding]:
    """Check the temporary directory, and Spark's directories for temporary files.

    Args:
        conf: the settings of Spark.
    """
    try:
        directory = tempfile.gettempdir()
    except FileNotFoundError as error:
        text = f"no directory is writable ({error}): set TMPDIR to one that is"
        yield problem("Temporary files", text)
    else:
        yield _directory_finding("Temporary files", directory, "TMPDIR", holds_libraries=True)
    places, origin = _local_directories(conf)
    for place in places:
        yield _directory_finding("Spark local dir", place, origin)


def _local_directories(conf: Mapping[str, str]) -> tuple[list[str], str]:
    """Return Spark's directories for temporary files, if they are set, and what sets them."""
    for origin, text in (
        ("SPARK_LOCAL_DIRS", os.environ.get("SPARK_LOCAL_DIRS", "")),
        ("spark.local.dir", conf.get("spark.local.dir", "")),
    ):
        if text:
            return [part.strip() for part in text.split(",") if part.strip()], origin
    return [], ""


def _directory_finding(
    subject: str, directory: str, origin: str, holds_libraries: bool = False
) -> Finding:
    """Check a directory for temporary files.

    Args:
        subject: the subject of the finding.
        directory: the directory.
        origin: the variable or setting that names the directory.
        holds_libraries: True if the JVM loads native libraries from the directory.
    """
    path = existing_part(Path(directory).absolute())
    try:
        try_renames(path)
        system = file_system_of(path)
    except OSError as error:
        text = f"{directory}: {_reason(error)}: set {origin} to a directory that is writable"
        return problem(subject, text)
    about = f"{directory}, {_about(system)}"
    if system.free < TOO_LITTLE:
        return problem(subject, f"{about}: make room there, or set {origin} to another disk")
    if holds_libraries and "noexec" in system.options:
        text = f"{about}, mounted noexec, so that native libraries of RocksDB cannot be loaded"
        return problem(subject, f"{text}: set {origin} to another file system")
    if system.is_in_memory and system.size < SMALL_MEMORY_DISK:
        text = f"{about}, in memory and small: large shuffles fill it, and it counts as memory"
        return warning(subject, f"{text}; set {origin} to a disk")
    if system.free < LITTLE:
        return warning(subject, f"{about}: make room there, or set {origin} to another disk")
    return ok(subject, about)


def is_local_path(path: str) -> bool:
    """Return True if a path or URI is on a file system of this machine.

    >>> is_local_path("state/mine"), is_local_path("file:/state"), is_local_path("s3a://b/state")
    (True, True, False)
    """
    return urlsplit(path).scheme in _LOCAL_SCHEMES


def checkpoint_findings(checkpoint: str | None, is_local_master: bool) -> Iterator[Finding]:
    """Check the directory of a checkpoint; one on a remote file system needs Spark.

    Args:
        checkpoint: path or URI of the checkpoint; ``None`` without one.
        is_local_master: True if Spark's workers run on this machine.
    """
    subject = "Checkpoint"
    if checkpoint is None or not is_local_path(checkpoint):
        return
    split = urlsplit(checkpoint)
    wanted = Path(unquote(split.path) if split.scheme else checkpoint).absolute()
    path = existing_part(wanted)
    if not path.is_dir():
        yield problem(subject, f"{path} is no directory: name another one")
        return
    try:
        try_renames(path)
        system = file_system_of(path)
    except OSError as error:
        text = f"{wanted}: {_reason(error)} in {path}: make it writable, or name another directory"
        yield problem(subject, text)
        return
    yield _judged_checkpoint(wanted, system)
    if not is_local_master:
        text = f"{wanted} is on this machine: all workers of the cluster must see the same files"
        yield warning(subject, f"{text}; name a directory on a shared file system")


def _judged_checkpoint(path: Path, system: FileSystem) -> Finding:
    subject = "Checkpoint"
    state = "has a checkpoint" if (path / "flow.json").exists() else "new"
    about = f"{path} ({state}), {_about(system)}"
    if system.free < TOO_LITTLE:
        return problem(subject, f"{about}: make room there, or name another directory")
    if system.is_in_memory:
        text = f"{about}, in memory: the state is lost with this machine; name a directory on disk"
        return warning(subject, text)
    if system.free < LITTLE:
        return warning(subject, f"{about}: make room there, because the state grows")
    if system.is_remote:
        text = f"{about}, on another machine: a rename worked; locks may not, so let one run at a"
        return warning(subject, f"{text} time use the checkpoint")
    return ok(subject, f"{about}; files can be replaced by renames")


def _about(system: FileSystem) -> str:
    kind = f"{system.kind}, " if system.kind else ""
    return f"{kind}{size_text(system.free)} free of {size_text(system.size)}"


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


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
