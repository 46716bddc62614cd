"""The driver of one key of an interval join.

A value is processed completely before the next value. It first evicts the values that its watermark
has passed, then meets its partners, and is retained until no partner can come. A value never
matches an evicted value, so this order changes no pair; but values of other keys may advance the
stream's watermark, and may evict in an epoch before this value or with it. Evicting first gives
one order of the output for both.
"""

from __future__ import annotations

import bisect

from typing_extensions import override

from flow.instants import NEVER
from flow_windowing.interval.config import IntervalJoinConfig
from flow_windowing.interval.join_driver import JoinDriver, JoinValue, timestamp_of
from flow_windowing.interval.rules import LEFT
from flow_windowing.rules.key_state import IntervalState


class IntervalDriver(JoinDriver):
    """The logic of one key of an interval join; emits ``(port, value)``.

    As all values of a side are retained for the same time, the order of their timestamps is the
    order in which they expire.
    """

    def __init__(self, config: IntervalJoinConfig, snapshot: IntervalState | None) -> None:
        super().__init__(config.clock, config.interval, snapshot)
        self._unmatched = config.unmatched

    @override
    def _enter_on_time(self, side: int, entry: JoinValue, watermark_us: int) -> None:
        self._evict(watermark_us)
        for partner in self._partners(side, entry.timestamp_us):
            entry.is_marked = partner.is_marked = True
            left, right = (entry, partner) if side == LEFT else (partner, entry)
            latest_us = max(left.timestamp_us, right.timestamp_us)
            window = self._interval.window_of(LEFT, left.timestamp_us, latest_us)
            self._emit(window, left.value, right.value)
        values = self._retained[side]
        # The newest value has the greatest arrival number.
        at = bisect.bisect_right(values, entry.timestamp_us, key=timestamp_of)
        values.insert(at, entry)

    def _partners(self, side: int, timestamp_us: int) -> list[JoinValue]:
        """Return the retained partners of a value, by timestamp, then arrival number."""
        others = self._retained[1 - side]
        first_us, last_us = self._interval.bounds_us(side, timestamp_us)
        first = bisect.bisect_left(others, first_us, key=timestamp_of)
        return others[first : bisect.bisect_right(others, last_us, first, key=timestamp_of)]

    @override
    def _evict(self, watermark_us: int) -> bool:
        # Values leave in order of expiry, then of arrival.
        evicted: list[tuple[int, int, int, JoinValue]] = []
        for side, values in enumerate(self._retained):
            # Values expire a constant time after their timestamps.
            last_us = watermark_us - self._interval.expires_us(side, 0)
            count = bisect.bisect_right(values, last_us, key=timestamp_of)
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
        if not one.is_marked and side in self._unmatched:
            window = self._interval.window_of(side, one.timestamp_us)
            left, right = (one.value, None) if side == LEFT else (None, one.value)
            self._emit(window, left, right)
        if side == LEFT:
            self._emit_closed(one)

    @override
    def _next_us(self) -> int:
        expiries = (
            self._interval.expires_us(side, values[0].timestamp_us)
            for side, values in enumerate(self._retained)
            if values
        )
        return min(expiries, default=NEVER)
