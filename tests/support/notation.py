"""The plain notation of transcripts: how times, items and outputs are written as text.

A time is one of

    12.5                            seconds from the start of the transcript
    10:35, 10:35:07.25              a clock time of the start's day
    2024-10-27, 2024-10-27T01:30    any instant; all are UTC

An item of a keyed stream is ``key: value``, any other item is the value alone. A value is a Python
expression, with `datetime`, `UTC`, and `time` for a time as above: ``k: [1, 2]``,
``k: time('10:10')``, ``'some text'``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Self

Lines = dict[str, tuple[str, ...]]
"""The lines of each output, one for each item that the output receives."""

_KEYED = re.compile(r"(?P<key>\w[\w-]*): (?P<value>.+)")


@dataclass(frozen=True)
class Notation:
    """The notation of one transcript.

    Attributes:
        start: the time from which times without a date count.
        names: the names that Python expressions in a transcript can use, beside `time`.
    """

    start: datetime
    names: ClassVar[Mapping[str, Any]] = {"UTC": UTC, "datetime": datetime}

    @classmethod
    def of(cls, start: datetime, arguments: Mapping[str, Any]) -> Self:
        """Return the notation for a flow that is built with these arguments."""
        return cls(start)

    @classmethod
    def evaluate(cls, text: str, start: datetime) -> Any:
        """Evaluate a Python expression."""
        return eval(text, {**cls.names, "time": lambda time: read_time(time, start)})

    def item(self, line: str) -> Any:
        """Read an item of an input."""
        if match := _KEYED.fullmatch(line):
            return match["key"], self.evaluate(match["value"], self.start)
        return self.evaluate(line, self.start)

    def written(self, output: str, item: Any) -> tuple[str, str]:
        """Return the key of an item that an output received, or ``""``, and the item's line."""
        match item:
            case (str() as key, value):
                return key, f"{key}: {value!r}"
            case _:
                return "", repr(item)

    def rewritten(self, output: str, line: str) -> tuple[str, str]:
        """Read a line of an output; return what `written` returns for the line's item.

        Raises:
            ValueError: if the line is not in this notation.
        """
        return self.written(output, self.item(line))

    def completed(self, lines: Lines, mentioned: Set[str]) -> Lines:
        """Return the lines of an epoch with those that the transcript implies.

        Args:
            lines: the lines that the epoch states.
            mentioned: the outputs that the transcript mentions anywhere.
        """
        return lines


def read_time(text: str, start: datetime) -> datetime:
    """Read a time: seconds from a start, a clock time of its day, or any instant.

    >>> str(read_time("10:35", datetime(2023, 12, 14, tzinfo=UTC)))
    '2023-12-14 10:35:00+00:00'
    """
    if re.fullmatch(r"-?\d+(\.\d+)?", text):
        whole, _, fraction = text.lstrip("-").partition(".")
        micros = int(whole) * 1_000_000 + int(fraction.ljust(6, "0"))
        return start + timedelta(microseconds=-micros if text[0] == "-" else micros)
    if re.fullmatch(r"\d\d:\d\d(:\d\d(\.\d+)?)?", text):
        text = f"{start:%Y-%m-%d}T{text}"
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
