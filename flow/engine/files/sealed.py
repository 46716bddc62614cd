"""Sealed files: content after a line with the format's version, the length and a checksum."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from flow.errors import CheckpointError
from flow.format_version import VERSION, check_format

REPAIR = "put it back from a copy of the checkpoint, or start over on another one"


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
