"""Watch over the files of a checkpoint during a run.

Spark recreates directories when it writes to them, and keeps state in memory: without the watch, a
run whose checkpoint was removed would continue to its end and leave an unusable checkpoint.
"""

from __future__ import annotations

import time

from flow.engine.checkpoint.checkpoint import NAME
from flow.engine.checkpoint.lock import SETTLE_SECONDS, CheckpointLock
from flow.engine.checkpoint.storage import Storage
from flow.errors import CheckpointError

CHECK_SECONDS = 2.0
"""Seconds between two checks while the run waits for an epoch."""
_SPARKS_NAME = "metadata"
"""A file that Spark writes only when a query first starts on a checkpoint."""


class CheckpointWatch:
    """Check for removed files of a checkpoint.

    Args:
        storage: the checkpoint's directory.
        spark: the directory of Spark's own checkpoint in it.
        lock: the lock that the run holds; ``None`` for a checkpoint without one.
    """

    def __init__(self, storage: Storage, spark: str, lock: CheckpointLock | None) -> None:
        self._storage = storage
        self._spark = spark
        self._lock = lock
        self._is_local = storage.is_local
        self._checked_at = time.monotonic()

    def check_regularly(self) -> None:
        """Check a checkpoint on this machine if it was not checked for `CHECK_SECONDS`.

        Raises:
            CheckpointError: see `check`.
        """
        if self._is_local and time.monotonic() - self._checked_at > CHECK_SECONDS:
            self.check()

    def check(self, last_epoch: int | None = None) -> None:
        """Check that the checkpoint exists.

        Args:
            last_epoch: the last committed epoch of the query; ``None`` before the first.

        Raises:
            CheckpointError: when the checkpoint was removed in whole or in part.
        """
        self._checked_at = time.monotonic()
        names = [NAME, f"{self._spark}/{_SPARKS_NAME}"]
        if last_epoch is not None:
            names.append(f"{self._spark}/commits/{last_epoch}")
        for name in names:
            if not self._exists(name):
                raise CheckpointError(self._problem(name))
        if self._lock is not None:
            self._lock.check_there()

    def _exists(self, name: str) -> bool:
        """Return True if a file exists, now or after a replacement in progress."""
        if self._storage.exists(name):
            return True
        time.sleep(SETTLE_SECONDS)
        return self._storage.exists(name)

    def _problem(self, name: str) -> str:
        root = self._storage.root
        if not self._storage.exists(NAME):
            return (
                f"checkpoint {root} was removed while the flow ran on it: put it back from a copy, "
                "or start over with an empty directory and without what the outputs hold"
            )
        return (
            f"{root}/{name} was removed while the flow ran on the checkpoint: put it back from a "
            "copy, or start over with an empty directory and without what the outputs hold"
        )
