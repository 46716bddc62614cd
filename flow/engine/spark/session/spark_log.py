"""Log of the JVM that this process has started."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from flow.engine.temporary import ProcessDirectory, process_directory

_LOOKED_AT_BYTES = 4 << 20
"""Most bytes at the end of Spark's log that are searched for the cause of a failure."""


class SparkLog:
    """File for the output of Spark's JVM, if this process has started it.

    It may hold what the flow reads, so it lies in the process's private directory. It is removed
    with that directory, unless an error spoke of it or it was asked to be chatty: then it stays for
    some days (`flow.engine.temporary.KEPT_DAYS`).
    """

    def __init__(self) -> None:
        self._directory: ProcessDirectory | None = None

    def __str__(self) -> str:
        """The path, for an error that sends its reader there."""
        if self._directory is None:
            return "where the session that was there writes it"
        self._directory.keep_log()
        return str(self._directory.log)

    def opened(self) -> int:
        """Return the log's descriptor, which a JVM inherits with the lock that it holds."""
        self._directory = process_directory()
        return self._directory.log_descriptor

    def size(self) -> int:
        """Return its length in bytes; 0 where Spark was not started here."""
        if self._directory is None:
            return 0
        with contextlib.suppress(OSError):
            return self._directory.log.stat().st_size
        return 0

    def written_since(self, position: int) -> str:
        """Return what was written after a position, a length in bytes; at most the last of it."""
        size = self.size()
        if self._directory is None or size <= position:
            return ""
        with contextlib.suppress(OSError), self._directory.log.open("rb") as file:
            file.seek(max(position, size - _LOOKED_AT_BYTES))
            return file.read().decode("utf-8", "replace")
        return ""

    def keep(self) -> None:
        """Retain the log for some days, as if an error named it."""
        if self._directory is not None:
            self._directory.keep_log()


SPARK_LOG = SparkLog()


@contextlib.contextmanager
def output_to(spark_log: SparkLog) -> Iterator[None]:
    """Redirect the output of processes started in a ``with`` block to a file.

    The JVM inherits these streams, and with it all that it and its Python workers print.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    log = spark_log.opened()
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        yield
    finally:
        for saved, number in zip(kept, (1, 2), strict=True):
            os.dup2(saved, number)
            os.close(saved)
