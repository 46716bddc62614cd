"""Where a flow keeps what it needs to go on after a stop."""

from __future__ import annotations

import os
from dataclasses import dataclass

from flow.errors import FlowBuildError, FlowTypeError, shorten


@dataclass(frozen=True, init=False)
class RecoveryConfig:
    """The directory that a flow recovers from, for ``run(flow, recovery=...)``.

    All that a stopped or failed flow needs to go on is kept there, and nothing else is: the offsets
    that its inputs have reached, with the system time of each epoch; the state of every key; the
    lists that sources keep, such as the files they have seen; and ``flow.json``, which says which
    flow it is and how its key space is cut. The directory is made by the first run. Each flow needs
    one of its own, and one that outlives the machine if the flow is to.

    Args:
        path: the directory, a path or a URI of any file system that Spark can reach, such as
            ``s3a://bucket/checkpoints/departures``.

    Raises:
        FlowTypeError: when the path is not text.
        FlowBuildError: when it is empty.

    >>> RecoveryConfig("checkpoints/departures")
    RecoveryConfig(path='checkpoints/departures')
    """

    path: str

    def __init__(self, path: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "path", _checked(path))


def _checked(path: object) -> str:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise FlowTypeError(
            f"RecoveryConfig needs a directory's path, got {type(path).__name__} {shorten(path)}"
        )
    if not text.strip():
        raise FlowBuildError(
            "RecoveryConfig needs a directory's path, got an empty one: "
            "name a directory that no other flow uses"
        )
    return text
