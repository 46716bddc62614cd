"""The version of the format of persisted data, and the refusal of data in another format.

Each kind of persisted data has one format, with a version of its own. Data in another format is
refused: until release 0.1.0 no version reads the data of another one.

A sealed file has its content after a line with the format's version, the length and a checksum.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from flow.errors import CheckpointError, FlowError

VERSION = 1
"""The version of every format so far."""

REPAIR = "put it back from a copy of the checkpoint, or start over on another one"


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


@dataclass(frozen=True)
class Seal:
    """The seal of one kind of file.

    Attributes:
        word: the word for the kind in the first line.
        what: the kind in errors.
    """

    word: str
    what: str

    def close(self, content: bytes) -> bytes:
        """Return the bytes of a file with this content."""
        line = f"flow {self.word} {VERSION} {len(content)} {zlib.crc32(content)}\n"
        return line.encode() + content

    def open(self, name: str, data: bytes) -> bytes:
        """Return the content of a file.

        Args:
            name: the file's name, for errors.
            data: the bytes of the file.

        Raises:
            CheckpointError: when the file is truncated or changed, or has another format.
        """
        line = re.match(rb"flow %s (\d+) (\d+) (\d+)\n" % self.word.encode(), data)
        if line is None:
            raise CheckpointError(f"{name} is no {self.what}: {REPAIR}")
        version, size, checksum = map(int, line.groups())
        check_format(name, version)
        content = data[line.end() :]
        if (len(content), zlib.crc32(content)) != (size, checksum):
            raise CheckpointError(f"{name} is not what was written: {REPAIR}")
        return content
