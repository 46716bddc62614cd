"""Findings of the doctor: the result of a check, as one line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flow.errors import printable


class Level(Enum):
    """The weight of a finding."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """Result of a check.

    Attributes:
        level: the weight; a problem keeps flows from running.
        subject: the subject of the check.
        text: the state that was found and, unless all is well, what to do.
    """

    level: Level
    subject: str
    text: str

    def line(self) -> str:
        r"""Return the finding as one line without control characters.

        >>> Finding(Level.OK, "Java", "version 17\x1b[31m\nin /usr").line()
        'ok       Java               version 17\\x1b[31m in /usr'
        """
        text = printable(" ".join(self.text.split()))
        return f"{self.level.value:8} {self.subject:18} {text}"


def ok(subject: str, text: str) -> Finding:
    """Return a finding of which all is well."""
    return Finding(Level.OK, subject, text)


def warning(subject: str, text: str) -> Finding:
    """Return a finding that may become a problem."""
    return Finding(Level.WARNING, subject, text)


def problem(subject: str, text: str) -> Finding:
    """Return a finding that keeps flows from running."""
    return Finding(Level.PROBLEM, subject, text)
