"""Contract of the parsers of lines, and checks of UTF-8 that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Parsed: TypeAlias = "list[Any] | pa.Table"
"""Items of lines: objects, or records in columns."""


class LineParser(ABC):
    """Turns lines of one file into items.

    Attributes:
        blank: the characters of which a line may consist to be skipped; ``None`` to skip none.
    """

    blank: bytes | None = None

    @abstractmethod
    def parse(self, data: bytes, count: int | None = None) -> Parsed | None:
        """Parse whole lines.

        Args:
            data: the lines, each with its end.
            count: how many of them are not blank, where that is known.

        Returns:
            Their items, or ``None`` when any line is bad.
        """

    @abstractmethod
    def reason(self, line: bytes) -> str:
        """Why a line that `parse` refuses is bad."""

    def is_blank(self, line: bytes) -> bool:
        """Whether a line is to be skipped."""
        return self.blank is not None and not line.strip(self.blank)


def utf8_problem(line: bytes) -> str | None:
    """Say what is wrong with the text of a line, ``None`` if nothing."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 text, at byte {error.start + 1} of the line"
    return None


def is_utf8(data: bytes) -> bool:
    """Whether the text can be decoded; without decoding it, as that takes as much memory again."""
    if data.isascii():
        return True
    offsets = np.array([0, len(data)], np.int64)
    text = pa.LargeStringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(data))
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
