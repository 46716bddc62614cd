"""Checks of the path of a checkpoint's directory, an argument of users."""

from __future__ import annotations

import os
from typing import TypeAlias

from flow.errors import FlowBuildError, FlowTypeError, shorten

PathLike: TypeAlias = "str | os.PathLike[str]"


def directory_path(path: object, what: str) -> str:
    """Return the text of a directory's path or URI.

    Args:
        path: the path, text or an `os.PathLike`.
        what: the name of the object that needs the path, for errors.

    Raises:
        FlowTypeError: if the path is not text.
        FlowBuildError: if the path is empty.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise FlowTypeError(
            f"{what} needs a directory's path, got {type(path).__name__} {shorten(path)}"
        )
    if not text.strip():
        raise FlowBuildError(
            f"{what} needs a directory's path, got an empty one: "
            "name a directory that no other flow uses"
        )
    return text
