"""Streams of a step: metadata of windows, panes, late values, retractions and joined pairs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from functools import total_ordering
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from flow.instants import MIN_US, from_us

V = TypeVar("V")
L = TypeVar("L")
R = TypeVar("R")

PORTS = ("down", "late", "closed")
DOWN, LATE, CLOSED = range(len(PORTS))
"""The streams of a windowing step by name, and their numbers."""

DEDUP_PORTS = ("down", "late", "duplicates")
DUPLICATES = 2
"""The streams of a deduplicating step; the first two have the numbers of a windowing step."""

STATE_PORTS = ("down", "late", "expired")
EXPIRED = 2
"""The streams of a map with a state that expires by event time."""


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


RESULT_COLUMNS = frozenset(
    (
        *("key", "window_id", "open_time", "close_time", "merged_ids", "is_retraction"),
        *("pane_index", "pane_timing", "pane_is_last"),
    )
)
"""Names of the columns that the layout of a result has beside the values."""


@total_ordering
@dataclass(frozen=True, slots=True)
class WindowMetadata:
    """The id and the bounds of a window. Windows are ordered by open time.

    Attributes:
        window_id: the id, unique among a key's windows; its meaning depends on the windower.
        open_time: the open time, UTC; inclusive.
        close_time: the close time, UTC; exclusive, except for windows whose bounds are timestamps
            of values, such as sessions.
        merged_ids: the ids of all windows that were merged into this one.
        timestamp: the time of the emitted value, if the operator sets `timestamp`; windows that
            differ only in it are equal.
        pane: the pane of the emitted value, if the operator has a trigger; windows that differ only
            in it are equal.

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
    pane: Pane | None = field(default=None, compare=False)

    @classmethod
    def of_us(
        cls, window_id: int, open_us: int, close_us: int, merged_ids: frozenset[int] = frozenset()
    ) -> WindowMetadata:
        """Return metadata with bounds in µs since the Unix epoch, clipped to datetime's range."""
        return cls(window_id, from_us(open_us), from_us(close_us), merged_ids)

    def as_record(self) -> dict[str, Any]:
        """Return the metadata as columns, for sinks that write tables."""
        record: dict[str, Any] = {
            "window_id": self.window_id,
            "open_time": self.open_time,
            "close_time": self.close_time,
            "merged_ids": sorted(self.merged_ids),
        }
        if self.timestamp is not None:
            record["timestamp"] = self.timestamp
        return record if self.pane is None else {**record, **self.pane.as_record()}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a call of the class, twice as fast as the default of a dataclass with slots."""
        parts = self.window_id, self.open_time, self.close_time, self.merged_ids, self.timestamp
        return WindowMetadata, parts if self.pane is None else (*parts, self.pane)

    def __repr__(self) -> str:
        """Return an expression that evaluates to the metadata, without defaults; ids are sorted."""
        shown = [f"{self.window_id}", f"{self.open_time!r}", f"{self.close_time!r}"]
        if self.merged_ids:
            ids = ", ".join(map(str, sorted(self.merged_ids)))
            shown.append(f"merged_ids=frozenset({{{ids}}})")
        if self.timestamp is not None:
            shown.append(f"timestamp={self.timestamp!r}")
        if self.pane is not None:
            shown.append(f"pane={self.pane!r}")
        return f"WindowMetadata({', '.join(shown)})"

    def __lt__(self, other: WindowMetadata) -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[datetime, datetime, int, tuple[int, ...]]:
        return self.open_time, self.close_time, self.window_id, tuple(sorted(self.merged_ids))


class LateReason(Enum):
    """The reason why a value entered no window, or missed a window.

    Attributes:
        LATE: the value arrived after its windows had closed, or behind the watermark.
        GAP: the windower has no window for the value's timestamp.
        TOO_FAR_AHEAD: the timestamp is further ahead of system time than the clock allows.
    """

    LATE = "late"
    GAP = "gap"
    TOO_FAR_AHEAD = "too_far_ahead"


@dataclass(frozen=True, slots=True)
class LateValue(Generic[V]):
    """A value that missed one or more windows; emitted once, whatever the number of windows.

    Attributes:
        value: the value.
        timestamp: the timestamp by the step's clock, UTC.
        watermark: the watermark as the value arrived, UTC, or, for a buffered value, as it left the
            buffer; ``None`` before the first watermark.
        late_by: the watermark less the timestamp, at least zero.
        windows: all windows that the value missed, sorted by open time; empty if none is known.
        reason: the reason.
        side: in a join, the number of the value's stream.
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
        """The first of `windows`; ``None`` if `windows` is empty."""
        return self.windows[0] if self.windows else None

    def as_record(self) -> dict[str, Any]:
        """Return the late value as columns, for sinks that write tables.

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
        """Pickle as a call of the class, like `WindowMetadata`."""
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
        """Return a late value with times in µs since the Unix epoch."""
        timestamp = from_us(timestamp_us)
        if watermark_us < MIN_US:
            return cls(value, timestamp, None, timedelta(0), windows, reason, side)
        watermark = from_us(watermark_us)
        late_by = max(watermark - timestamp, timedelta(0))
        return cls(value, timestamp, watermark, late_by, windows, reason, side)


@dataclass(frozen=True, slots=True)
class Retracted(Generic[V]):
    """A retraction of a value that a window emitted before it was merged into another window.

    Attributes:
        value: the last value that the window emitted.
    """

    is_retraction: ClassVar[bool] = True
    """The mark by which sinks recognise a retraction."""

    value: V


class JoinedPair(NamedTuple, Generic[L, R]):
    """A left and a right value, which `join_interval` and `join_asof` emit together.

    It is a tuple, so that it can be unpacked: ``key, (window, (left, right)) = item``. Sinks of
    tables, and `flow.operators.records`, make the columns ``left`` and ``right`` of it.

    Attributes:
        left: the left value; ``None`` for a right value without a partner.
        right: the right value; ``None`` for a left value without a partner.

    >>> pair = JoinedPair({"price": 5}, None)
    >>> pair.left["price"], pair == ({"price": 5}, None)
    (5, True)
    """

    left: L
    right: R
