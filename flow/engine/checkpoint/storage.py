"""Small files of a checkpoint, on a local file system, in an object store, or through Hadoop.

| form | a write replaces a file | of two creates at a time, one succeeds |
|---|---|---|
| `LocalStorage` | by a rename | by a hard link |
| `ObjectStorage` | by a put | by a put with a condition, such as ``If-None-Match: *`` |
| `HadoopStorage` | by a rename | by a rename, on HDFS |

After a kill at any moment a file has its old or its new content.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import cached_property, reduce
from typing import Any
from urllib.parse import quote

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from flow.connectors.files.filesystems import URI, without_credentials
from flow.connectors.source import Json
from flow.engine.spark.session.session_settings import is_remote, java_of
from flow.engine.spark.session.spark_capabilities import file_managers
from flow.engine.spark.session.spark_failures import JVM_ERRORS, tells_of_a_full_disk
from flow.engine.temporary import lock_file
from flow.errors import CheckpointError, FlowError, first_line, package_of_extra

OBJECT_STORES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
"""Schemes of the object stores that promise an exclusive create."""
_EXCLUSIVE = ("hdfs", "viewfs", "webhdfs", "swebhdfs")
"""Schemes of Hadoop whose rename fails if the target exists, also for two calls at a time."""
_UNFINISHED = re.compile(r"\..*\.(tmp|crc)")
"""A file that Spark or `Storage` is writing, and a checksum of Hadoop."""


def open_storage(root: str, spark: SparkSession | None = None) -> Storage:
    """Return the storage of a directory, which need not exist.

    Args:
        root: the directory, a path or a URI.
        spark: a session, whose JVM is used where only Hadoop reaches the directory.

    Raises:
        CheckpointError: when the directory cannot be opened.
        EnvironmentProblem: when a package or a JVM is missing that the directory needs.
    """
    if _scheme(root) in OBJECT_STORES:
        return ObjectStorage(root)
    is_path = not _scheme(root) and spark is not None and not is_remote(spark)
    if needs_jvm(root) or (is_path and not _default_is_local(spark)):
        return HadoopStorage(spark, root)
    return LocalStorage(root)


def needs_jvm(root: str) -> bool:
    """Return True if only Hadoop reaches a directory, a path or a URI."""
    return _scheme(root) not in ("", "file", *OBJECT_STORES)


def _scheme(root: str) -> str:
    """Return the scheme of a URI; empty for a path."""
    match = URI.match(root)
    return match[1].lower() if match else ""


def _default_is_local(spark: Any) -> bool:
    """Return True if a path without a scheme is one of this machine to a session."""
    return str(spark._jsc.hadoopConfiguration().get("fs.defaultFS")).startswith("file:")


class Storage(ABC):
    """Atomic reads and writes of small files below a directory.

    Names are relative to the directory. Errors name the file, with the reason.

    Args:
        root: the directory, a path or a URI.

    Attributes:
        root: the directory, as Spark can open it.
        local_path: the directory's path on this machine; ``None`` on another file system.
    """

    def __init__(self, root: str, local_path: str | None = None) -> None:
        self.root = root
        self.local_path = local_path

    @property
    def is_local(self) -> bool:
        """True if the directory is on a file system of this machine."""
        return self.local_path is not None

    @property
    def is_on_disk(self) -> bool:
        """True if a local directory is on a disk, which no other machine uses at the same time."""
        # A network file system has no driver of its own, which the major number would name.
        return os.major(os.stat(str(self.local_path)).st_dev) > 0

    @property
    def uri(self) -> str:
        """The directory's URI, as Spark writes it into files."""
        return self.root

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Return True if a file or directory of this name exists."""

    @abstractmethod
    def names(self, name: str) -> list[str]:
        """Return the names in a directory, sorted; empty if the directory does not exist.

        Spark writes a file as ``.<name>.<uuid>.tmp`` and renames it. A temporary file of a process
        that has died is no part of a checkpoint.
        """

    def read(self, name: str) -> Json:
        """Read a JSON file.

        Raises:
            CheckpointError: when the file is missing or is not JSON.
        """
        try:
            return json.loads(self.read_bytes(name))
        except ValueError as error:
            problem = f"{self.root}/{name} is not JSON: {first_line(error)}"
            raise CheckpointError(problem) from error

    def read_bytes(self, name: str) -> bytes:
        """Read a file.

        Raises:
            CheckpointError: when the file cannot be read.
        """
        with self._explained("read", name):
            return self._read(name)

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
        with self._explained("written", name):
            self._write(name, data)

    def create(self, name: str, content: Json) -> ExitStack | None:
        """Write a JSON file unless it exists: of several calls at a time, one writes it.

        This holds for calls of any process and machine.

        Args:
            name: the file.
            content: the content, which no other call has.

        Returns:
            The lock of the file, for `is_locked`, until it is closed here and in processes forked
            meanwhile; ``None`` if the file exists.

        Raises:
            CheckpointError: when the file cannot be written, or the store does not promise that
                one call writes it.
        """
        with self._explained("written", name):
            try:
                return self._create(name, _as_bytes(content))
            except FileExistsError:
                return None

    def is_locked(self, name: str) -> bool | None:  # noqa: ARG002
        """Return True if a process holds the lock of a file that `create` made.

        The operating system releases the lock as the process ends, in whatever way. All containers
        of a machine see it.

        Returns:
            ``None`` if unknown: on a store that is not local, and where files have no locks.
        """
        return None

    def remove(self, name: str) -> None:
        """Remove a file or directory, if it exists."""
        with self._explained("removed", name):
            self._remove(name)

    def move(self, name: str, target: str) -> None:
        """Move a file, and create the directories above the target.

        After a kill the file is in its old place, in its new one, or in both.

        Raises:
            CheckpointError: when the file cannot be moved.
        """
        with self._explained("moved", name):
            self._move(name, target)

    def check_seen_by(self, spark: SparkSession, name: str) -> None:
        """Check that Spark, which writes its own files there, finds a file in the same place.

        Raises:
            CheckpointError: when Spark does not.
        """
        del spark, name  # Spark has the same file system of the machine, or of Hadoop.

    @abstractmethod
    def _read(self, name: str) -> bytes: ...

    @abstractmethod
    def _write(self, name: str, data: bytes) -> None: ...

    @abstractmethod
    def _create(self, name: str, data: bytes) -> ExitStack:
        """Write a file; raise `FileExistsError` if it exists."""

    @abstractmethod
    def _remove(self, name: str) -> None: ...

    @abstractmethod
    def _move(self, name: str, target: str) -> None: ...

    @contextlib.contextmanager
    def _explained(self, what: str, name: str = "") -> Iterator[None]:
        """Raise exceptions as a `CheckpointError` with path and reason; not of an ended JVM."""
        try:
            yield
        except Exception as error:
            is_end_of_jvm = isinstance(error, JVM_ERRORS) and not isinstance(error, Py4JJavaError)
            if isinstance(error, FlowError) or is_end_of_jvm:
                raise
            where = f"{self.root}/{name}" if name else self.root
            raise CheckpointError(f"{where} cannot be {what}: {_reason(error)}") from None


class LocalStorage(Storage):
    """Files of this machine's file system, mounted volumes included."""

    def __init__(self, root: str) -> None:
        # A path may begin with two slashes, after which Hadoop expects the name of a host.
        path = re.sub("^file:(//[^/]*)?", "", root) if URI.match(root) else os.path.abspath(root)
        self._path = path.rstrip("/").replace("//", "/") or "/"
        super().__init__(root.rstrip("/") if URI.match(root) else self._path, self._path)
        # A file in a directory that this user may not read seems not to exist.
        with self._explained("opened"), contextlib.suppress(FileNotFoundError):
            os.listdir(self._path)

    @property
    def uri(self) -> str:
        return f"file:{self._path}"

    def exists(self, name: str) -> bool:
        return os.path.exists(self._at(name))

    def names(self, name: str) -> list[str]:
        with self._explained("listed", name):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                return _finished(os.listdir(self._at(name)))
            return []

    def is_locked(self, name: str) -> bool | None:
        try:
            with open(self._at(name), "rb") as file:
                return False if lock_file(file.fileno(), shared=True) else None
        except BlockingIOError:
            return True
        except OSError:
            return None

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _read(self, name: str) -> bytes:
        with open(self._at(name), "rb") as file:
            return file.read()

    def _write(self, name: str, data: bytes) -> None:
        self._make_folder_of(name)
        # A kill after a write would leave an old checksum of Hadoop beside the new file, which
        # would then be unreadable.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._at(checksum_name(name)))
        with _temporary_file(self._at(name), data) as temporary:
            os.replace(temporary, self._at(name))

    def _create(self, name: str, data: bytes) -> ExitStack:
        self._make_folder_of(name)
        with _temporary_file(self._at(name), data) as temporary, ExitStack() as lock:
            descriptor = os.open(temporary, os.O_RDWR)
            lock.callback(os.close, descriptor)
            # Others see a file that is locked already: without a lock, it has no living owner.
            if not lock_file(descriptor):
                lock.close()
            try:
                os.link(temporary, self._at(name))
            except FileExistsError:
                raise
            except OSError:  # The file system has no hard links: the last of two calls stays.
                os.rename(temporary, self._at(name))
            return lock.pop_all()

    def _remove(self, name: str) -> None:
        path = self._at(name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        for each in (checksum_name(name), name):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._at(each))

    def _move(self, name: str, target: str) -> None:
        self._make_folder_of(target)
        # The checksum is moved first: a file without a checksum is whole.
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._at(checksum_name(name)), self._at(checksum_name(target)))
        os.rename(self._at(name), self._at(target))

    def _make_folder_of(self, name: str) -> None:
        """Create the directory of a file; the root with access for its owner only."""
        for folder, mode in ((self._path, 0o700), (os.path.dirname(self._at(name)), 0o777)):
            with contextlib.suppress(FileExistsError):
                os.makedirs(folder, mode)


class ObjectStorage(Storage):
    """Objects below a prefix of a bucket, by obstore, which takes credentials as its SDKs do.

    A store that ignores the condition of an exclusive create would give the lock to two runs, and
    is refused.
    """

    def __init__(self, root: str) -> None:
        super().__init__(root.rstrip("/"))
        scheme, _, rest = self.root.partition("://")
        host, _, path = rest.partition("/")
        with package_of_extra("stores", "obstore", f"a checkpoint on {scheme}://"):
            import obstore.store
        self._obstore = obstore
        with self._explained("opened"):
            self._store = obstore.store.from_url(f"{scheme}://{host}/{quote(path)}")

    def exists(self, name: str) -> bool:
        with self._explained("looked up", name):
            with contextlib.suppress(FileNotFoundError):
                if name and self._obstore.head(self._store, name):
                    return True
            return any(self._below(name))

    def names(self, name: str) -> list[str]:
        with self._explained("listed", name):
            found = self._obstore.list_with_delimiter(self._store, name or None)
        paths = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        # Hadoop marks a directory with an object of its name.
        return _finished(path.rpartition("/")[2] for path in paths if path != name)

    def check_seen_by(self, spark: SparkSession, name: str) -> None:
        try:
            if HadoopStorage(spark, self.root).read_bytes(name) == self.read_bytes(name):
                return
            reason = "Spark finds another file of this name there"
        except CheckpointError as error:
            reason = str(error)
        raise CheckpointError(
            f"Spark does not reach the checkpoint as this process does: {reason}. Spark keeps its "
            "own files there too, by a file system of Hadoop: add its jar (hadoop-aws for s3a://, "
            "hadoop-azure for abfss://, the connector of Google Cloud Storage for gs://), and give "
            "it the same endpoint, account and rights"
        )

    def _read(self, name: str) -> bytes:
        return bytes(self._obstore.get(self._store, name).bytes())

    def _write(self, name: str, data: bytes) -> None:
        self._obstore.put(self._store, name, data)

    def _create(self, name: str, data: bytes) -> ExitStack:
        for is_first in (True, False):
            try:
                self._obstore.put(self._store, name, data, mode="create")
            except self._obstore.exceptions.AlreadyExistsError:
                # A request that was sent again finds the file that it has made itself.
                if is_first and self._read(name) != data:
                    raise FileExistsError(name) from None
                return ExitStack()
        self._remove(name)
        raise CheckpointError(
            f"{self.root} cannot have a checkpoint: the store ignores the condition that a file "
            "must not exist (If-None-Match: *), so two runs could have the lock at the same time"
        )

    def _remove(self, name: str) -> None:
        self._obstore.delete(self._store, list(self._below(name)))
        with contextlib.suppress(FileNotFoundError):
            self._obstore.delete(self._store, name)

    def _move(self, name: str, target: str) -> None:
        self._obstore.rename(self._store, name, target)

    def _below(self, name: str) -> Iterator[str]:
        """Yield the paths of all objects below a name."""
        for batch in self._obstore.list(self._store, name or None):
            yield from (each["path"] for each in batch)


CHUNK = 1 << 20
"""The most bytes in a call to the JVM; Py4J encodes them as a text several times as long."""


class HadoopStorage(Storage):
    """Files that a file system of Hadoop reaches, through the JVM of a session.

    Args:
        spark: the session whose Hadoop configuration is used.
        root: the directory.

    Raises:
        EnvironmentProblem: when the session has no JVM in reach.
    """

    def __init__(self, spark: Any, root: str) -> None:
        super().__init__(root.rstrip("/"))
        self._jvm = java_of(spark, f"a checkpoint on {without_credentials(root)}")
        self._spark = spark
        with self._explained("opened"):
            self._fs = self._path("").getFileSystem(spark._jsc.hadoopConfiguration())

    @cached_property
    def _files(self) -> Any:
        managers = reduce(
            getattr, file_managers(self._jvm, self._spark.version).split("."), self._jvm
        )
        conf = self._spark._jsc.hadoopConfiguration()
        return managers.CheckpointFileManager.create(self._path(""), conf)

    @property
    def uri(self) -> str:
        return str(self._fs.makeQualified(self._path("")).toString())

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(name)))

    def names(self, name: str) -> list[str]:
        path = self._path(name)
        if not self._fs.exists(path):
            return []
        return _finished(status.getPath().getName() for status in self._fs.listStatus(path))

    def stream(self, name: str) -> contextlib.closing[Any]:
        """Return a Java stream of a file's content, for a ``with`` block."""
        return contextlib.closing(self._fs.open(self._path(name)))

    def _read(self, name: str) -> bytes:
        with self.stream(name) as stream:
            return b"".join(_chunks_of(stream))

    def _write(self, name: str, data: bytes) -> None:
        self._put(name, data, overwrite=True)

    def _create(self, name: str, data: bytes) -> ExitStack:
        scheme = str(self._fs.getUri().getScheme())
        if scheme not in _EXCLUSIVE:
            raise CheckpointError(
                f"{self.root} cannot have a checkpoint: a file system of Hadoop for {scheme}:// is "
                "not known to refuse the second of two creates of a file, so two runs could have "
                "the lock at the same time: use hdfs://, s3a://, gs://, abfss:// or a volume"
            )
        try:
            self._put(name, data, overwrite=False)
        except Py4JJavaError:
            if self.exists(name):
                raise FileExistsError(name) from None
            raise
        return ExitStack()

    def _put(self, name: str, data: bytes, overwrite: bool) -> None:
        if not self._fs.exists(self._path("")):
            owner_alone = self._jvm.org.apache.hadoop.fs.permission.FsPermission("700")
            self._fs.mkdirs(self._path(""), owner_alone)
        self._files.mkdirs(self._path(name).getParent())
        stream = self._files.createAtomic(self._path(name), overwrite)
        try:
            for start in range(0, len(data), CHUNK):
                stream.write(data[start : start + CHUNK])
            stream.close()
        except Exception:
            stream.cancel()
            raise

    def _remove(self, name: str) -> None:
        self._fs.delete(self._path(name), True)

    def _move(self, name: str, target: str) -> None:
        path, new = self._path(name), self._path(target)
        self._fs.mkdirs(new.getParent())
        if not self._fs.rename(path, new):
            raise OSError(f"the file system refused to rename it to {new.toString()}")

    def _path(self, name: str) -> Any:
        whole = f"{self.root}/{name}" if name else self.root
        return self._jvm.org.apache.hadoop.fs.Path(whole)


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


def _finished(names: Iterable[str]) -> list[str]:
    """Return the names of files in a listing, sorted, without unfinished ones and checksums."""
    return sorted(name for name in names if not _UNFINISHED.fullmatch(name))


def _chunks_of(stream: Any) -> Iterator[bytes]:
    """Read a Java stream to its end, at most a chunk in each call."""
    size = CHUNK
    while size == CHUNK:
        chunk = bytes(stream.readNBytes(CHUNK))
        size = len(chunk)
        yield chunk


def checksum_name(name: str) -> str:
    """Return the name of Hadoop's checksum of a file on a local disk."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}.{last}.crc"


_MESSAGE = re.compile(r"<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", re.DOTALL)
"""The reason of an object store."""


def _reason(error: Exception) -> str:
    """Return the message of an exception, of its Java exception or of a store, as one line."""
    java = error.java_exception.toString() if isinstance(error, Py4JJavaError) else None
    message = first_line(error) if java is None else str(java).splitlines()[0]
    if store := _MESSAGE.search(str(error)):
        message = f"{store[1]}: {store[2]}"
    if tells_of_a_full_disk(message):
        return f"{message}; make room there and run the flow again"
    return without_credentials(message)
