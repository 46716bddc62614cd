"""Custom clocks with datetimes in the place of microseconds."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime

from typing_extensions import TypeVar, override

from flow.instants import MAX_US, MIN_US, NEVER, Moment, datetime_us, from_us
from flow_windowing.clocks.clock import ClockLogic, Reading
from flow_windowing.rules.watermark import NO_WATERMARK

V = TypeVar("V")
S = TypeVar("S")


class DatetimeClockLogic(ClockLogic[V, S]):
    """The clock of one key, with datetimes: arguments are UTC, and results must be aware.

    A logic with datetimes is called for each value, as every custom clock is. Override the methods
    of `ClockLogic` for times that datetimes do not express, such as the time up to which inputs
    have been read (`Moment.inputs_us`).

    Example:
        >>> from datetime import datetime, timedelta
        >>> from flow.testing import run_once
        >>> from flow_windowing import Clock, TumblingWindower, collect_window
        >>> class TwoMinutesBehind(DatetimeClockLogic):
        ...     def __init__(self, greatest):
        ...         self.greatest = greatest
        ...
        ...     def on_value(self, value, now):
        ...         timestamp = datetime.fromisoformat(value)
        ...         self.greatest = max(self.greatest or timestamp, timestamp)
        ...         return timestamp, self.watermark_at(now)
        ...
        ...     def watermark_at(self, now):
        ...         return self.greatest and self.greatest - timedelta(minutes=2)
        ...
        ...     def snapshot(self):
        ...         return self.greatest
        >>> class TwoMinutesBehindClock(Clock):
        ...     def build(self, state):
        ...         return TwoMinutesBehind(state)
        >>> times = ["2024-05-01T10:00:30Z", "2024-05-01T10:03:00Z", "2024-05-01T10:00:40Z"]
        >>> clock, minutes = TwoMinutesBehindClock(), TumblingWindower("1m")
        >>> out = run_once(
        ...     [("k", time) for time in times],
        ...     lambda s: collect_window("w", s, clock, minutes).late,
        ... )
        >>> [late.value for _, late in out]
        ['2024-05-01T10:00:40Z']
    """

    @abstractmethod
    def on_value(self, value: V, now: datetime) -> tuple[datetime, datetime | None]:
        """Return the timestamp of a value, and the watermark after it.

        Called in order of arrival. The watermark never decreases; it is ``None`` before the first
        watermark.

        Args:
            value: the value.
            now: the system time.

        Raises:
            RejectedValue: when the value has no readable timestamp; the flow stops.
            DroppedValue: when such a value is dropped instead.
        """

    @abstractmethod
    def watermark_at(self, now: datetime) -> datetime | None:
        """Return the watermark at a system time; ``None`` before the first watermark."""

    def due_at(self, watermark: datetime, now: datetime) -> datetime | None:  # noqa: ARG002
        """Return the system time at which the watermark reaches `watermark` if no value arrives.

        ``None``, the default, if system time does not advance the watermark.
        """
        return None

    @override
    def on_item(self, value: V, moment: Moment) -> Reading:
        timestamp, watermark = self.on_value(value, from_us(moment.now_us))
        return Reading(datetime_us(timestamp), _watermark_us(watermark))

    @override
    def watermark(self, moment: Moment) -> int:
        return _watermark_us(self.watermark_at(from_us(moment.now_us)))

    @override
    def due_us(self, watermark_us: int, moment: Moment) -> int:
        if watermark_us > MAX_US:
            return NEVER
        watermark = from_us(max(watermark_us, MIN_US))
        due = self.due_at(watermark, from_us(moment.now_us))
        return NEVER if due is None else datetime_us(due)


def _watermark_us(watermark: datetime | None) -> int:
    return NO_WATERMARK if watermark is None else datetime_us(watermark)
