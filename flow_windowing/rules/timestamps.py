"""The timestamp that the metadata of a window carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, TypeVar

Timestamp: TypeAlias = Literal["open", "close", "last"]
"""The time of a window in its metadata: open time, close time, or greatest timestamp."""

T = TypeVar("T")


def timestamp_of(
    choice: Timestamp | None, open_time: T, close_time: T, last_time: Callable[[], T]
) -> T | None:
    """Return the timestamp of a window, or of many in columns.

    Args:
        choice: the time to return; ``None`` for no timestamp.
        open_time: the open time.
        close_time: the close time.
        last_time: returns the greatest timestamp in the window, or the close time of a window that
            opened before the step recorded timestamps.
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
