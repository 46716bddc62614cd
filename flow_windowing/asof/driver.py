"""The driver of one key of an as-of join.

Left values leave in the order of their timestamps, as a left value with a greater timestamp has its
partner final no earlier. So the least left value has the key's timer.
"""

from __future__ import annotations

import bisect
from typing import Any

from typing_extensions import override

from flow.instants import NEVER
from flow_windowing.asof.config import AsofJoinConfig
from flow_windowing.asof.rules import NO_RIGHT
from flow_windowing.interval.join_driver import JoinDriver, JoinValue, timestamp_of
from flow_windowing.interval.rules import LEFT, RIGHT
from flow_windowing.rules.key_state import IntervalState
from flow_windowing.rules.watermark import ONE_KEY


class AsofDriver(JoinDriver):
    """The logic of one key of an as-of join; emits ``(port, value)``.

    Invariants: the retained left values wait for the watermark; no two retained right values have
    the same timestamp, and each of them may be found by a left value that waits or is on time.
    """

    def __init__(self, config: AsofJoinConfig, snapshot: IntervalState | None) -> None:
        super().__init__(config.clock, config.as_of.interval, snapshot)
        self._config = config
        self._as_of = config.as_of
        self._left, self._right = self._retained

    @override
    def _enter_on_time(self, side: int, entry: JoinValue, watermark_us: int) -> None:
        if side == RIGHT:
            self._add_right(entry)
        elif self._config.emit == "now":
            self._leave(entry)
        else:
            at = bisect.bisect_right(self._left, entry.timestamp_us, key=timestamp_of)
            self._left.insert(at, entry)
        self._evict_right(watermark_us)

    def _add_right(self, entry: JoinValue) -> None:
        entry.value = self._config.part_of(entry.value)
        entry.is_marked = entry.value is None
        at = bisect.bisect_left(self._right, entry.timestamp_us, key=timestamp_of)
        is_known = at < len(self._right) and self._right[at].timestamp_us == entry.timestamp_us
        self._right[at : at + is_known] = [entry]

    @override
    def _evict(self, watermark_us: int) -> bool:
        count = 0
        while count < len(self._left) and self._final_us(self._left[count]) <= watermark_us:
            self._leave(self._left[count])
            count += 1
        del self._left[:count]
        is_only_right = bool(self._right) and not self._left
        is_over = is_only_right and self._last_expiry_us() <= watermark_us
        if count or is_over:
            self._evict_right(watermark_us)
        return count > 0 or is_over

    def _leave(self, left: JoinValue) -> None:
        """Emit a left value with its partner among the right values that have arrived."""
        at_us, earlier_us, later_us = self._around(left)
        found_us = self._as_of.partner_us(ONE_KEY, at_us, earlier_us, later_us)
        right: Any = None
        if found_us < NEVER:
            at = bisect.bisect_left(self._right, found_us, key=timestamp_of)
            right = self._right[at].value
        if right is not None or self._config.how == "left":
            self._emit(self._interval.window_of(LEFT, at_us), left.value, right)
        self._emit_closed(left)

    def _final_us(self, left: JoinValue) -> int:
        return self._as_of.final_us(ONE_KEY, *self._around(left))

    def _around(self, left: JoinValue) -> tuple[int, int, int]:
        """Return the timestamps of a left value, of its earlier and of its later right value."""
        at_us, values = left.timestamp_us, self._right
        earlier_us, later_us = NO_RIGHT
        at = bisect.bisect_left(values, at_us, key=timestamp_of)
        if at < len(values):
            later_us = values[at].timestamp_us
        if later_us == at_us:
            earlier_us = at_us
        elif at:
            earlier_us = values[at - 1].timestamp_us
        return at_us, earlier_us, later_us

    def _evict_right(self, watermark_us: int) -> None:
        """Evict the right values that no left value that waits or is on time finds."""
        values = self._right
        least_us = min(watermark_us, self._left[0].timestamp_us) if self._left else watermark_us
        at = bisect.bisect_right(values, least_us, key=timestamp_of)
        # The last right value at or before the least left value hides all before it.
        is_expired = at > 0 and self._expiry_us(values[at - 1]) <= least_us
        del values[: at if is_expired else max(at - 1, 0)]

    def _expiry_us(self, right: JoinValue) -> int:
        return self._as_of.expires_us(ONE_KEY, right.timestamp_us, int(right.is_marked))

    def _last_expiry_us(self) -> int:
        """Return the watermark at which all right values expire, `NEVER` without right values."""
        return self._expiry_us(self._right[-1]) if self._right else NEVER

    @override
    def _next_us(self) -> int:
        return self._final_us(self._left[0]) if self._left else self._last_expiry_us()
