"""Log of the JVM that this process starts."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from flow.engine.temporary import ProcessDirectory, process_directory

_SEARCH_BYTES = 4 << 20
"""The most bytes at the end of Spark's log to search for the cause of a failure."""


class SparkLog:
    """File for the output of Spark's JVM, if this process starts the JVM.

    The log may have data of the flow, so the file is in the process's private directory. It is
    removed with that directory. A log that an error names, or that has a verbose level, is retained
    for some days (`flow.engine.temporary.KEPT_DAYS`).
    """

    def __init__(self) -> None:
        self._directory: ProcessDirectory | None = None

    def __str__(self) -> str:
        """Return the path for an error, and retain the log."""
        if self._directory is None:
            return "that of the session that the run was given"
        self._directory.keep_log()
        return str(self._directory.log)

    def opened(self) -> int:
        """Return the log's descriptor, which a JVM inherits together with the log's lock."""
        self._directory = process_directory()
        return self._directory.log_descriptor

    def size(self) -> int:
        """Return the log's length in bytes; 0 if this process has not started Spark."""
        if self._directory is None:
            return 0
        with contextlib.suppress(OSError):
            return self._directory.log.stat().st_size
        return 0

    def written_since(self, position: int) -> str:
        """Return the log from a position in bytes on, at most the last `_SEARCH_BYTES` of it."""
        size = self.size()
        if self._directory is None or size <= position:
            return ""
        with contextlib.suppress(OSError), self._directory.log.open("rb") as file:
            file.seek(max(position, size - _SEARCH_BYTES))
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

    The JVM inherits standard output and error, and so do its Python workers.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    originals = os.dup(1), os.dup(2)
    log = spark_log.opened()
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        yield
    finally:
        for original, number in zip(originals, (1, 2), strict=True):
            os.dup2(original, number)
            os.close(original)
