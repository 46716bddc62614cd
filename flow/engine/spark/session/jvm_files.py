"""Temporary files of a JVM that this process starts: in the process's own directory.

The directory ``java.io.tmpdir`` has unpacked native libraries, the sockets of Python workers, and
Spark's files unless ``spark.local.dir`` or ``SPARK_LOCAL_DIRS`` is set. So this setting alone moves
all temporary files, and the user's own settings of Spark's directories keep their effect.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkContext, java_gateway

from flow.engine.spark.startup.environment import (
    SUBMIT_OPTIONS,
    environment,
    submit_options,
)
from flow.engine.temporary import ProcessDirectory, process_directory

_TEMPORARY = "java.io.tmpdir"
_JAVA_OPTIONS = (SUBMIT_OPTIONS, "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_LONGEST_FOR_SOCKETS = 104 - len("/.00000000-0000-0000-0000-000000000000.sock\0")
"""The greatest length, in bytes, of a directory's path with room for a socket's name. The path of a
socket has at most 104 bytes with the final zero on macOS, and 108 on Linux."""


def starts_jvm() -> bool:
    """Return True if the next session of this process starts a JVM."""
    return SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ


def directory_for_jvm() -> ProcessDirectory | None:
    """Return the directory for the next JVM; ``None`` if an option of the user sets another."""
    if any(_TEMPORARY in os.environ.get(name, "") for name in _JAVA_OPTIONS):
        return None
    return process_directory()


def has_room_for_sockets(directory: ProcessDirectory | None) -> bool:
    """Return True if paths of sockets in the JVM's temporary directory are short enough.

    Args:
        directory: the directory for the next JVM.
    """
    if SparkContext._gateway is not None:
        return _fits(_java_property(_TEMPORARY))
    return directory is None or _fits(str(directory.spark))


@contextlib.contextmanager
def started_in(directory: ProcessDirectory | None) -> Iterator[None]:
    """Set the temporary directory of JVMs that start in the block, and of PySpark's own files."""
    if directory is None:
        yield
        return
    path = str(directory.spark).replace("\\", "\\\\").replace('"', '\\"')
    options = submit_options(f'"-D{_TEMPORARY}={path}"', os.environ.get(SUBMIT_OPTIONS))
    # While PySpark starts a JVM, it makes a temporary directory for the JVM's answer.
    gateway: Any = java_gateway
    gateway.tempfile = _TempfileIn(directory.spark)
    try:
        with environment(options):
            yield
    finally:
        gateway.tempfile = tempfile


def leave_to_jvm(directory: ProcessDirectory | None) -> None:
    """Register removals at the JVM's end: of its files, and of files that this process leaves."""
    gateway: Any = SparkContext._gateway
    if directory is None or gateway is None or gateway.proc is None:
        return
    file, hooks = gateway.jvm.java.io.File, gateway.jvm.org.apache.spark.util.ShutdownHookManager
    hooks.registerShutdownDeleteDir(file(str(directory.spark)))
    # Java removes these after its hooks, in reverse order, and a directory only if it is empty.
    file(str(directory.path)).deleteOnExit()
    file(str(directory.ended_log)).deleteOnExit()
    directory.jvm = gateway.proc


def _fits(path: str) -> bool:
    return len(os.fsencode(path)) <= _LONGEST_FOR_SOCKETS


def _java_property(name: str) -> str:
    gateway: Any = SparkContext._gateway
    return str(gateway.jvm.java.lang.System.getProperty(name))


class _TempfileIn:
    """The module `tempfile` with another default directory for `mkdtemp`."""

    def __init__(self, directory: Path) -> None:
        self.mkdtemp: Callable[..., str] = partial(tempfile.mkdtemp, dir=directory)

    def __getattr__(self, name: str) -> Any:
        return getattr(tempfile, name)
