"""Custom windowers with datetimes: a function from a time to the bounds of its windows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import ClassVar, TypeAlias

from typing_extensions import override

from flow.durations import Duration
from flow.errors import FlowBuildError
from flow.instants import NEVER, datetime_us, from_us
from flow_windowing.contract.metadata import WindowMetadata
from flow_windowing.rules.watermark import has_closed
from flow_windowing.windowers.windower import Opened, Windower, WindowerLogic, grace_us

Bounds: TypeAlias = dict[int, int]
"""The close time of each window by its open time, both in µs since the Unix epoch."""


class DatetimeWindower(Windower[Bounds]):
    """Windows given by their bounds, as aware datetimes.

    A window contains its open time and not its close time, and its id is its open time in
    microseconds since the Unix epoch. It closes when the watermark reaches its close time, or, with
    `grace`, that long after it. Such windows run key by key.

    Attributes:
        grace: the time past its close for which a window stays open for values behind the
            watermark; ``None``: a value behind the watermark is late.

    Example:
        >>> from datetime import datetime, timedelta
        >>> from flow.testing import run_once
        >>> from flow_windowing import EventClock, count_window
        >>> class Shifts(DatetimeWindower):
        ...     def windows_at(self, timestamp):
        ...         opens = timestamp.replace(hour=6, minute=0, second=0, microsecond=0)
        ...         if timestamp < opens:
        ...             opens -= timedelta(days=1)
        ...         evening = opens + timedelta(hours=16)
        ...         if timestamp < evening:
        ...             return [(opens, evening)]
        ...         return [(evening, opens + timedelta(days=1))]
        >>> times = ["2024-05-01T05:59Z", "2024-05-01T06:00Z", "2024-05-01T21:00Z"]
        >>> clock, shifts = EventClock(lambda time: time, "0s"), Shifts()
        >>> out = run_once(times, lambda s: count_window("n", s, clock, shifts, lambda _: "k").down)
        >>> [(shift.open_time.hour, count) for _, (shift, count) in out]
        [(22, 1), (6, 2)]
    """

    grace: ClassVar[Duration | None] = None

    @abstractmethod
    def windows_at(self, timestamp: datetime) -> Iterable[tuple[datetime, datetime]]:
        """Return the open and the close time of each window that holds a timestamp.

        The result depends on the timestamp alone, and two windows that open at the same time are
        the same window. A value without a window is in a gap.

        Args:
            timestamp: the timestamp of a value, UTC.
        """

    @property
    @override
    def grace_us(self) -> int | None:
        return grace_us(self.grace, type(self).__name__)

    @override
    def build(self, state: Bounds | None) -> WindowerLogic[Bounds]:
        return _BoundsLogic(self, state)


class _BoundsLogic(WindowerLogic[Bounds]):
    """Windows of one key by their bounds; the state is the bounds of the open windows."""

    def __init__(self, windower: DatetimeWindower, state: Bounds | None) -> None:
        self._windower = windower
        self._grace_us = windower.grace_us or 0
        self._open = dict(state or {})
        self._next_close_us = self._least_close_us()

    @override
    def open_for(self, timestamp_us: int, watermark_us: int) -> Opened:
        ids, missed = [], []
        for open_us, close_us in self._bounds_at(timestamp_us):
            if open_us not in self._open and has_closed(close_us + self._grace_us, watermark_us):
                missed.append(WindowMetadata.of_us(open_us, open_us, close_us))
                continue
            if self._open.setdefault(open_us, close_us) != close_us:
                raise self._error(
                    timestamp_us,
                    f"a window until {from_us(close_us).isoformat()} that opens at the same time "
                    f"as the one until {from_us(self._open[open_us]).isoformat()}",
                )
            self._next_close_us = min(self._next_close_us, close_us + self._grace_us)
            ids.append(open_us)
        return Opened(ids, missed)

    @override
    def missed_by(self, timestamp_us: int) -> Sequence[WindowMetadata]:
        return [
            WindowMetadata.of_us(open_us, open_us, close_us)
            for open_us, close_us in self._bounds_at(timestamp_us)
        ]

    @override
    def metadata(self, window_id: int) -> WindowMetadata:
        return WindowMetadata.of_us(window_id, window_id, self._open[window_id])

    @override
    def close_for(self, watermark_us: int) -> Sequence[WindowMetadata]:
        closing = sorted(
            (close_us, open_us)
            for open_us, close_us in self._open.items()
            if has_closed(close_us + self._grace_us, watermark_us)
        )
        closed = [self.metadata(open_us) for _, open_us in closing]
        for _, open_us in closing:
            del self._open[open_us]
        self._next_close_us = self._least_close_us()
        return closed

    @override
    def next_close_us(self) -> int:
        return self._next_close_us

    @override
    def closed_at_us(self, window_id: int) -> int:
        return self._open[window_id] + self._grace_us

    @override
    def snapshot(self) -> Bounds | None:
        return dict(self._open) or None

    def _least_close_us(self) -> int:
        return min(self._open.values(), default=NEVER - self._grace_us) + self._grace_us

    def _bounds_at(self, timestamp_us: int) -> list[tuple[int, int]]:
        """Return the bounds of the windows of a timestamp, in order of opening.

        Raises:
            FlowBuildError: when a window does not hold the timestamp.
        """
        windows = self._windower.windows_at(from_us(timestamp_us))
        bounds = sorted((datetime_us(opens), datetime_us(closes)) for opens, closes in windows)
        for open_us, close_us in bounds:
            if not open_us <= timestamp_us < close_us:
                window = f"[{from_us(open_us).isoformat()}, {from_us(close_us).isoformat()})"
                raise self._error(timestamp_us, f"{window}, which does not hold it")
        return bounds

    def _error(self, timestamp_us: int, problem: str) -> FlowBuildError:
        name = type(self._windower).__name__
        return FlowBuildError(
            f"{name}: windows_at({from_us(timestamp_us).isoformat()}) returned {problem}"
        )
