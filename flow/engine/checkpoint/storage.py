"""Small files of a checkpoint, on any file system of Hadoop."""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from flow.connectors.source import Json
from flow.engine.spark.session.session_settings import java_of
from flow.engine.spark.session.spark_failures import tells_of_a_full_disk
from flow.engine.temporary import lock_file
from flow.errors import CheckpointError, first_line

CHUNK = 1 << 20
"""The most bytes in a call to the JVM; Py4J encodes them as a text several times as long."""
_UNFINISHED = re.compile(r"\..*\.tmp")


class Storage:
    """Atomic reads and writes of small files below a directory.

    Spark's `CheckpointFileManager` creates files atomically on each kind of file system, and
    replaces them atomically on remote ones. On a local one it deletes the existing file before it
    renames the new one, so a kill in between would lose both: local files are replaced by
    `replace_local_file`.

    Args:
        spark: the session whose Hadoop configuration is used.
        root: the directory, a path or a URI.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm = java_of(spark, "a checkpoint")
        self._jvm = jvm
        self._is_made = False
        # Relative paths refer to the working directory of this process, not of the JVM. A path may
        # begin with two slashes, after which Hadoop expects the name of a host.
        absolute = os.path.abspath(root).replace("//", "/")
        self.root = root.rstrip("/") if ":" in root else absolute
        conf = spark._jsc.hadoopConfiguration()
        managers = jvm.org.apache.spark.sql.execution.streaming.checkpointing
        with _explained("opened", self.root):
            self._fs = self._path("").getFileSystem(conf)
            self._files = managers.CheckpointFileManager.create(self._path(""), conf)
            # To Java, a file does not exist in a directory that this user may not read.
            with contextlib.suppress(FileNotFoundError):
                os.listdir(self.local_path or "")

    @cached_property
    def is_local(self) -> bool:
        """True if the directory is on a file system of this machine."""
        return str(self._fs.getScheme()) == "file"

    @cached_property
    def local_path(self) -> str | None:
        """The directory's path on this machine; ``None`` on another file system."""
        return str(self._path("").toUri().getPath()) if self.is_local else None

    def exists(self, name: str) -> bool:
        """Return True if a file or directory of this name exists."""
        if self.is_local:  # A call of the JVM takes two milliseconds, several times an epoch.
            return os.path.exists(f"{self.local_path}/{name}")
        return bool(self._fs.exists(self._path(name)))

    def names(self, name: str) -> list[str]:
        """Return the names in a directory, sorted; empty if the directory does not exist.

        Spark writes a file as ``.<name>.<uuid>.tmp`` and renames it. A temporary file of a process
        that has died is no part of a checkpoint.
        """
        path = self._path(name)
        if not self._fs.exists(path):
            return []
        names = (status.getPath().getName() for status in self._fs.listStatus(path))
        return sorted(name for name in names if not _UNFINISHED.fullmatch(name))

    def read(self, name: str) -> Json:
        """Read a JSON file.

        Raises:
            CheckpointError: when the file is missing or is not JSON.
        """
        try:
            return json.loads(self.read_unchecked(name))
        except ValueError as error:
            problem = f"{self._path(name).toString()} is not JSON: {first_line(error)}"
            raise CheckpointError(problem) from error

    def read_bytes(self, name: str) -> bytes:
        """Read a file.

        Raises:
            CheckpointError: when the file cannot be read.
        """
        path = self._path(name)
        with _explained("read", path.toString()), contextlib.closing(self._fs.open(path)) as stream:
            return b"".join(_chunks_of(stream))

    def read_unchecked(self, name: str) -> bytes:
        """Read a file without Hadoop's checksum.

        A local file is read without the JVM, a call of which takes milliseconds, and which
        transfers only 20 MB a second.

        Raises:
            CheckpointError: when the file cannot be read.
        """
        if not self.is_local:
            return self.read_bytes(name)
        path = f"{self.local_path}/{name}"
        with _explained("read", path), open(path, "rb") as file:
            return file.read()

    def write(self, name: str, content: Json) -> None:
        """Write or replace a JSON file.

        Raises:
            CheckpointError: when the file cannot be written; an old file is unchanged.
        """
        self.write_bytes(name, _as_bytes(content))

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write or replace a file.

        Raises:
            CheckpointError: when the file cannot be written; an old file is unchanged.
        """
        with _explained("written", self._path(name).toString()):
            self._put(name, data, overwrite=True)

    def create(self, name: str, content: Json) -> ExitStack | None:
        """Write a JSON file unless it exists.

        A store must promise that of several calls at a time, of any process and machine, one writes
        the file. A local file system promises it for hard links, HDFS for renames. Where
        `createAtomic` of Spark's `CheckpointFileManager` does not, as on some object stores, the
        content of the last call stays.

        Returns:
            The lock of the file, for `is_locked`, until it is closed here and in processes forked
            meanwhile; ``None`` if the file exists.

        Raises:
            CheckpointError: when the file cannot be written.
        """
        if self.exists(name):
            return None
        try:
            return self._put(name, _as_bytes(content), overwrite=False)
        except Exception as error:
            if self.exists(name):
                return None
            problem = f"{self._path(name).toString()} cannot be written: {_reason(error)}"
            raise CheckpointError(problem) from None

    def is_locked(self, name: str) -> bool | None:
        """Return True if a process holds the lock of a file that `create` made.

        The operating system releases the lock as the process ends, in whatever way. All containers
        of a machine see it.

        Returns:
            ``None`` if unknown: on a store that is not local, and where files have no locks.
        """
        if not self.is_local:
            return None
        try:
            with open(f"{self.local_path}/{name}", "rb") as file:
                return False if lock_file(file.fileno(), shared=True) else None
        except BlockingIOError:
            return True
        except OSError:
            return None

    @property
    def is_on_disk(self) -> bool:
        """True if a local directory is on a disk, which no other machine uses at the same time."""
        # A network file system has no driver of its own, which the major number would name.
        return os.major(os.stat(str(self.local_path)).st_dev) > 0

    def remove(self, name: str) -> None:
        """Remove a file or directory, if it exists."""
        with _explained("removed", self._path(name).toString()):
            self._fs.delete(self._path(name), True)

    def move(self, name: str, target: str) -> None:
        """Move a file or directory, and create the directories above the target.

        Raises:
            CheckpointError: when the file or directory cannot be moved.
        """
        path, new = self._path(name), self._path(target)
        with _explained("moved", path.toString()):
            self._fs.mkdirs(new.getParent())
            if not self._fs.rename(path, new):
                raise OSError(f"the file system refused to rename it to {new.toString()}")

    def remove_checksum(self, name: str) -> None:
        """Remove Hadoop's checksum of a file, if it exists."""
        self.remove(_checksum_name(name))

    def _put(self, name: str, data: bytes, overwrite: bool) -> ExitStack:
        path = self._path(name)
        self._make_private()
        self._files.mkdirs(path.getParent())
        # Hadoop writes the checksum after the file. A kill in between would leave the old checksum
        # beside the new file, which would then be unreadable.
        self._fs.delete(self._path(_checksum_name(name)), False)
        if self.is_local and not overwrite:
            return create_local_file(f"{self.local_path}/{name}", data)
        if self.is_local:
            replace_local_file(f"{self.local_path}/{name}", data)
            return ExitStack()
        stream = self._files.createAtomic(path, overwrite)
        try:
            for start in range(0, len(data), CHUNK):
                stream.write(data[start : start + CHUNK])
            stream.close()
        except Exception:
            stream.cancel()
            raise
        return ExitStack()

    def _make_private(self) -> None:
        """Create the directory, unless it exists, with access for its owner only."""
        if self._is_made:
            return
        if not self._fs.exists(self._path("")):
            owner_alone = self._jvm.org.apache.hadoop.fs.permission.FsPermission("700")
            self._fs.mkdirs(self._path(""), owner_alone)
        self._is_made = True

    def _path(self, name: str) -> Any:
        whole = f"{self.root}/{name}" if name else self.root
        return self._jvm.org.apache.hadoop.fs.Path(whole)


def replace_local_file(path: str, data: bytes) -> None:
    """Write or replace a local file: after a kill at any moment it has the old or the new content.

    The temporary file is named as Spark names its own, which `Storage.names` leaves out.
    """
    with _temporary_file(path, data) as temporary:
        os.replace(temporary, path)


def create_local_file(path: str, data: bytes) -> ExitStack:
    """Write and lock a local file; return its lock, which holds until it is closed.

    The file is locked before others see it, so that a file without a lock has no living owner.

    Raises:
        OSError: when the file exists or cannot be written.
    """
    with _temporary_file(path, data) as temporary, ExitStack() as lock:
        descriptor = os.open(temporary, os.O_RDWR)
        lock.callback(os.close, descriptor)
        if not lock_file(descriptor):
            lock.close()
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # The file system has no hard links: the last of two calls stays.
            os.rename(temporary, path)
        return lock.pop_all()


@contextlib.contextmanager
def _temporary_file(path: str, data: bytes) -> Iterator[str]:
    """Write a file beside `path`, which is removed after the block unless it was renamed."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _as_bytes(content: Json) -> bytes:
    """Return JSON as the bytes of a file."""
    return json.dumps(content, indent=1).encode()


def _chunks_of(stream: Any) -> Iterator[bytes]:
    """Read a Java stream to its end, at most a chunk in each call."""
    size = CHUNK
    while size == CHUNK:
        chunk = bytes(stream.readNBytes(CHUNK))
        size = len(chunk)
        yield chunk


def _checksum_name(name: str) -> str:
    """Return the name of Hadoop's checksum of a file on a local disk."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}.{last}.crc"


@contextlib.contextmanager
def _explained(what: str, where: str) -> Iterator[None]:
    """Raise a `CheckpointError` with path and reason for any exception of Hadoop."""
    try:
        yield
    except Exception as error:
        raise CheckpointError(f"{where} cannot be {what}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Return the message of an exception, or of its Java exception, as one line."""
    java = error.java_exception.toString() if isinstance(error, Py4JJavaError) else None
    message = first_line(error) if java is None else str(java).splitlines()[0]
    if tells_of_a_full_disk(message):
        return f"{message}; make room there and run the flow again"
    return message
