"""The timestamp that the metadata of a window carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, TypeVar

Timestamp: TypeAlias = Literal["open", "close", "last"]
"""The time of what a window emits: when it opens, when it closes, the greatest in it."""

T = TypeVar("T")


def timestamp_of(
    choice: Timestamp | None, open_time: T, close_time: T, last_time: Callable[[], T]
) -> T | None:
    """Return the timestamp of a window, or of many in columns.

    Args:
        choice: which of its times; ``None`` for no timestamp.
        open_time: when the window opens.
        close_time: when the window closes.
        last_time: gives the greatest timestamp in the window, or the close where a window that was
            open before timestamps were asked for does not know it.
    """
    match choice:
        case "open":
            return open_time
        case "close":
            return close_time
        case "last":
            return last_time()
        case None:
            return None
