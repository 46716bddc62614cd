"""Causes of Spark's failures as one line, without the wrappers of Spark and Py4J."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JError

from flow.engine.spark.session.disks import NO_SPACE, RunDisks, tells_of_a_full_disk
from flow.errors import error_message, first_line

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
_WORKER_DIED = "Python worker exited unexpectedly (crashed)"
_KILLED = re.compile(
    r"\b(?:code|status)[ :=]*137\b|\bSIGKILL\b|\bOOMKilled\b"
    r"|[Cc]ontainer killed by YARN for exceeding"
)
"""Signs of an executor that the system, or a cluster's manager, has killed."""
_HEAP_FULL = re.compile(r"OutOfMemoryError: (?:Java heap space|GC overhead limit exceeded)")
_LATE_WORKER = "Python worker failed to connect back"
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
_WRAPPERS = (
    "An error occurred while calling ",
    "Exception thrown in awaitResult",
    "Multiple failures in stage materialization",
)

_MEMORY = (
    (_KILLED, EXECUTOR_KILLED),
    (re.compile(re.escape(_WORKER_DIED)), WORKER_DIED),
    (_HEAP_FULL, HEAP_FULL),
    (re.compile(re.escape(_LATE_WORKER)), LATE_WORKER),
)
"""Signs of too little memory, and the texts that explain them, the most certain first."""


class StateLost(Exception):
    """Error of a task whose connection Spark's state server has closed.

    Only Spark's log may have the reason. The class is not a `FlowError`, which would not fail the
    task: Spark must fail the task, because it cannot commit the state.
    """


def spark_problem(
    error: BaseException | None,
    disks: RunDisks | None = None,
    logged: Callable[[], str] = str,
) -> str:
    """Return the cause of a failure: a worker, a full disk, too little memory, or the outermost.

    The innermost causes are too general: for a worker that has died, the end of a stream.

    Args:
        error: the failure.
        disks: disks of the run; ``None`` if the full disk need not be named.
        logged: returns Spark's log of the run; empty if unknown.
    """
    messages = list(_messages(error))
    for message in messages:
        if _WORKER in message:
            return _no_worker(message.partition(_WORKER)[2])
    full = _full_disk(messages, disks, logged)
    if full is not None:
        return full
    lines = [message.partition(_END)[0] for message in messages]
    for sign, problem in _MEMORY:
        if any(map(sign.search, messages)):
            return problem
    for message in messages:
        exceptions = _RAISED.findall(message)
        if exceptions:  # A traceback has an exception's causes before the exception.
            return _raised_by_python(exceptions[-1].strip())
    shown = (line for line in lines if line and not line.startswith(_WRAPPERS))
    return next(shown, lines[0] or first_line(error))


def full_disk_problem(
    error: BaseException | None, disks: RunDisks, logged: Callable[[], str]
) -> str | None:
    """Return the text about a full disk that caused a failure; ``None`` for other causes."""
    return _full_disk(list(_messages(error)), disks, logged)


def _full_disk(
    messages: list[str], disks: RunDisks | None, logged: Callable[[], str]
) -> str | None:
    if any(map(tells_of_a_full_disk, messages)):
        return NO_SPACE if disks is None else disks.explain(messages)
    if disks is not None and any(map(_LOST.search, messages)):
        log = logged()
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


_DEEPEST = 20
"""The maximum depth of causes: a Java exception may be a cause of itself."""
