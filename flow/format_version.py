"""The version of the format of persisted data, and the refusal of data in another format.

Each kind of persisted data has one format, with a version of its own. Data in another format is
refused: until release 0.1.0 no version reads the data of another one.
"""

from __future__ import annotations

from flow.errors import CheckpointError, FlowError

VERSION = 1
"""The version of every format so far."""


def version_in(content: bytes) -> int | str:
    """Return the version byte that data begins with; "none" for empty data."""
    return content[0] if content else "none"


def unknown_format(what: str, found: object, place: str = "checkpoint") -> str:
    """Return the error text of data in an unknown format.

    Args:
        what: the data, with its path if it has one.
        found: the format of the data.
        place: the kind of the place that the data is in.

    >>> print(unknown_format("out/views", 2, "file"))
    out/views has format 2, and this version reads format 1: run the version that wrote it, or ...
    """
    return (
        f"{what} has format {found}, and this version reads format {VERSION}: run the version that "
        f"wrote it, or start anew on another {place}"
    )


def check_format(
    what: str, found: object, error: type[FlowError] = CheckpointError, place: str = "checkpoint"
) -> None:
    """Raise an error for data in an unknown format; the arguments are those of `unknown_format`."""
    if found != VERSION:
        raise error(unknown_format(what, found, place))
