"""Watches that a checkpoint stays where it is while a run uses it.

Spark makes directories anew when it writes to them, and keeps state in memory: without this a run
whose checkpoint was removed would go on to its end, and leave one that nothing can start from.
"""

from __future__ import annotations

import time

from flow.engine.checkpoint.checkpoint import NAME
from flow.engine.checkpoint.lock import SETTLE_SECONDS, CheckpointLock
from flow.engine.checkpoint.storage import Storage
from flow.errors import CheckpointError

LOOK_SECONDS = 2.0
"""How often to look while an epoch runs, or none."""
_SPARKS_NAME = "metadata"
"""A file that Spark writes when a query first starts on a checkpoint, and never again."""


class CheckpointWatch:
    """Finds out that files of a checkpoint have been removed.

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
        self._looked = time.monotonic()

    def look_now_and_then(self) -> None:
        """Check a checkpoint on this machine if it was not checked for `LOOK_SECONDS`.

        Raises:
            CheckpointError: see `check`.
        """
        if self._is_local and time.monotonic() - self._looked > LOOK_SECONDS:
            self.check()

    def check(self, last_epoch: int | None = None) -> None:
        """Check that the checkpoint is there.

        Args:
            last_epoch: the last epoch of the query that has been logged as done, if one has been.

        Raises:
            CheckpointError: when it was removed, or a part of it.
        """
        self._looked = time.monotonic()
        names = [NAME, f"{self._spark}/{_SPARKS_NAME}"]
        if last_epoch is not None:
            names.append(f"{self._spark}/commits/{last_epoch}")
        for name in names:
            if not self._is_there(name):
                raise CheckpointError(self._problem(name))
        if self._lock is not None:
            self._lock.check_there()

    def _is_there(self, name: str) -> bool:
        """Return True if a file is there, now or once whoever replaces it has done so."""
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
