"""Small files of a checkpoint after a kill in the middle of a write."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flow.engine.checkpoint.storage import Storage
from recovery.reading.checkpoint_files import CheckpointFiles

pytestmark = pytest.mark.spark


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("after", [False, True], ids=["before the rename", "after the rename"])
def test_a_killed_write_leaves_the_old_or_the_new_file(
    after: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(spark, str(tmp_path))
    assert storage.create("flow.json", {"run": 1})
    # A checksum, as Hadoop writes one where it copies a checkpoint, which the next write outdates.
    (tmp_path / ".flow.json.crc").write_bytes(b"crc\0\0\0\x02\0\0\0\0\0")
    replace = os.replace

    def die(source: str, target: str) -> None:
        if after:
            replace(source, target)
        raise Killed

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(Killed):
        storage.write("flow.json", {"run": 2})
    monkeypatch.undo()
    assert storage.read("flow.json") == {"run": 2 if after else 1}
    assert storage.names("") == ["flow.json"]
    storage.write("flow.json", {"run": 3})
    assert storage.read("flow.json") == {"run": 3}


@pytest.mark.extended
@pytest.mark.parametrize("kind", [Storage, CheckpointFiles])
def test_a_file_exists_at_every_moment_of_its_replacement(
    kind: type[Storage], spark: SparkSession, tmp_path: Path
) -> None:
    storage = kind(spark, str(tmp_path))
    storage.write("flow.json", {"run": 0})
    path, found, stop = tmp_path / "flow.json", set[int](), threading.Event()

    def read_again_and_again() -> None:
        while not stop.is_set():
            try:
                found.add(json.loads(path.read_bytes())["run"])
            except (FileNotFoundError, ValueError):
                found.add(-1)

    reading = threading.Thread(target=read_again_and_again)
    reading.start()
    for number in range(1, 80):
        if isinstance(storage, CheckpointFiles):
            storage.write_text("flow.json", json.dumps({"run": number}))
        else:
            storage.write("flow.json", {"run": number})
    stop.set()
    reading.join()
    assert -1 not in found
    assert len(found) > 10
