"""Causes of Spark's failures in a line, without the wrappers of Spark and Py4J."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JError

from flow.engine.spark.session.disks import NO_SPACE, RunDisks, tells_of_a_full_disk
from flow.errors import first_line

JVM_ERRORS = (Py4JError, ConnectionError)
"""Exceptions of calls into a JVM that has ended; they may have other causes."""
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
_WRAPPERS = (
    "An error occurred while calling ",
    "Exception thrown in awaitResult",
    "Multiple failures in stage materialization",
)


class StateLost(Exception):
    """Spark's state server has closed the connection; only Spark's log may give the reason.

    It is no `FlowError`, as Spark must fail the task: it could not commit the state.
    """


def spark_problem(
    error: BaseException | None,
    disks: RunDisks | None = None,
    logged: Callable[[], str] = str,
) -> str:
    """Return the cause of a failure: a worker's error, a full disk, or the outermost cause.

    The innermost causes say too little: if a worker has died, that a stream has ended.

    Args:
        error: the failure.
        disks: disks of the run; ``None`` if the full disk need not be named.
        logged: returns Spark's log of the run, as far as known.
    """
    messages = list(_messages(error))
    for message in messages:
        if _WORKER in message:
            return _no_worker(message.partition(_WORKER)[2])
    full = _full_disk(messages, disks, logged)
    if full is not None:
        return full
    said = [message.partition(_END)[0] for message in messages]
    for message in messages:
        raised = _RAISED.findall(message)
        if raised:  # the last one is what was raised, where it came of others
            return _raised_by_python(raised[-1].strip())
    return next((one for one in said if one and not one.startswith(_WRAPPERS)), said[0])


def full_disk_problem(
    error: BaseException | None, disks: RunDisks, logged: Callable[[], str]
) -> str | None:
    """Return the full disk that caused a failure, if one did; see `spark_problem`."""
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
    if _STATE_LOST in line:
        cause = line.partition(_STATE_LOST)[2].strip()
        return f"Spark's state server closed the connection ({cause}) and does not say why"
    return f"a function that Spark ran in Python raised {line}"


def _no_worker(said: str) -> str:
    """Return Python's error if Spark could not start a worker, with advice."""
    problem = f"Spark could not start its Python workers: {said.strip().partition(_END)[0]}"
    if "No module named" not in problem:
        return problem
    return (
        f"{problem}. Install this package where they run, or put the folder that it is in on "
        "PYTHONPATH before Spark starts"
    )


def _messages(error: BaseException | None) -> Iterator[str]:
    """The first line of an exception, and all that Java's behind it say, outermost first."""
    yield first_line(error)
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_DEEPEST):
        if java is None:
            return
        yield str(java.getMessage() or java.toString()).strip()
        java = java.getCause()


_DEEPEST = 20
"""Maximum depth of causes: some are causes of themselves."""
