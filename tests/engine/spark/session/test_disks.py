"""Detection of a full disk from error messages and file systems."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from flow.engine.spark.session import spark_failures
from flow.engine.spark.session.spark_failures import RunDisks

MB = 1 << 20
NONE = "No space left on device"
DISKS = RunDisks("/data/checkpoint", ("/tmp",))
IN_THE_CHECKPOINT = (
    "No space left on device on the disk of the checkpoint, /data/checkpoint: make room there and "
    "run the flow again"
)
IN_TMP = (
    "No space left on device on the disk of Spark's temporary files, /tmp: make room there, or set "
    "spark.local.dir to another disk, and run the flow again"
)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Free bytes by directory; where there are none, the file system has no inode left."""
    known: dict[str, int] = {"/data/checkpoint": 900 * MB, "/tmp": 900 * MB}

    def statvfs(path: str) -> SimpleNamespace:
        blocks = known[path] // 4096
        return SimpleNamespace(f_bavail=blocks or 9, f_frsize=4096, f_files=5, f_favail=blocks)

    monkeypatch.setattr(spark_failures, "os", SimpleNamespace(statvfs=statvfs))
    return known


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (f"java.io.IOException: /data/checkpoint/spark/offsets/3 ({NONE})", IN_THE_CHECKPOINT),
        (f"RocksDBException: While appending to file: /tmp/spark-1/000008.log: {NONE}", IN_TMP),
        ("Disk quota exceeded: /tmp/blockmgr-1/temp", IN_TMP),
        (f"Error cancelling write to file:/data/checkpoint/x\nFSError: {NONE}", IN_THE_CHECKPOINT),
    ],
)
def test_a_named_file_names_its_disk(message: str, problem: str, free: dict[str, int]) -> None:
    assert DISKS.explain([message]) == problem


def test_a_checkpoint_inside_the_temporary_directory_is_distinguished(free: dict[str, int]) -> None:
    free["/tmp/checkpoint"] = 0
    below = RunDisks("file:///tmp/checkpoint", ("/tmp",))
    assert below.explain([f"/tmp/checkpoint/spark: {NONE}"]).startswith(
        f"{NONE} on the disk of the checkpoint, file:///tmp/checkpoint: "
    )
    assert below.full() == ("file:///tmp/checkpoint",)


@pytest.mark.parametrize(
    ("free_bytes", "problem"),
    [
        ({"/data/checkpoint": 0}, IN_THE_CHECKPOINT),
        ({"/tmp": MB - 4096}, IN_TMP),
        ({"/tmp": 20 * MB}, IN_TMP),
    ],
)
def test_without_a_name_the_fullest_disk_is_named(
    free_bytes: dict[str, int], problem: str, free: dict[str, int]
) -> None:
    free.update(free_bytes)
    assert DISKS.explain([NONE]) == problem


def test_if_neither_disk_is_full_both_are_named_with_free_space(free: dict[str, int]) -> None:
    free["/tmp"] = 300 * MB
    assert DISKS.explain() == (
        "No space left on device on the disk of the checkpoint, /data/checkpoint (943.7 MB free "
        "now) or Spark's temporary files, /tmp (314.6 MB free now): make room there, or set "
        "spark.local.dir to another disk, and run the flow again"
    )


def test_free_space_of_other_file_systems_is_unknown(tmp_path: os.PathLike[str]) -> None:
    away = RunDisks("hdfs://name:8020/flows/a", (f"{tmp_path}/not/there",))
    assert away.full() == ()
    assert "hdfs://name:8020/flows/a (unknown free now) or " in away.explain([NONE])
