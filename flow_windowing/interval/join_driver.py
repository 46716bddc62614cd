"""The base of joins of two streams by time, for one key: retained values and their snapshot."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from typing_extensions import override

from flow_windowing.clocks.clock import Clock
from flow_windowing.contract.joined_pair import JoinedPair
from flow_windowing.contract.metadata import WindowMetadata
from flow_windowing.interval.rules import LEFT, RIGHT, Interval
from flow_windowing.object.clocked_driver import ClockedDriver
from flow_windowing.rules.key_state import IntervalState
from flow_windowing.rules.streams import CLOSED, DOWN
from flow_windowing.rules.tags import mark_of, number_of, side_of, tag_of


@dataclass(slots=True)
class JoinValue:
    """A retained value.

    Attributes:
        timestamp_us: the timestamp.
        number: the arrival number.
        value: the value.
        is_marked: in an interval join, True if the value has had a partner; in an as-of join, True
            for a right value that deletes.
    """

    timestamp_us: int
    number: int
    value: Any
    is_marked: bool = False


class JoinDriver(ClockedDriver[IntervalState]):
    """The logic of one key of a join by time; emits ``(port, value)``.

    Invariant: the retained values of each side are sorted by timestamp, then arrival number.

    Args:
        clock: the clock.
        interval: the interval in which left values have partners.
        snapshot: the state of the key; ``None`` for a new key.
    """

    def __init__(
        self, clock: Clock[Any, Any], interval: Interval, snapshot: IntervalState | None
    ) -> None:
        state = snapshot or IntervalState(None, 0, [])
        super().__init__(clock, 2, state.clock, state.arrived)
        self._interval = interval
        self._retained: tuple[list[JoinValue], list[JoinValue]] = ([], [])
        for timestamp_us, tag, value in sorted(state.retained, key=lambda one: one[:2]):
            entry = JoinValue(timestamp_us, number_of(tag), value, bool(mark_of(tag)))
            self._retained[side_of(tag)].append(entry)

    @override
    def snapshot(self) -> IntervalState:
        retained = [
            (one.timestamp_us, tag_of(one.number, side, int(one.is_marked)), one.value)
            for side, values in enumerate(self._retained)
            for one in values
        ]
        return IntervalState(self._clock.snapshot(), self._arrived, retained)

    @abstractmethod
    def _enter_on_time(self, side: int, entry: JoinValue, watermark_us: int) -> None:
        """Process a value that is on time."""

    @abstractmethod
    def _evict(self, watermark_us: int) -> bool:
        """Evict values that the watermark has passed; return True if there was one."""

    @override
    def _enter_value(self, value: Any, timestamp_us: int, watermark_us: int, number: int) -> None:
        side, plain = value
        if self._interval.is_late(timestamp_us, watermark_us):
            missed = self._interval.window_of(side, timestamp_us)
            self._emit_late(value, timestamp_us, watermark_us, (missed,))
        else:
            self._enter_on_time(side, JoinValue(timestamp_us, number, plain), watermark_us)

    @override
    def _advance(self, watermark_us: int) -> bool:
        has_evicted = self._evict(watermark_us)
        if not self._has_values():
            # A reset at the end of the epoch would make numbers depend on the boundaries of epochs.
            self._arrived = 0
        return has_evicted

    def _emit(self, window: WindowMetadata, left: Any, right: Any) -> None:
        self._output.append((DOWN, (window, JoinedPair(left, right))))

    def _emit_closed(self, left: JoinValue) -> None:
        """Emit the window of a left value, as the value leaves."""
        self._output.append((CLOSED, self._interval.window_of(LEFT, left.timestamp_us)))

    @override
    def _has_values(self) -> bool:
        return bool(self._retained[LEFT] or self._retained[RIGHT])

    @override
    def _has_state(self) -> bool:
        return False


timestamp_of = attrgetter("timestamp_us")
"""The key by which retained values are sorted and searched."""
