"""Small files of a checkpoint, as a kill in the middle of writing leaves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flow.engine.checkpoint.storage import Storage

pytestmark = pytest.mark.spark


class Dying:
    """Spark's manager of checkpoint files, killed once a file is in its place.

    What comes after that is the file's checksum.
    """

    def __init__(self, storage: Storage, folder: Path) -> None:
        self._files: Any = storage._files
        self._folder = folder

    def mkdirs(self, path: Any) -> None:
        self._files.mkdirs(path)

    def createAtomic(self, path: Any, overwrite: bool) -> Any:
        before = {file: file.read_bytes() for file in self._folder.glob(".*.crc")}
        return _DyingStream(self._files.createAtomic(path, overwrite), self._folder, before)


class _DyingStream:
    def __init__(self, stream: Any, folder: Path, before: dict[Path, bytes]) -> None:
        self._stream = stream
        self._folder = folder
        self._before = before
        self.write = stream.write

    def close(self) -> None:
        self._stream.close()
        for file in self._folder.glob(".*.crc"):
            file.unlink()
        for file, content in self._before.items():
            file.write_bytes(content)


def test_a_file_replaced_just_before_a_kill_can_be_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    storage = Storage(spark, str(tmp_path))
    storage.write("flow.json", {"run": 1})
    assert (tmp_path / ".flow.json.crc").exists(), "there is a checksum that could be wrong"
    dying = Storage(spark, str(tmp_path))
    dying._files = Dying(dying, tmp_path)
    dying.write("flow.json", {"run": 2})
    assert storage.read("flow.json") == {"run": 2}
    storage.write("flow.json", {"run": 3})
    assert storage.read("flow.json") == {"run": 3}
