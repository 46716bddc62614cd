"""What can be wrong with a file of a checkpoint, and what Java says of it."""

from __future__ import annotations

from typing import Any

from flow.errors import CheckpointError, first_line


class FileProblem(CheckpointError):
    """A file of a checkpoint is not there, or is not what was written.

    Attributes:
        file: its name in the checkpoint.
        problem: what is wrong with it, in a line.
        way_out: what may be done, where that is known.
    """

    def __init__(self, file: str, problem: str, way_out: str | None = None) -> None:
        self.file = file
        self.problem = problem
        self.way_out = way_out
        super().__init__(f"{file} {problem}")


def java_reason(error: BaseException) -> str:
    """What went wrong first, in a line: of Java's exceptions the one that led to all others."""
    java: Any = getattr(error, "java_exception", None)
    if java is None:
        return first_line(error)
    while java.getCause() is not None:
        java = java.getCause()
    said = java.getMessage() or java.getClass().getSimpleName()
    return str(said).strip().splitlines()[0]
