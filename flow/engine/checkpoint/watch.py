"""Watches that a checkpoint stays where it is while a run uses it.

Spark makes directories anew when it writes to them, and keeps state in memory: without this a run
whose checkpoint was removed would go on to its end, and leave one that nothing can start from.
"""

from __future__ import annotations

import time

from flow.engine.checkpoint.checkpoint import NAME
from flow.engine.checkpoint.lock import NAME as LOCK
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
        is_locked: whether the run holds the checkpoint's lock.
    """

    def __init__(self, storage: Storage, spark: str, is_locked: bool) -> None:
        self._storage = storage
        self._spark = spark
        self._needed = (NAME, f"{spark}/{_SPARKS_NAME}", *([LOCK] if is_locked else []))
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
        commit = [] if last_epoch is None else [f"{self._spark}/commits/{last_epoch}"]
        for name in (*self._needed, *commit):
            if not self._storage.exists(name):
                raise CheckpointError(self._problem(name))

    def _problem(self, name: str) -> str:
        root = self._storage.root
        if name == LOCK:
            return (
                f"{root}/{LOCK} was removed while this run held it: another run could have started "
                "on the checkpoint, so this one has stopped; make sure that none has, and run the "
                "flow again"
            )
        if not self._storage.exists(NAME):
            return (
                f"checkpoint {root} was removed while the flow ran on it: put it back from a copy, "
                "or start over with an empty directory and without what the outputs hold"
            )
        return (
            f"{root}/{name} was removed while the flow ran on the checkpoint: put it back from a "
            "copy, or start over with an empty directory and without what the outputs hold"
        )
