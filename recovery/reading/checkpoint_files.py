"""The files of a checkpoint: small ones, which need no Spark, and those of Spark's state."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from flow.connectors.source import Json
from flow.engine.checkpoint.checkpoint import CHANGE, check_settled
from flow.engine.checkpoint.identity import NAME
from flow.engine.checkpoint.lock import CheckpointLock, Claim, holder_of
from flow.engine.checkpoint.storage import HadoopStorage, Storage, checksum_name, open_storage
from flow.engine.temporary import temporary_directory
from flow.errors import CheckpointError, first_line
from recovery.reading.file_problems import CHANGED, FileProblem, java_reason

_SAME_IN_A_URI = re.compile(r"[\w/.,;:!~*'()&=+$@-]*")


@dataclass(frozen=True)
class CheckpointFiles:
    """The small files below a checkpoint's directory; names are relative to it.

    Attributes:
        storage: the directory.
        IDENTITY: the name of the checkpoint's identity.
        CHANGE: the name of the journal of a tool that changes the checkpoint.
    """

    storage: Storage

    IDENTITY = NAME
    CHANGE = CHANGE

    @property
    def root(self) -> str:
        """The checkpoint's directory."""
        return self.storage.root

    def locked(self, *, changes: bool = True) -> AbstractContextManager[object]:
        """Return the lock of the checkpoint, for a block that changes it.

        Args:
            changes: False for a block that only reads; it needs the lock if a run may hold it.
        """
        needs_lock = changes or self.holder()
        return CheckpointLock(self.storage) if needs_lock else contextlib.nullcontext()

    def holder(self) -> Claim | None:
        """Return the claim that has the lock of the checkpoint; ``None`` without one."""
        return holder_of(self.storage)

    def check_settled(self) -> None:
        """Check that no interrupted tool has left the checkpoint changed in part.

        Raises:
            CheckpointError: if a tool has; the error has the command that finishes the change.
        """
        check_settled(self.storage)

    def text(self, name: str) -> str:
        """Read a text file.

        Raises:
            FileProblem: if the file is missing, truncated or changed, or is not text.
        """
        try:
            return self.content(name).decode()
        except UnicodeDecodeError as error:
            raise FileProblem(name, f"is not text: {first_line(error)}") from error

    def write_text(self, name: str, text: str) -> None:
        """Replace a text file atomically.

        Raises:
            CheckpointError: if the file cannot be written; the old file is unchanged.
        """
        self.storage.write_bytes(name, text.encode())

    def content(self, name: str) -> bytes:
        """Read a file, and compare it with Hadoop's checksum, which a local file may have.

        Raises:
            FileProblem: if the file is missing, truncated or changed.
        """
        if not self.storage.exists(name):
            raise FileProblem(name, "is missing")
        try:
            content = self.storage.read_bytes(name)
            checksum = checksum_name(name)
            has_checksum = self.storage.is_local and self.storage.exists(checksum)
            kept = self.storage.read_bytes(checksum) if has_checksum else b""
        except CheckpointError as error:
            reason = first_line(error).rpartition(" cannot be read: ")[2]
            raise FileProblem(name, f"cannot be read: {reason}") from error
        if kept and kept != _checksum(content, kept):
            raise FileProblem(name, CHANGED)
        return content

    @contextlib.contextmanager
    def readable_by_spark(self) -> Iterator[str]:
        """Yield a path to the directory that Spark's reader of state can open, during the block.

        The reader converts a path to a URI and opens the URI as a path, so that it looks for
        ``a%20b`` if the directory is ``a b``. A local directory gets a link with a plain name.
        """
        path = self.storage.local_path
        if path is None or _SAME_IN_A_URI.fullmatch(path):
            yield self.root
            return
        with temporary_directory("link-") as folder:
            link = os.path.join(folder, "checkpoint")
            os.symlink(path, link, target_is_directory=True)
            yield link

    def snapshot_parts(self, name: str) -> list[tuple[str, int]]:
        """Return the shared files that a snapshot consists of, with their sizes in bytes.

        Raises:
            FileProblem: if the snapshot cannot be read.
        """
        try:
            with zipfile.ZipFile(io.BytesIO(self.storage.read_bytes(name))) as archive:
                if archive.testzip() is not None:
                    raise FileProblem(name, "has changed since it was written")
                metadata = archive.read("metadata").decode()
            content = json.loads(metadata.partition("\n")[2])
            return [(one["dfsSstFileName"], one["sizeBytes"]) for one in content["sstFiles"]]
        except FileProblem:
            raise
        except Exception as error:
            raise FileProblem(name, f"cannot be read: {first_line(error)}") from error


def _checksum(content: bytes, kept: bytes) -> bytes:
    """Return Hadoop's checksum of a content, in blocks of the size that a kept checksum has."""
    size = int.from_bytes(kept[4:8]) or 1
    blocks = [zlib.crc32(content[at : at + size]) for at in range(0, len(content), size)]
    return kept[:8] + struct.pack(f">{len(blocks)}I", *blocks)


class SparkFiles(HadoopStorage):
    """The files of Spark's state below a checkpoint's directory, which Spark's JVM reads."""

    def has(self, uri: str) -> bool:
        """Return True if a file exists at a URI, inside or outside of this directory."""
        folder, _, name = uri.rpartition("/")
        return open_storage(folder, self._spark).exists(name)

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        return int(self._fs.getFileStatus(self._path(name)).getLen())

    def check(self, name: str) -> None:
        """Read a whole file, and compare it with its checksums.

        Hadoop stores checksums beside files on file systems that have no checksums, and Spark
        stores a checksum beside each of its files.

        Raises:
            FileProblem: if the file is missing, truncated or changed.
        """
        if not self.exists(name):
            raise FileProblem(name, "is missing")
        size, kept = self.size(name), self._kept_checksum(name)
        if kept is not None and size != kept["mainFileSize"]:
            raise FileProblem(name, f"has {size} bytes, and had {kept['mainFileSize']}")
        try:
            checksum = self._checksum(name)
        except Exception as error:
            reason = java_reason(error)
            if reason.startswith("Checksum error"):
                raise FileProblem(name, CHANGED) from error
            raise FileProblem(name, f"cannot be read: {reason}") from error
        if kept is not None and checksum != kept["value"] & 0xFFFFFFFF:
            raise FileProblem(name, CHANGED)

    def _checksum(self, name: str) -> int:
        """Return the CRC32C of a file's content."""
        java: Any = self._jvm.java
        with self.stream(name) as stream:
            checked = java.util.zip.CheckedInputStream(stream, java.util.zip.CRC32C())
            checked.transferTo(java.io.OutputStream.nullOutputStream())
            return int(checked.getChecksum().getValue())

    def _kept_checksum(self, name: str) -> Json:
        try:
            kept = self.read(f"{name}.crc") if self.exists(f"{name}.crc") else None
        except CheckpointError as error:
            raise FileProblem(f"{name}.crc", "cannot be read") from error
        known = isinstance(kept, dict) and kept.get("algorithm") == "CRC32C"
        return kept if known else None

    def changelog_lineage(self, name: str, codec: str) -> list[tuple[int, str]]:
        """Return the versions that a changelog names, with their ids, in ascending order.

        In format 1 of state it names none. The changelog is read to its end.

        Args:
            name: the changelog, a file of Spark's state.
            codec: the compression codec of the changelog.

        Raises:
            FileProblem: if the changelog cannot be read.
        """
        try:
            java, spark = self._jvm.java.io, self._spark
            codec_of = self._jvm.org.apache.spark.io.CompressionCodec.createCodec
            with self.stream(name) as stream:
                unpacked = codec_of(spark._jsc.sc().conf(), codec).compressedInputStream(stream)
                data = java.DataInputStream(unpacked)
                has_lineage = data.readUTF() in _WITH_LINEAGE
                entries = json.loads(data.readUTF()) if has_lineage else []
                unpacked.transferTo(java.OutputStream.nullOutputStream())
            return sorted((one["version"], one["checkpointUniqueId"]) for one in entries)
        except Exception as error:
            raise FileProblem(name, f"cannot be read: {java_reason(error)}") from error


_WITH_LINEAGE = ("v3", "v4")
"""Versions of changelogs in format 2 of state."""
