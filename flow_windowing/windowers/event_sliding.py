"""Event-sliding windows: a window for every value, over the values just before it.

The windows are those of Kafka Streams' `SlidingWindows`
(https://cwiki.apache.org/confluence/display/KAFKA/KIP-450).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from typing_extensions import override

from flow.checks import check_flag
from flow.durations import Duration
from flow.instants import NEVER
from flow_windowing.rules.metadata import WindowMetadata
from flow_windowing.windowers.windower import (
    AssignedWindows,
    FilledWindow,
    GraceWindower,
    WindowerLogic,
    span_us,
)

EventSlidingState: TypeAlias = tuple[list[int], list[int]]
"""The closes of the open windows, and the timestamps that right windows may still need."""


@dataclass(frozen=True)
class EventSlidingWindower(GraceWindower[EventSlidingState]):
    """Windows [t - length, t] for every distinct timestamp t; both bounds are inclusive.

    `emit_right` adds a window [t + resolution, t + resolution + length] for every t, if that window
    holds a value, so that every combination of values at most `length` apart has a
    window. A window's id is its close, in microseconds. It closes when the watermark is past its
    close.

    Args:
        length: the length of a window.
        emit_right: ``True`` adds the windows that begin just after each timestamp.
        resolution: the least difference of two timestamps; a right window opens this time after a
            timestamp.
        grace: the time past its close for which a window stays open for values behind the
            watermark; by default a value behind the watermark is late, whatever its window.

    Raises:
        FlowBuildError, FlowTypeError, DurationError: when an argument is invalid.

    >>> EventSlidingWindower(length="10s").length_us
    10000000
    """

    length: Duration
    emit_right: bool = False
    resolution: Duration = "1us"
    grace: Duration | None = None

    def __post_init__(self) -> None:
        _ = self.length_us, self.resolution_us, self.grace_us
        check_flag("EventSlidingWindower: emit_right", self.emit_right)

    @cached_property
    def length_us(self) -> int:
        """`length` in microseconds."""
        return span_us(self.length, "EventSlidingWindower: length")

    @cached_property
    def resolution_us(self) -> int:
        """`resolution` in microseconds."""
        return span_us(self.resolution, "EventSlidingWindower: resolution")

    @property
    @override
    def keep_us(self) -> int:
        return self.length_us + self.resolution_us + (self.grace_us or 0)

    @property
    @override
    def lengths_us(self) -> tuple[int, int]:
        return self.length_us, self.length_us

    @override
    def build(self, state: EventSlidingState | None) -> WindowerLogic[EventSlidingState]:
        return _EventSlidingLogic(self, state)


class _EventSlidingLogic(WindowerLogic[EventSlidingState]):
    """The windows of one key. Invariants: both lists are sorted; only right windows use `_seen`."""

    __slots__ = ("_closes", "_config", "_grace_us", "_length_us", "_seen")

    def __init__(self, config: EventSlidingWindower, state: EventSlidingState | None) -> None:
        self._config = config
        self._length_us = config.length_us
        self._grace_us = config.grace_us or 0
        closes, seen = state or ((), ())
        self._closes, self._seen = list(closes), list(seen)

    @override
    def open_for(self, timestamp_us: int, watermark_us: int) -> AssignedWindows:
        missed: Sequence[WindowMetadata] = ()
        filled: list[FilledWindow] = []
        for close_us in self._windows_of(timestamp_us):
            if _holds(self._closes, close_us, close_us):
                continue
            if close_us + self._grace_us >= watermark_us:
                insort(self._closes, close_us)
                filled.append(FilledWindow(close_us, close_us - self._length_us, close_us))
            elif close_us == timestamp_us:
                missed = self.missed_by(timestamp_us)
        if self._config.emit_right and not _holds(self._seen, timestamp_us, timestamp_us):
            insort(self._seen, timestamp_us)
        first = bisect_left(self._closes, timestamp_us)
        last = bisect_right(self._closes, timestamp_us + self._length_us)
        return AssignedWindows(self._closes[first:last], missed, filled)

    @override
    def missed_by(self, timestamp_us: int) -> Sequence[WindowMetadata]:
        return (self.metadata(timestamp_us),)

    @override
    def metadata(self, window_id: int) -> WindowMetadata:
        return WindowMetadata.of_us(window_id, window_id - self._length_us, window_id)

    @override
    def close_for(self, watermark_us: int) -> Sequence[WindowMetadata]:
        count = bisect_left(self._closes, watermark_us - self._grace_us)
        closed, self._closes = self._closes[:count], self._closes[count:]
        del self._seen[: bisect_left(self._seen, watermark_us - self._config.keep_us)]
        return [self.metadata(close_us) for close_us in closed]

    @override
    def next_close_us(self) -> int:
        closes_us = self._closes[0] + self._grace_us if self._closes else NEVER
        expires_us = self._seen[0] + self._config.keep_us if self._seen else NEVER
        return min(closes_us + 1, expires_us + 1, NEVER)

    @override
    def closed_at_us(self, window_id: int) -> int:
        return window_id + self._grace_us + 1

    @override
    def snapshot(self) -> EventSlidingState | None:
        return (list(self._closes), list(self._seen)) if self._closes or self._seen else None

    def _windows_of(self, timestamp_us: int) -> Iterator[int]:
        """Yield the closes of the windows that a timestamp creates."""
        yield timestamp_us
        if not self._config.emit_right:
            return
        right_us = self._config.resolution_us + self._length_us
        if _holds(self._seen, timestamp_us + self._config.resolution_us, timestamp_us + right_us):
            yield timestamp_us + right_us
        first = bisect_left(self._seen, timestamp_us - right_us)
        last = bisect_right(self._seen, timestamp_us - self._config.resolution_us)
        for earlier_us in self._seen[first:last]:
            yield earlier_us + right_us


def _holds(ordered: list[int], least: int, greatest: int) -> bool:
    """Return True if a sorted list has a number between two bounds, both inclusive."""
    at = bisect_left(ordered, least)
    return at < len(ordered) and ordered[at] <= greatest
