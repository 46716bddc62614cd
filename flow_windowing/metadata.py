"""What a window says of itself, and what a late value says of what it missed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Generic, TypeVar

from flow.instants import from_us

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class WindowMetadata:
    """A window: which it is, and from when to when. Windows are ordered by open time.

    Attributes:
        window_id: its number; what it counts is the windower's business.
        open_time: when it opens, UTC; inclusive.
        close_time: when it closes, UTC; exclusive, but for windows whose bounds are values' times.
        merged_ids: the ids of windows that have become part of it.

    >>> from datetime import UTC
    >>> days = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    >>> WindowMetadata(0, days[0], days[1]) < WindowMetadata(1, days[1], days[2])
    True
    """

    window_id: int
    open_time: datetime
    close_time: datetime
    merged_ids: frozenset[int] = frozenset()

    @classmethod
    def of_us(
        cls, window_id: int, open_us: int, close_us: int, merged_ids: frozenset[int] = frozenset()
    ) -> WindowMetadata:
        """Make one from microseconds since the Unix epoch, held to what a datetime can say."""
        return cls(window_id, from_us(open_us), from_us(close_us), merged_ids)

    def __lt__(self, other: WindowMetadata) -> bool:
        return self._order() < other._order()

    def __le__(self, other: WindowMetadata) -> bool:
        return self._order() <= other._order()

    def __gt__(self, other: WindowMetadata) -> bool:
        return self._order() > other._order()

    def __ge__(self, other: WindowMetadata) -> bool:
        return self._order() >= other._order()

    def _order(self) -> tuple[datetime, datetime, int, tuple[int, ...]]:
        return self.open_time, self.close_time, self.window_id, tuple(sorted(self.merged_ids))


class LateReason(Enum):
    """Why a value entered no window."""

    LATE = "late"


@dataclass(frozen=True, slots=True)
class LateValue(Generic[V]):
    """A value that missed a window.

    Attributes:
        value: the value.
        timestamp: its time by the step's clock, UTC.
        watermark: the watermark of its key when it came, UTC.
        late_by: how far it was behind the watermark.
        window: the window it missed.
        reason: why it missed it.
    """

    value: V
    timestamp: datetime
    watermark: datetime
    late_by: timedelta
    window: WindowMetadata | None
    reason: LateReason = LateReason.LATE

    @classmethod
    def of_us(
        cls, value: V, timestamp_us: int, watermark_us: int, window: WindowMetadata | None
    ) -> LateValue[V]:
        """Make one from microseconds since the Unix epoch."""
        timestamp, watermark = from_us(timestamp_us), from_us(watermark_us)
        return cls(value, timestamp, watermark, watermark - timestamp, window)
