"""Failures of Spark: their causes in one line, full disks, and the end of its JVM or session.

Causes are named without the wrappers of Spark and Py4J. Spark often hides a full disk: its state
server ends on a full disk, and only Spark's log has the reason; a worker then finds its socket
closed, and Spark reports the closed socket. A failed task's files are removed, so the disk may have
room again when the driver gets the error. A worker that loses its state therefore checks the disks
at once, see `flow.engine.spark.spark_store`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from py4j.clientserver import FinalizerWorker
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from flow.engine.spark.session.jvm import SPARK_LOG
from flow.engine.spark.session.session_settings import is_local, is_remote
from flow.errors import CheckpointError, EngineError, FlowError, error_message, first_line

JVM_ERRORS = (Py4JError, ConnectionError)
"""Exceptions of calls into a JVM that has ended; they may also have other causes."""
_WORKER = "Error from python worker:\n"
_END = "\n"
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+(\S.*)")
"""The exception at the end of a Python traceback."""
_LOST = re.compile(
    r"\b(StateLost|EOFError|BrokenPipeError|ConnectionResetError|EOFException|SocketException)\b"
    r"|Broken pipe|Connection reset|RocksDBException"
)
"""Signs of a closed socket or of lost state."""
_STATE_LOST = "StateLost:"
_MORE_FOR_WORKERS = (
    "leave more memory to Python workers with fewer cores in master= (each core has a worker), a "
    "smaller driver_memory=, or a larger container or machine; on a cluster, set "
    "spark.executor.memoryOverhead higher or spark.executor.cores lower"
)
WORKER_DIED = (
    "a Python worker was killed or crashed (by SIGKILL, exit code 137, if the machine or the "
    "container ran out of memory, which dmesg or the container's events show): "
    f"{_MORE_FOR_WORKERS}. If memory was "
    "free, a native library may have crashed: set spark.python.worker.faulthandler.enabled=true, "
    "and Spark's log shows where"
)
EXECUTOR_KILLED = (
    f"an executor was killed (exit code 137), most often for memory: {_MORE_FOR_WORKERS}"
)
HEAP_FULL = (
    "the heap of Spark's JVM is full: set driver_memory= higher, or on a cluster "
    "spark.executor.memory"
)
LATE_WORKER = (
    "a Python worker did not connect to Spark within its ten seconds, because the machine was "
    "overloaded or out of memory: run the flow again when the machine does less, or with fewer "
    "cores in master="
)
_DEEPEST = 20
"""The maximum depth of causes: a Java exception may be a cause of itself."""
_WRAPPERS = (
    "An error occurred while calling ",
    "Exception thrown in awaitResult",
    "Multiple failures in stage materialization",
)

_MEMORY = {
    r"\b(?:code|status)[ :=]*137\b|\bSIGKILL\b|\bOOMKilled\b"
    r"|[Cc]ontainer killed by YARN for exceeding": EXECUTOR_KILLED,
    r"Python worker exited unexpectedly \(crashed\)": WORKER_DIED,
    r"OutOfMemoryError: (?:Java heap space|GC overhead limit exceeded)": HEAP_FULL,
    "Python worker failed to connect back": LATE_WORKER,
}
"""Texts that explain too little memory by their signs, the most certain first."""

NO_SPACE = "No space left on device"
_FULL = (NO_SPACE, "Disk quota exceeded")
_LITTLE_BYTES = 1 << 20
"""The number of free bytes below which a disk counts as full."""
_MUCH_MORE = 16
"""The ratio of free space between two disks above which only the disk with less may be full."""
_FILE = "file:"

JVM_ENDED = (
    "Spark's JVM has ended; was it killed, or out of memory? Start the program, or the notebook's "
    "kernel, again"
)
SESSION_STOPPED = (
    "the Spark session was stopped while the flow ran on it, by spark.stop() or the like: let "
    "run() return first, or ask it to (stop=StopFlag()); run again, the flow continues from its "
    "checkpoint, if it has one"
)


class StateLost(Exception):
    """Error of a task whose connection Spark's state server has closed.

    Only Spark's log may have the reason. The class is not a `FlowError`, which would not fail the
    task: Spark must fail the task, because it cannot commit the state.
    """


def spark_problem(error: BaseException | None, disks: RunDisks | None = None) -> str:
    """Return the cause of a failure: a worker, a full disk, too little memory, or the outermost.

    The innermost causes are too general: for a worker that has died, the end of a stream.

    Args:
        error: the failure.
        disks: disks of the run; ``None`` if the full disk need not be named.
    """
    messages = list(_messages(error))
    for message in messages:
        if _WORKER in message:
            return _no_worker(message.partition(_WORKER)[2])
    full = full_disk_problem(error, disks)
    if full is not None:
        return full
    for sign, problem in _MEMORY.items():
        if any(re.search(sign, message) for message in messages):
            return problem
    for message in messages:
        exceptions = _RAISED.findall(message)
        if exceptions:  # A traceback has an exception's causes before the exception.
            return _raised_by_python(exceptions[-1].strip())
    lines = [message.partition(_END)[0] for message in messages]
    shown = (line for line in lines if line and not line.startswith(_WRAPPERS))
    return next(shown, lines[0] or first_line(error))


def full_disk_problem(error: BaseException | None, disks: RunDisks | None) -> str | None:
    """Return the text about a full disk that caused a failure; ``None`` for other causes."""
    messages = list(_messages(error))
    if any(map(tells_of_a_full_disk, messages)):
        return NO_SPACE if disks is None else disks.explain(messages)
    if disks is not None and any(map(_LOST.search, messages)):
        log = SPARK_LOG.written_since(disks.log_start)
        if tells_of_a_full_disk(log) or disks.full():
            return disks.explain([log])
    return None


def _raised_by_python(line: str) -> str:
    """Return the error text of an exception that a Python function raised in a task."""
    if _STATE_LOST in line:
        cause = line.partition(_STATE_LOST)[2].strip()
        return f"Spark's state server closed the connection ({cause}) and does not say why"
    return f"a function that Spark ran in Python raised {line}"


def _no_worker(output: str) -> str:
    """Return the error text, with advice, of a worker that did not start, from its output."""
    problem = f"Spark could not start its Python workers: {output.strip().partition(_END)[0]}"
    if "No module named" not in problem:
        return problem
    return (
        f"{problem}. Install this package where they run, or put the folder that it is in on "
        "PYTHONPATH before Spark starts"
    )


def _messages(error: BaseException | None) -> Iterator[str]:
    """Yield the first line of an exception, then the messages of its Java causes from outside.

    An exception without Java causes is whole. Up to Spark 4.1, only its own message has the
    traceback of a Python worker.
    """
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    yield first_line(error) if java is not None else error_message(error).strip()
    for _ in range(_DEEPEST):
        if java is None:
            return
        yield str(java.getMessage() or java.toString()).strip()
        java = java.getCause()


def tells_of_a_full_disk(text: str) -> bool:
    """Return True if a message reports a full disk or an exceeded quota."""
    return any(phrase in text for phrase in _FULL)


@dataclass(frozen=True)
class RunDisks:
    """Directories that a run writes to beside its outputs.

    Attributes:
        checkpoint: path or URI of the checkpoint; ``None`` without one.
        local: Spark's directories for temporary files on this machine.
        log_start: the length of Spark's log at the start of the run, in bytes.
    """

    checkpoint: str | None = None
    local: tuple[str, ...] = ()
    log_start: int = 0

    def full(self) -> tuple[str, ...]:
        """Return the local directories whose file system is full."""
        return tuple(path for path in self._all() if _free_bytes(path) < _LITTLE_BYTES)

    def explain(self, messages: Iterable[str] = ()) -> str:
        """Return one line that names the full disk and gives advice.

        Args:
            messages: messages of the failure, which may name a file on the full disk.
        """
        suspects = self._named(messages) or self.full() or self._least_free()
        if len(suspects) == 1:
            return f"{NO_SPACE} on the disk of {self._name(suspects[0])}: {self._advice(suspects)}"
        names = " or ".join(
            f"{self._name(path)} ({_megabytes(_free_bytes(path))} free now)" for path in suspects
        )
        return f"{NO_SPACE} on the disk of {names}: {self._advice(suspects)}"

    def _all(self) -> tuple[str, ...]:
        return (*([] if self.checkpoint is None else [self.checkpoint]), *self.local)

    def _name(self, directory: str) -> str:
        if directory == self.checkpoint:
            return f"the checkpoint, {directory}"
        return f"Spark's temporary files, {directory}"

    def _advice(self, suspects: tuple[str, ...]) -> str:
        if suspects == (self.checkpoint,):
            return "make room there and run the flow again"
        return "make room there, or set spark.local.dir to another disk, and run the flow again"

    def _named(self, messages: Iterable[str]) -> tuple[str, ...]:
        """Return the directories named in lines about a full disk."""
        named: set[str] = set()
        for text in messages:
            # Spark's log names the file in the line before the exception.
            for before, line in pairwise(["", *text.splitlines()]):
                if tells_of_a_full_disk(line):
                    paths = [path for path in self._all() if _path(path) in f"{before} {line}"]
                    # A directory may be below another, whose path then is in the line as well.
                    named.update(sorted(paths, key=len)[-1:])
        return tuple(path for path in self._all() if path in named)

    def _least_free(self) -> tuple[str, ...]:
        """Return the directories whose free space is near the least; all if it is unknown."""
        free = {path: _free_bytes(path) for path in self._all()}
        least = min(free.values(), default=0)
        if least == float("inf"):
            return self._all()
        return tuple(path for path, space in free.items() if space <= _MUCH_MORE * least)


def _path(directory: str) -> str:
    """Return the path of a local directory given as a path or a URI."""
    is_uri = directory.startswith(_FILE)
    return "/" + directory[len(_FILE) :].lstrip("/") if is_uri else directory


def _free_bytes(directory: str) -> float:
    """Return the free bytes of a directory's file system for this user; infinite if unknown."""
    path = _path(directory)
    if ":" in path.partition("/")[0]:  # The directory is the URI of another file system.
        return float("inf")
    try:
        stat = os.statvfs(path)
    except OSError:
        return float("inf")
    if stat.f_files and not stat.f_favail:  # Without free inodes, no file of any size can be made.
        return 0
    return stat.f_bavail * stat.f_frsize


def _megabytes(size: float) -> str:
    return "unknown" if size == float("inf") else f"{size / 1e6:,.1f} MB"


def disks_of(spark: Any, checkpoint: str | None = None) -> RunDisks:
    """Return the directories that a run writes to beside its outputs, as the run starts.

    Args:
        spark: the session.
        checkpoint: path or URI of the checkpoint.
    """
    local: tuple[str, ...] = ()
    if is_local(spark):
        jvm: Any = spark._jvm
        local = tuple(jvm.org.apache.spark.util.Utils.getConfiguredLocalDirs(spark._jsc.getConf()))
    return RunDisks(checkpoint, local, SPARK_LOG.size())


@contextlib.contextmanager
def jvm_needed(spark: SparkSession) -> Iterator[None]:
    """Replace errors that the end of Spark's JVM, or of its session, causes in the block.

    Raises:
        EngineError: when the JVM or the session has ended.
    """
    with _quiet_py4j():
        try:
            yield
        except Exception as error:
            if _is_of_the_jvm(error) and not _answers(spark):
                raise EngineError(f"{JVM_ENDED} (Spark's log: {SPARK_LOG})") from error
            if str(error) != SESSION_STOPPED and _is_of_spark(error) and is_stopped(spark):
                raise EngineError(SESSION_STOPPED) from error
            raise


def is_stopped(spark: Any) -> bool:
    """Return True if a session has been stopped, from Python or in the JVM."""
    if is_remote(spark):
        return bool(spark.is_stopped)
    java: Any = spark.sparkContext._jsc
    if java is None:
        return True
    try:
        return bool(java.sc().isStopped())
    except JVM_ERRORS:  # The JVM has ended, which is another failure.
        return False


@contextlib.contextmanager
def _quiet_py4j() -> Iterator[None]:
    """Suppress Py4J's log of failed calls, and of exceptions in callbacks, which the run raises.

    Py4J's own thread reports released objects to the JVM, and outlives a run. Its log stays
    suppressed, because it has no use for users.
    """
    root, callbacks = logging.getLogger(), logging.getLogger("py4j.clientserver")
    root.addFilter(_not_of_finalizers)
    # A filter of its own for each run: runs of several threads may overlap.
    quiet = partial(_not_of_py4j)
    root.addFilter(quiet)
    callbacks.addFilter(quiet)
    try:
        yield
    finally:
        root.removeFilter(quiet)
        callbacks.removeFilter(quiet)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _not_of_finalizers(_: logging.LogRecord) -> bool:
    return not isinstance(threading.current_thread(), FinalizerWorker)


def _is_of_the_jvm(error: BaseException | None) -> bool:
    """Return True if the end of the JVM may be the cause of an error."""
    while error is not None:
        if isinstance(error, JVM_ERRORS):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_of_spark(error: BaseException) -> bool:
    """Return True if a stopped session, not a step or a sink, may be the cause of an error."""
    if not isinstance(error, FlowError) or isinstance(error, (EngineError, CheckpointError)):
        return True
    cause = error.__cause__
    packages = {"py4j", "pyspark"}
    return _is_of_the_jvm(error) or type(cause).__module__.partition(".")[0] in packages


def _answers(spark: SparkSession) -> bool:
    """Return True if the JVM of a session runs, or is not that of this process."""
    if is_remote(spark):
        return True
    jvm: Any = spark._jvm
    try:
        jvm.java.lang.System.nanoTime()
    except JVM_ERRORS:
        return False
    return True
