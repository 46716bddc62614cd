"""Windowers: which windows is a timestamp in, and when do they close?

A `Windower` is configuration; the `WindowerLogic` it builds runs for one key and owns the state.
Inside, time is a whole number of microseconds since the Unix epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from typing_extensions import override

from flow.durations import Duration, duration_us
from flow.errors import FlowBuildError, FlowTypeError, TimestampError, shorten
from flow.instants import EPOCH, NEVER, datetime_us
from flow_windowing.metadata import WindowMetadata

S = TypeVar("S")


class Opened(NamedTuple):
    """Where a timestamp falls.

    Attributes:
        ids: the open windows it is in.
        missed: the windows it would have been in, which have closed already.
    """

    ids: list[int]
    missed: list[WindowMetadata]


class WindowerLogic(ABC, Generic[S]):
    """The windows of one key.

    Laws: a window that was reported closed never opens again; an id names one window for ever.
    """

    @abstractmethod
    def open_for(self, timestamp_us: int, watermark_us: int) -> Opened:
        """Open the windows that a timestamp is in, but for those that have closed already."""

    @abstractmethod
    def missed_by(self, timestamp_us: int) -> list[WindowMetadata]:
        """The windows that a late timestamp would have been in; none is opened."""

    @abstractmethod
    def metadata(self, window_id: int) -> WindowMetadata:
        """What is known of an open window."""

    @abstractmethod
    def merged(self) -> list[tuple[int, int]]:
        """The merges since the last call, in order: (id that is no more, id that it is part of)."""

    @abstractmethod
    def close_for(self, watermark_us: int) -> list[WindowMetadata]:
        """Close the windows that the watermark has passed, and forget them; in order of closing."""

    @abstractmethod
    def next_close_us(self) -> int:
        """The least watermark at which a window closes; `NEVER` when none is open."""

    @abstractmethod
    def snapshot(self) -> S | None:
        """A copy of the state; ``None`` when there is nothing to remember."""


class Windower(ABC, Generic[S]):
    """A way to cut time into windows, as configuration.

    Attributes:
        grace_us: how long past its close a window stays open for values behind the watermark;
            ``None``: a value behind the watermark is late, whatever its window.
    """

    @property
    @abstractmethod
    def grace_us(self) -> int | None:
        """The grace in microseconds, or ``None``."""

    @abstractmethod
    def build(self, state: S | None) -> WindowerLogic[S]:
        """Make the logic of one key, from a snapshot if there is one."""


@dataclass(frozen=True)
class TumblingWindower(Windower[list[int]]):
    """Windows of one length, one after the other: open inclusive, close exclusive.

    A window's id is its index, counted from `align_to`, negative before it.

    Args:
        length: how long each window is.
        align_to: where window 0 opens, an aware datetime.

    Raises:
        FlowBuildError, FlowTypeError, DurationError: when an argument is not fit; it says which.

    >>> TumblingWindower(length="1h").length_us
    3600000000
    """

    length: Duration
    align_to: datetime = EPOCH

    def __post_init__(self) -> None:
        if self.length_us <= 0:
            raise FlowBuildError(
                f"TumblingWindower: length must be more than nothing, got {self.length!r}"
            )
        _ = self.align_us

    @cached_property
    def length_us(self) -> int:
        """`length` in microseconds."""
        return duration_us(self.length, "TumblingWindower: length")

    @cached_property
    def align_us(self) -> int:
        """`align_to` in microseconds."""
        return align_us(self.align_to, "TumblingWindower")

    @property
    @override
    def grace_us(self) -> int | None:
        return None

    @override
    def build(self, state: list[int] | None) -> WindowerLogic[list[int]]:
        return AlignedLogic(self.length_us, self.length_us, self.align_us, self.grace_us, state)


def align_us(align_to: object, name: str) -> int:
    """Read an `align_to` argument of the windower `name`."""
    if not isinstance(align_to, datetime):
        raise FlowTypeError(f"{name}: align_to must be an aware datetime, got {shorten(align_to)}")
    try:
        return datetime_us(align_to)
    except TimestampError as error:
        raise FlowBuildError(f"{name}: align_to: {error}") from error


class AlignedLogic(WindowerLogic[list[int]]):
    """Windows of one length that open at every multiple of an offset; the state is the ids open.

    Window i is [align + i * offset, align + i * offset + length).
    """

    __slots__ = ("_align_us", "_grace_us", "_length_us", "_offset_us", "_open")

    def __init__(
        self,
        length_us: int,
        offset_us: int,
        align_us: int,
        grace_us: int | None,
        state: list[int] | None,
    ) -> None:
        self._length_us = length_us
        self._offset_us = offset_us
        self._align_us = align_us
        self._grace_us = grace_us or 0
        self._open = set(state or ())

    @override
    def open_for(self, timestamp_us: int, watermark_us: int) -> Opened:
        ids, missed = [], []
        for window_id in self._ids_at(timestamp_us):
            if window_id in self._open or self._closes_at(window_id) > watermark_us:
                self._open.add(window_id)
                ids.append(window_id)
            else:
                missed.append(self.metadata(window_id))
        return Opened(ids, missed)

    @override
    def missed_by(self, timestamp_us: int) -> list[WindowMetadata]:
        return [self.metadata(window_id) for window_id in self._ids_at(timestamp_us)]

    @override
    def metadata(self, window_id: int) -> WindowMetadata:
        open_us = self._align_us + window_id * self._offset_us
        return WindowMetadata.of_us(window_id, open_us, open_us + self._length_us)

    @override
    def merged(self) -> list[tuple[int, int]]:
        return []

    @override
    def close_for(self, watermark_us: int) -> list[WindowMetadata]:
        closed = sorted(one for one in self._open if self._closes_at(one) <= watermark_us)
        self._open.difference_update(closed)
        return [self.metadata(window_id) for window_id in closed]

    @override
    def next_close_us(self) -> int:
        return self._closes_at(min(self._open)) if self._open else NEVER

    @override
    def snapshot(self) -> list[int] | None:
        return sorted(self._open) or None

    def _ids_at(self, timestamp_us: int) -> range:
        since = timestamp_us - self._align_us
        first = (since - self._length_us) // self._offset_us + 1
        return range(first, since // self._offset_us + 1)

    def _closes_at(self, window_id: int) -> int:
        open_us = self._align_us + window_id * self._offset_us
        return open_us + self._length_us + self._grace_us
