"""Runs of a flow on a checkpoint, copies of checkpoints, and their files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from flow import Dataflow, Summary, run
from flow.engine.checkpoint.lock import CheckpointLock
from flow.engine.checkpoint.storage import open_storage
from recovery import RecoveryConfig
from tests.recovery.damage import replace


def run_flow(checkpoint: Path, flow: Dataflow, **options: Any) -> Summary:
    """Run a flow on a checkpoint; by default windows stay open, and system time is 0."""
    defaults = {"drain": False, "system_time": 0, "shards": 4, "partitions": 1}
    recovery = RecoveryConfig(checkpoint)
    return run(flow, spark=SparkSession.active(), **{"recovery": recovery, **defaults, **options})


class Prepared:
    """A checkpoint that is made once, and restored in its place for each test.

    Spark reads a checkpoint only in the place where it was made.
    """

    def __init__(self, checkpoint: Path, make: Callable[[Path], Any]) -> None:
        self._checkpoint = checkpoint
        make(checkpoint)
        self._saved = shutil.copytree(checkpoint, checkpoint.with_name("saved"))

    def restored(self) -> Path:
        """Return the checkpoint, as it was made."""
        shutil.rmtree(self._checkpoint)
        return Path(shutil.copytree(self._saved, self._checkpoint))


def tree(directory: Path) -> dict[str, bytes]:
    """Return the content of each file in a directory by path; folders are there, and empty."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() if path.is_file() else b""
        for path in sorted(directory.rglob("*"))
    }


def identity_of(checkpoint: Path) -> dict[str, Any]:
    """Return the content of ``flow.json``."""
    found: dict[str, Any] = json.loads((checkpoint / "flow.json").read_text("utf-8"))
    return found


def change_identity(checkpoint: Path, **changes: Any) -> None:
    """Change values in ``flow.json``."""
    replace(checkpoint / "flow.json", json.dumps({**identity_of(checkpoint), **changes}))


def used_by_a_run(checkpoint: Path) -> CheckpointLock:
    """Return the lock of a checkpoint, as a run holds it."""
    return CheckpointLock(open_storage(str(checkpoint)))
