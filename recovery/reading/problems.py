"""Problems of files of a checkpoint, and the reasons that Java gives."""

from __future__ import annotations

from typing import Any

from flow.errors import CheckpointError, first_line


class FileProblem(CheckpointError):
    """A file of a checkpoint that is missing, or differs from the file that was written.

    Attributes:
        file: the file's name in the checkpoint.
        problem: the problem, in one line.
        way_out: the action that solves the problem; ``None`` if unknown.
    """

    def __init__(self, file: str, problem: str, way_out: str | None = None) -> None:
        self.file = file
        self.problem = problem
        self.way_out = way_out
        super().__init__(f"{file} {problem}")


def java_reason(error: BaseException) -> str:
    """Return the first line of the root cause of a Java exception."""
    java: Any = getattr(error, "java_exception", None)
    if java is None:
        return first_line(error)
    while java.getCause() is not None:
        java = java.getCause()
    message = java.getMessage() or java.getClass().getSimpleName()
    return str(message).strip().splitlines()[0]
