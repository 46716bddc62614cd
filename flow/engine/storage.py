"""Small files beside a checkpoint, on any file system that Hadoop knows."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from flow.connectors.source import Json
from flow.errors import CheckpointError


class Storage:
    """Reads and writes small files below one directory.

    Args:
        spark: the session whose Hadoop configuration is used.
        root: the directory, a path or a URI.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self.root = root.rstrip("/")
        conf = spark._jsc.hadoopConfiguration()
        self._fs = self._path("").getFileSystem(conf)

    def exists(self, name: str) -> bool:
        """Whether there is a file or directory of this name."""
        return bool(self._fs.exists(self._path(name)))

    def names(self, name: str) -> list[str]:
        """The names in a directory, sorted; none when there is no such directory."""
        path = self._path(name)
        if not self._fs.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._fs.listStatus(path))

    def read(self, name: str) -> Json:
        """Read a JSON file.

        Raises:
            CheckpointError: when it is missing or is not JSON.
        """
        path = self._path(name)
        try:
            stream = self._fs.open(path)
            try:
                content = bytes(stream.readAllBytes())
            finally:
                stream.close()
            return json.loads(content)
        except Exception as error:
            raise CheckpointError(f"{path.toString()} cannot be read: {error}") from error

    def write(self, name: str, content: Json) -> None:
        """Write a JSON file, whole or not at all, in the place of what there was."""
        path, part = self._path(name), self._path(f"{name}.part")
        stream = self._fs.create(part, True)
        try:
            stream.write(json.dumps(content, indent=1).encode())
        finally:
            stream.close()
        if self._fs.exists(path):
            self._fs.delete(path, False)
        if not self._fs.rename(part, path):
            raise CheckpointError(f"{path.toString()} cannot be written")

    def log(self, name: str) -> StoredLog:
        """The log of this name."""
        return StoredLog(self, name)

    def _path(self, name: str) -> Any:
        whole = f"{self.root}/{name}" if name else self.root
        return self._jvm.org.apache.hadoop.fs.Path(whole)


class StoredLog:
    """A `SourceLog`: a directory with one numbered JSON file an entry."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self._name = name
        files = [one for one in storage.names(name) if one.endswith(".json")]
        self._entries = [storage.read(f"{name}/{file}") for file in files]

    def entries(self) -> list[Json]:
        """All that was ever appended, in order."""
        return list(self._entries)

    def append(self, entry: Json) -> None:
        """Add an entry; it is on disk when this returns."""
        self._storage.write(f"{self._name}/{len(self._entries):09d}.json", entry)
        self._entries.append(entry)
