"""What a failure of Spark's own says, in a line, without what Spark and Py4J wrap it in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flow.errors import first_line

NO_SPACE = "No space left on device"
_WRAPPERS = (
    "An error occurred while calling ",
    "Exception thrown in awaitResult",
    "Multiple failures in stage materialization",
)


def spark_problem(error: BaseException | None) -> str:
    """What went wrong: that a disk is full, if that is it, or what the outermost cause says.

    The innermost causes say too little: that a stream has ended, where a worker has died.
    """
    said = list(_said(error))
    if any(NO_SPACE in one for one in said):
        return NO_SPACE
    return next((one for one in said if one and not one.startswith(_WRAPPERS)), said[0])


def _said(error: BaseException | None) -> Iterator[str]:
    """The first lines of an exception and of Java's behind it, outermost first."""
    yield first_line(error)
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_DEEPEST):
        if java is None:
            return
        yield str(java.getMessage() or java.toString()).strip().partition("\n")[0]
        java = java.getCause()


_DEEPEST = 20
"""How many causes are looked at: some are causes of themselves."""
