"""Problems of files of a checkpoint, and the reasons that Java gives."""

from __future__ import annotations

import os
import shlex
from typing import Any, TypeAlias

from flow.checks import wrong_type
from flow.connectors.files.filesystems import without_credentials, without_passwords
from flow.errors import CheckpointError, FlowBuildError, first_line

CHANGED = "is not what was written: its checksum is another"


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


def command(tool: str, root: str, *rest: object) -> str:
    """Return the shell command that runs a tool on a checkpoint.

    >>> command("rewind", "/data/my flow", "--epoch", 3)
    "python -m recovery rewind '/data/my flow' --epoch 3"
    """
    return shlex.join(["python", "-m", "recovery", tool, root, *map(str, rest)])


PathLike: TypeAlias = "str | os.PathLike[str]"


def directory_path(path: object, what: str) -> str:
    """Return the text of a directory's path or URI.

    Args:
        path: the path, text or an `os.PathLike`.
        what: the name of the object that needs the path, for errors.

    Raises:
        FlowTypeError: if the path is not text.
        FlowBuildError: if the path is empty, or has a password.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise wrong_type(f"{what} needs a directory's path", path)
    if not text.strip():
        raise FlowBuildError(
            f"{what} needs a directory's path, got an empty one: "
            "name a directory that no other flow uses"
        )
    if without_passwords(text) != text:
        shown = f"{what} needs a path without a password, got one in {without_credentials(text)}"
        raise FlowBuildError(f"{shown}: give credentials to the environment, which no log shows")
    return text
