"""Tumbling and sliding windows: windows of one length on a grid.

Key by key and over columns, the `Grid` has the same arithmetic: timestamps and window ids are
integers, or int64 arrays of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar

from typing_extensions import override

from flow.checks import check_choice
from flow.columns.arrays import Ints
from flow.durations import Duration
from flow.errors import FlowBuildError, FlowTypeError, TimestampError, shorten
from flow.instants import EPOCH, datetime_us
from flow_windowing.windowers.windower import GraceWindower, IndexedLogic, WindowerLogic, span_us

N = TypeVar("N", int, Ints)

ClosedBound: TypeAlias = Literal["left", "right"]
"""The bound that belongs to a window: ``"left"`` is [open, close), ``"right"`` is (open, close]."""


@dataclass(frozen=True)
class Grid:
    """Windows of one length that open at every multiple of an offset.

    Window i is [open, open + length) with open = align + i * offset; with `closed_right` it is
    (open, open + length]. All times are µs since the Unix epoch.

    Attributes:
        length_us: length of a window.
        offset_us: distance between two opens. Windows overlap if it is less than the length, and
            leave gaps if it is greater.
        align_us: open of window 0.
        closed_right: True if a window holds its close and not its open.
        grace_us: the time past its close for which a window stays open.

    >>> hours = Grid(length_us=60, offset_us=30, align_us=0, closed_right=False, grace_us=5)
    >>> hours.first_at(33), hours.last_at(33), hours.bounds_us(1), hours.closed_at_us(1)
    (0, 1, (30, 90), 95)
    """

    length_us: int
    offset_us: int
    align_us: int
    closed_right: bool
    grace_us: int

    @property
    def is_tumbling(self) -> bool:
        """True if each timestamp is in exactly one window."""
        return self.length_us == self.offset_us

    @property
    def has_gaps(self) -> bool:
        """True if a timestamp may be in no window."""
        return self.offset_us > self.length_us

    @cached_property
    def origin_us(self) -> int:
        """The least timestamp of window 0.

        Times are whole microseconds, so (open, close] is the same as [open + 1, close + 1).
        """
        return self.align_us + self.closed_right

    @cached_property
    def closing_us(self) -> int:
        """The watermark at which window 0 closes, grace included."""
        return self.origin_us + self.length_us + self.grace_us

    def last_at(self, time_us: N) -> N:
        """Return the id of the last window that opens at or before a timestamp."""
        return (time_us - self.origin_us) // self.offset_us

    def first_at(self, time_us: N) -> N:
        """Return the id of the first window that holds a timestamp; beyond `last_at` in a gap."""
        return (time_us - (self.origin_us + self.length_us)) // self.offset_us + 1

    def bounds_us(self, window_id: N) -> tuple[N, N]:
        """Return open and close of a window."""
        open_us = self.align_us + window_id * self.offset_us
        return open_us, open_us + self.length_us

    def closed_at_us(self, window_id: N) -> N:
        """Return the least watermark at which a window is closed, grace included."""
        return self.closing_us + window_id * self.offset_us

    def first_open(self, watermark_us: N) -> N:
        """Return the id of the first window that a watermark has not closed."""
        return (watermark_us - self.closing_us) // self.offset_us + 1


class _AlignedWindower(GraceWindower[list[int]]):
    """Windows of one length on a grid."""

    follows_time_alone = True

    length: Duration
    align_to: datetime
    closed: ClosedBound

    def __post_init__(self) -> None:
        _ = self.length_us, self.offset_us, self.align_us, self.grace_us
        check_choice(f"{type(self).__name__}: closed", self.closed, ("left", "right"))

    @cached_property
    def length_us(self) -> int:
        """`length` in microseconds."""
        return span_us(self.length, f"{type(self).__name__}: length")

    @property
    @abstractmethod
    def offset_us(self) -> int:
        """The time between the opens of consecutive windows, in microseconds."""

    @cached_property
    def align_us(self) -> int:
        """`align_to` in microseconds."""
        name, align_to = type(self).__name__, self.align_to
        if not isinstance(align_to, datetime):
            raise FlowTypeError(
                f"{name}: align_to must be an aware datetime, got {shorten(align_to)}"
            )
        try:
            return datetime_us(align_to)
        except TimestampError as error:
            raise FlowBuildError(f"{name}: align_to: {error}") from error

    @cached_property
    def grid(self) -> Grid:
        """The grid of the windows."""
        is_right, grace = self.closed == "right", self.grace_us or 0
        return Grid(self.length_us, self.offset_us, self.align_us, is_right, grace)

    @property
    @override
    def lengths_us(self) -> tuple[int, int]:
        return self.length_us, self.length_us

    @override
    def build(self, state: list[int] | None) -> WindowerLogic[list[int]]:
        return AlignedLogic(self.grid, state)


@dataclass(frozen=True)
class SlidingWindower(_AlignedWindower):
    """Windows of one length that open at every multiple of an offset.

    If the offset is shorter than the length, windows overlap, and a value is in several windows. If
    it is longer, windows leave gaps, and a value in a gap goes to the late stream as
    `LateReason.GAP`. Other libraries call them hopping windows. A window's id is its index, counted
    from `align_to`, and negative before that time.

    Args:
        length: the length of each window.
        offset: the time between the opens of consecutive windows.
        align_to: the open time of window 0, an aware datetime.
        closed: ``"right"``: a window holds its close, and not its open; it closes once the
            watermark is past its close.
        grace: the time past its close for which a window stays open for values behind the
            watermark; by default a value behind the watermark is late, whatever its window.

    Raises:
        FlowBuildError, FlowTypeError, DurationError: when an argument is invalid.

    >>> SlidingWindower(length="1h", offset="15m").offset_us
    900000000
    """

    length: Duration
    offset: Duration
    align_to: datetime = EPOCH
    closed: ClosedBound = "left"
    grace: Duration | None = None

    @cached_property
    @override
    def offset_us(self) -> int:
        return span_us(self.offset, "SlidingWindower: offset")


@dataclass(frozen=True)
class TumblingWindower(_AlignedWindower):
    """Consecutive windows of one length: each value is in exactly one window.

    A window's id is its index, counted from `align_to`, and negative before that time.

    Args:
        length: the length of each window.
        align_to: the open time of window 0, an aware datetime.
        closed: ``"right"``: a window holds its close, and not its open; it closes once the
            watermark is past its close.
        grace: the time past its close for which a window stays open for values behind the
            watermark; by default a value behind the watermark is late, whatever its window.

    Raises:
        FlowBuildError, FlowTypeError, DurationError: when an argument is invalid.

    >>> TumblingWindower(length="1h").length_us
    3600000000
    """

    length: Duration
    align_to: datetime = EPOCH
    closed: ClosedBound = "left"
    grace: Duration | None = None

    @property
    @override
    def offset_us(self) -> int:
        return self.length_us


class AlignedLogic(IndexedLogic):
    """Windows of one key on a grid."""

    __slots__ = ("_grid",)

    def __init__(self, grid: Grid, state: list[int] | None) -> None:
        self._grid = grid
        super().__init__(state)

    @override
    def ids_at(self, timestamp_us: int) -> Sequence[int]:
        return range(self._grid.first_at(timestamp_us), self._grid.last_at(timestamp_us) + 1)

    @override
    def bounds_us(self, window_id: int) -> tuple[int, int]:
        return self._grid.bounds_us(window_id)

    @override
    def closed_at_us(self, window_id: int) -> int:
        return self._grid.closed_at_us(window_id)
