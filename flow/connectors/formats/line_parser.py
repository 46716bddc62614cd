"""Contract of the parsers of lines, and checks of UTF-8 that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Parsed: TypeAlias = "list[Any] | pa.Table"
"""Items of lines: objects, or records in columns."""


class LineParser(ABC):
    """Parser of the lines of one file.

    Attributes:
        blank: characters of a blank line, which is skipped; ``None`` if no line is.
    """

    blank: bytes | None = None

    @abstractmethod
    def parse(self, data: bytes, count: int | None = None) -> Parsed | None:
        """Parse whole lines.

        Args:
            data: the lines, each with its line end.
            count: number of lines that are not blank, where known.

        Returns:
            The items of the lines; ``None`` if any line is bad.
        """

    @abstractmethod
    def reason(self, line: bytes) -> str:
        """Return the reason why `parse` refuses a line."""

    def is_blank(self, line: bytes) -> bool:
        """Return True if a line is blank, and so skipped."""
        return self.blank is not None and not line.strip(self.blank)


def utf8_problem(line: bytes) -> str | None:
    """Return the reason why a line is not UTF-8; ``None`` if it is."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 text, at byte {error.start + 1} of the line"
    return None


def is_utf8(data: bytes) -> bool:
    """Return True if bytes are UTF-8, without decoding, which would take the memory twice."""
    if data.isascii():
        return True
    offsets = np.array([0, len(data)], np.int64)
    text = pa.LargeStringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(data))
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
