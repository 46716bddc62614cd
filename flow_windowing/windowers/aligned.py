"""Tumbling and sliding windows: windows of one length on a grid."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal, TypeAlias

from typing_extensions import override

from flow.checks import check_choice
from flow.durations import Duration
from flow.errors import FlowBuildError, FlowTypeError, TimestampError, shorten
from flow.instants import EPOCH, datetime_us
from flow_windowing.rules.grid import Grid
from flow_windowing.windowers.windower import GraceWindower, IndexedLogic, WindowerLogic, span_us

ClosedBound: TypeAlias = Literal["left", "right"]
"""The bound that belongs to a window: ``"left"`` is [open, close), ``"right"`` is (open, close]."""


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
