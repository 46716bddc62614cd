"""What a failure of Spark's own says, in a line, without what Spark and Py4J wrap it in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError

from flow.errors import first_line

JVM_ERRORS = (Py4JError, ConnectionError)
"""What calls into a JVM that has ended raise; but such errors may come of something else, too."""
NO_SPACE = "No space left on device"
_WORKER = "Error from python worker:\n"
_END = "\n"
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+(\S.*)")
"""What stands at the end of a trace of Python's."""
_WRAPPERS = (
    "An error occurred while calling ",
    "Exception thrown in awaitResult",
    "Multiple failures in stage materialization",
)


def spark_problem(error: BaseException | None) -> str:
    """What went wrong: what Python said in a worker, a full disk, or what the outermost cause says.

    The innermost causes say too little: that a stream has ended, where a worker has died.
    """
    messages = list(_messages(error))
    for message in messages:
        if _WORKER in message:
            return _no_worker(message.partition(_WORKER)[2])
    said = [message.partition(_END)[0] for message in messages]
    if any(NO_SPACE in one for one in said):
        return NO_SPACE
    for message in messages:
        raised = _RAISED.findall(message)
        if raised:  # the last one is what was raised, where it came of others
            return f"a function that Spark ran in Python raised {raised[-1].strip()}"
    return next((one for one in said if one and not one.startswith(_WRAPPERS)), said[0])


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
