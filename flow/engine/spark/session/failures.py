"""What a failure of Spark's own says, in a line, without what Spark and Py4J wrap it in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JError

from flow.engine.spark.session.disks import NO_SPACE, RunDisks, tells_of_a_full_disk
from flow.errors import first_line

JVM_ERRORS = (Py4JError, ConnectionError)
"""What calls into a JVM that has ended raise; but such errors may come of something else, too."""
_WORKER = "Error from python worker:\n"
_END = "\n"
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+(\S.*)")
"""What stands at the end of a trace of Python's."""
_LOST = re.compile(
    r"\b(StateLost|EOFError|BrokenPipeError|ConnectionResetError|EOFException|SocketException)\b"
    r"|Broken pipe|Connection reset|RocksDBException"
)
"""In what is said where the other end of a socket has ended, or state could not be kept."""
_STATE_LOST = "StateLost:"
_WRAPPERS = (
    "An error occurred while calling ",
    "Exception thrown in awaitResult",
    "Multiple failures in stage materialization",
)


class StateLost(Exception):
    """Spark's state server has closed the connection; why, Spark's log alone says, if anything.

    It is no `FlowError`, as Spark must fail the task: it could not commit the state.
    """


def spark_problem(
    error: BaseException | None,
    disks: RunDisks | None = None,
    logged: Callable[[], str] = str,
) -> str:
    """What went wrong: what Python said in a worker, a full disk, or what the outermost cause says.

    The innermost causes say too little: that a stream has ended, where a worker has died.

    Args:
        error: the failure.
        disks: where the run writes; without them the disk that is full is not named.
        logged: returns what Spark has logged during the run, as far as that is known.
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
    """Which disk is full, if that is what went wrong; see `spark_problem`."""
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
    """What Python said where Spark could not start a worker, and what to do."""
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
"""How many causes are looked at: some are causes of themselves."""
