"""Upkeep of Spark's state store, which bounds the files of a checkpoint.

Each epoch writes a file of changes for each partition of a level. In intervals
(`flow.engine.spark.session.settings.MAINTENANCE_INTERVAL`), Spark's maintenance thread uploads a
snapshot of the state and deletes the files that no retained epoch needs. A run that is shorter than
the interval has no maintenance.

Without upkeep, a checkpoint would grow with every short run, and each start would read all changes
since the checkpoint was made. A run that finds many changes therefore does the maintenance in the
tasks of its first epoch. The price is that the second epoch loads the state again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyspark.sql import DataFrame

from flow.engine.checkpoint.storage import Storage

MAX_CHANGES = 20
"""Epochs after the newest snapshot after which a run makes a snapshot in its first epoch: twice
Spark's own minimum, so that runs with regular maintenance make none."""

_IN_TASKS = "spark.sql.streaming.stateStore.unloadOnCommit"
"""Setting with which a task maintains and closes a store after its commit."""

_VERSION = re.compile(r"(\d+)(?:_[^.]*)?\.(zip|changelog)")


class Upkeep:
    """Maintenance in the first epoch of a run, if it is overdue.

    Args:
        storage: the checkpoint's directory.
        spark_checkpoint: the directory of Spark's own checkpoint in it.
    """

    def __init__(self, storage: Storage, spark_checkpoint: str) -> None:
        # All partitions of all levels write a version in each epoch, so reading one is enough.
        names = storage.names(f"{spark_checkpoint}/state/0/0")
        self._in_tasks = changes_since_snapshot(names) >= MAX_CHANGES

    @property
    def conf(self) -> dict[str, str]:
        """Spark configuration for the start of the query."""
        return {_IN_TASKS: "true"} if self._in_tasks else {}

    def end_first_epoch(self, frame: DataFrame) -> None:
        """Leave the maintenance of later epochs to Spark's thread.

        Args:
            frame: rows of an epoch that Spark has planned; its session is the session in which the
                query plans all its epochs.
        """
        if self._in_tasks:
            self._in_tasks = False
            frame.sparkSession.conf.unset(_IN_TASKS)


def changes_since_snapshot(names: Iterable[str]) -> int:
    """Return the number of versions after the newest snapshot, from the files of a store."""
    newest = {"zip": 0, "changelog": 0}
    for match in filter(None, map(_VERSION.fullmatch, names)):
        newest[match[2]] = max(newest[match[2]], int(match[1]))
    return max(0, newest["changelog"] - newest["zip"])
