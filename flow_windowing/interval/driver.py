"""The driver of one key of an interval join.

A value is processed completely before the next value. It first evicts the values that its watermark
has passed, then meets its partners, and is retained until no partner can come. A value never
matches an evicted value, so this order changes no pair; but values of other keys may advance the
stream's watermark, and may evict in an epoch before this value or with it. Evicting first gives
one order of the output for both.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from typing_extensions import override

from flow.instants import NEVER
from flow_windowing.contract.metadata import WindowMetadata
from flow_windowing.interval.config import IntervalJoinConfig
from flow_windowing.interval.rules import (
    LEFT,
    RIGHT,
    match_of,
    number_of,
    side_of,
    tag_of,
)
from flow_windowing.object.clocked_driver import ClockedDriver
from flow_windowing.rules.key_state import IntervalState
from flow_windowing.rules.streams import CLOSED, DOWN


@dataclass(slots=True)
class JoinValue:
    """A retained value.

    Attributes:
        timestamp_us: the timestamp.
        number: the arrival number.
        value: the value.
        is_matched: True if the value has had a partner.
    """

    timestamp_us: int
    number: int
    value: Any
    is_matched: bool = False


class IntervalDriver(ClockedDriver[IntervalState]):
    """The logic of one key of an interval join; emits ``(port, value)``.

    Invariant: the retained values of each side are sorted by timestamp, then arrival number. As
    all values of a side are retained for the same time, this is the order in which they expire.
    """

    def __init__(self, config: IntervalJoinConfig, snapshot: IntervalState | None) -> None:
        state = snapshot or IntervalState(None, 0, [])
        super().__init__(config.clock, 2, state.clock, state.arrived)
        self._interval = config.interval
        self._unmatched = config.unmatched
        self._retained: tuple[list[JoinValue], list[JoinValue]] = ([], [])
        for timestamp_us, tag, value in sorted(state.retained, key=lambda one: one[:2]):
            entry = JoinValue(timestamp_us, number_of(tag), value, bool(match_of(tag)))
            self._retained[side_of(tag)].append(entry)

    @override
    def snapshot(self) -> IntervalState:
        retained = [
            (one.timestamp_us, tag_of(one.number, side, int(one.is_matched)), one.value)
            for side, values in enumerate(self._retained)
            for one in values
        ]
        return IntervalState(self._clock.snapshot(), self._arrived, retained)

    @override
    def _enter_value(self, value: Any, timestamp_us: int, watermark_us: int, number: int) -> None:
        side, plain = value
        if self._interval.is_late(timestamp_us, watermark_us):
            missed = self._interval.window_of(side, timestamp_us)
            self._emit_late(value, timestamp_us, watermark_us, (missed,))
            return
        self._evict(watermark_us)
        entry = JoinValue(timestamp_us, number, plain)
        for partner in self._partners(side, timestamp_us):
            entry.is_matched = partner.is_matched = True
            left, right = (entry, partner) if side == LEFT else (partner, entry)
            latest_us = max(timestamp_us, partner.timestamp_us)
            window = self._interval.window_of(LEFT, left.timestamp_us, latest_us)
            self._emit(window, left.value, right.value)
        values = self._retained[side]
        # The newest value has the greatest arrival number.
        at = bisect.bisect_right(values, timestamp_us, key=_timestamp_of)
        values.insert(at, entry)

    def _partners(self, side: int, timestamp_us: int) -> list[JoinValue]:
        """Return the retained partners of a value, by timestamp, then arrival number."""
        others = self._retained[1 - side]
        first_us, last_us = self._interval.bounds_us(side, timestamp_us)
        first = bisect.bisect_left(others, first_us, key=_timestamp_of)
        return others[first : bisect.bisect_right(others, last_us, first, key=_timestamp_of)]

    @override
    def _advance(self, watermark_us: int) -> bool:
        has_evicted = self._evict(watermark_us)
        if not self._has_values():
            # A reset at the end of the epoch would make numbers depend on the boundaries of epochs.
            self._arrived = 0
        return has_evicted

    def _evict(self, watermark_us: int) -> bool:
        """Evict the values that expire by a watermark, in order of expiry, then of arrival.

        Returns:
            True if a value was evicted.
        """
        evicted: list[tuple[int, int, int, JoinValue]] = []
        for side, values in enumerate(self._retained):
            # Values expire a constant time after their timestamps.
            last_us = watermark_us - self._interval.expires_us(side, 0)
            count = bisect.bisect_right(values, last_us, key=_timestamp_of)
            for one in values[:count]:
                expires_us = self._interval.expires_us(side, one.timestamp_us)
                evicted.append((expires_us, one.number, side, one))
            del values[:count]
        evicted.sort(key=lambda one: one[:2])
        for _, _, side, one in evicted:
            self._leave(side, one)
        return bool(evicted)

    def _leave(self, side: int, one: JoinValue) -> None:
        """Emit an expired value without a partner, and the window of a left value."""
        if not one.is_matched and side in self._unmatched:
            window = self._interval.window_of(side, one.timestamp_us)
            left, right = (one.value, None) if side == LEFT else (None, one.value)
            self._emit(window, left, right)
        if side == LEFT:
            self._output.append((CLOSED, self._interval.window_of(LEFT, one.timestamp_us)))

    def _emit(self, window: WindowMetadata, left: Any, right: Any) -> None:
        self._output.append((DOWN, (window, (left, right))))

    @override
    def _has_values(self) -> bool:
        return bool(self._retained[LEFT] or self._retained[RIGHT])

    @override
    def _has_state(self) -> bool:
        return False

    @override
    def _next_us(self) -> int:
        expiries = (
            self._interval.expires_us(side, values[0].timestamp_us)
            for side, values in enumerate(self._retained)
            if values
        )
        return min(expiries, default=NEVER)


_timestamp_of = attrgetter("timestamp_us")
