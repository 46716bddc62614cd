"""Panes: the emissions of a window with a trigger."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class PaneTiming(Enum):
    """The time of a pane, relative to the time at which the watermark passes the window's end.

    Attributes:
        EARLY: before the watermark passed the end.
        ON_TIME: as the watermark passed the end.
        LATE: after that, for values in the grace of the window.
    """

    EARLY = "early"
    ON_TIME = "on_time"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Pane:
    """One emission of a window with a trigger.

    Attributes:
        index: the number of panes that the window emitted before.
        timing: the time of the pane, relative to the end of the window.
        is_last: True if the window closed with this pane. A window whose last pane was emitted
            before its grace was over closes without another pane.

    >>> Pane(0, PaneTiming.EARLY).is_first
    True
    """

    index: int
    timing: PaneTiming
    is_last: bool = False

    @property
    def is_first(self) -> bool:
        """True for the first pane of a window."""
        return self.index == 0

    def as_record(self) -> dict[str, Any]:
        """Return the pane as columns, for sinks that write tables."""
        return {
            "pane_index": self.index,
            "pane_timing": self.timing.value,
            "pane_is_last": self.is_last,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a call of the class, like `WindowMetadata`."""
        return Pane, (self.index, self.timing, self.is_last)

    def __repr__(self) -> str:
        """Return an expression that evaluates to the pane, without defaults."""
        last = ", is_last=True" if self.is_last else ""
        return f"Pane({self.index}, {self.timing}{last})"
