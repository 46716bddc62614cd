"""What a window says of itself, and what a late value says of what it missed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Generic, TypeVar

from flow.instants import MIN_US, from_us

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class WindowMetadata:
    """A window: which it is, and from when to when. Windows are ordered by open time.

    Attributes:
        window_id: its number; what it counts is the windower's business.
        open_time: when it opens, UTC; inclusive.
        close_time: when it closes, UTC; exclusive, but for windows whose bounds are values' times.
        merged_ids: the ids of all windows that have ever become part of it.
        timestamp: the time of what the window emits, when the operator was asked for one; two
            windows that differ in it alone are equal.

    >>> from datetime import UTC
    >>> days = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    >>> WindowMetadata(0, days[0], days[1]) < WindowMetadata(1, days[1], days[2])
    True
    """

    window_id: int
    open_time: datetime
    close_time: datetime
    merged_ids: frozenset[int] = frozenset()
    timestamp: datetime | None = field(default=None, compare=False)

    @classmethod
    def of_us(
        cls, window_id: int, open_us: int, close_us: int, merged_ids: frozenset[int] = frozenset()
    ) -> WindowMetadata:
        """Make one from microseconds since the Unix epoch, held to what a datetime can say."""
        return cls(window_id, from_us(open_us), from_us(close_us), merged_ids)

    def as_record(self) -> dict[str, Any]:
        """The columns in which sinks that write tables lay it out: a timestamp if there is one."""
        record: dict[str, Any] = {
            "window_id": self.window_id,
            "open_time": self.open_time,
            "close_time": self.close_time,
            "merged_ids": sorted(self.merged_ids),
        }
        return record if self.timestamp is None else {**record, "timestamp": self.timestamp}

    def __reduce__(self) -> tuple[Any, ...]:
        """How it is pickled, at every shuffle: a dataclass with slots would take twice as long."""
        parts = self.window_id, self.open_time, self.close_time, self.merged_ids, self.timestamp
        return WindowMetadata, parts

    def __repr__(self) -> str:
        """What could be typed to make it, without what it says by default; ids are in order."""
        shown = [f"{self.window_id}", f"{self.open_time!r}", f"{self.close_time!r}"]
        if self.merged_ids:
            ids = ", ".join(map(str, sorted(self.merged_ids)))
            shown.append(f"merged_ids=frozenset({{{ids}}})")
        if self.timestamp is not None:
            shown.append(f"timestamp={self.timestamp!r}")
        return f"WindowMetadata({', '.join(shown)})"

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
    """Why a value entered no window, or missed one.

    Attributes:
        LATE: it came after its time.
        GAP: the windower has no window where it falls.
        TOO_FAR_AHEAD: its timestamp is further ahead of system time than the clock allows.
    """

    LATE = "late"
    GAP = "gap"
    TOO_FAR_AHEAD = "too_far_ahead"


@dataclass(frozen=True, slots=True)
class LateValue(Generic[V]):
    """A value that missed one or more windows. It leaves once, whatever the number of windows.

    Attributes:
        value: the value.
        timestamp: its time by the step's clock, UTC.
        watermark: the watermark when the value came, UTC, or, of a buffered value, when it was its
            turn to enter; ``None`` when there was none yet.
        late_by: how far the value was behind the watermark; zero when it was not.
        windows: all windows that the value missed, in order of opening; empty when no window can
            be named.
        reason: why the value missed them.
        side: in a join, the number of the stream that the value came from.
    """

    value: V
    timestamp: datetime
    watermark: datetime | None
    late_by: timedelta
    windows: tuple[WindowMetadata, ...] = ()
    reason: LateReason = LateReason.LATE
    side: int | None = None

    @property
    def window(self) -> WindowMetadata | None:
        """The first of `windows`; ``None`` when no window can be named."""
        return self.windows[0] if self.windows else None

    def as_record(self) -> dict[str, Any]:
        """Lay the late value out in columns, for sinks that write tables.

        ``window`` is the first window that the value missed, ``window_ids`` has the ids of all.
        """
        return {
            "value": self.value,
            "timestamp": self.timestamp,
            "watermark": self.watermark,
            "late_by": self.late_by,
            "window": self.window,
            "reason": self.reason,
            "side": self.side,
            "window_ids": [window.window_id for window in self.windows],
        }

    def __reduce__(self) -> tuple[Any, ...]:
        """As `WindowMetadata.__reduce__`."""
        parts = self.value, self.timestamp, self.watermark, self.late_by, self.windows
        return LateValue, (*parts, self.reason, self.side)

    @classmethod
    def of_us(
        cls,
        value: V,
        timestamp_us: int,
        watermark_us: int,
        windows: tuple[WindowMetadata, ...] = (),
        reason: LateReason = LateReason.LATE,
        side: int | None = None,
    ) -> LateValue[V]:
        """Make one from microseconds since the Unix epoch."""
        timestamp = from_us(timestamp_us)
        if watermark_us < MIN_US:
            return cls(value, timestamp, None, timedelta(0), windows, reason, side)
        watermark = from_us(watermark_us)
        late_by = max(watermark - timestamp, timedelta(0))
        return cls(value, timestamp, watermark, late_by, windows, reason, side)


@dataclass(frozen=True, slots=True)
class Retracted(Generic[V]):
    """Takes back what a window has emitted: the window has become part of another.

    Attributes:
        value: what the window had emitted last.
    """

    value: V
