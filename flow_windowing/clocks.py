"""Clocks: what is the timestamp of a value, and what is the watermark now?

A `Clock` is configuration; the `ClockLogic` it builds runs for one key and owns the state. Inside,
time is a whole number of microseconds since the Unix epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from typing_extensions import override

from flow.durations import Duration, duration_us
from flow.errors import FlowBuildError, FlowTypeError, shorten
from flow.instants import NEVER, Instant, Moment, instant_us
from flow.operators import RejectedValue
from flow.paths import get_path

V = TypeVar("V")
S = TypeVar("S")

FOREVER_US = 1 << 61
"""A wait longer than any calendar: the watermark never moves."""
NO_WATERMARK = -NEVER
"""The watermark of a key before its first value."""


class ClockLogic(ABC, Generic[V, S]):
    """A sense of time for one key.

    Laws: the watermark never goes back, and a timestamp depends on nothing but the value and the
    moment.
    """

    @abstractmethod
    def on_item(self, value: V, moment: Moment) -> tuple[int, int]:
        """Called with each value, in arrival order.

        Returns:
            The value's timestamp, and the watermark once the value has been considered, in
            microseconds since the Unix epoch.

        Raises:
            RejectedValue: when the value has no timestamp that can be read.
        """

    @abstractmethod
    def watermark(self, moment: Moment) -> int:
        """The watermark now, in microseconds since the Unix epoch."""

    @abstractmethod
    def due_us(self, watermark_us: int, moment: Moment) -> int:
        """The system time at which the watermark gets to `watermark_us` if no value comes.

        In microseconds; `NEVER` when system time does not move the watermark.
        """

    @abstractmethod
    def snapshot(self) -> S | None:
        """A copy of the state; ``None`` when there is nothing to remember."""


class Clock(ABC, Generic[V, S]):
    """A kind of time, as configuration."""

    @abstractmethod
    def build(self, state: S | None) -> ClockLogic[V, S]:
        """Make the logic of one key, from a snapshot if there is one."""


@dataclass(frozen=True)
class SystemClock(Clock[Any, None]):
    """System time: a value's timestamp, and the watermark, is when it came. Nothing is ever late.

    >>> SystemClock()
    SystemClock()
    """

    @override
    def build(self, state: None) -> ClockLogic[Any, None]:
        return _SystemClockLogic()


class _SystemClockLogic(ClockLogic[Any, None]):
    def on_item(self, value: Any, moment: Moment) -> tuple[int, int]:  # noqa: ARG002
        return moment.now_us, moment.now_us

    def watermark(self, moment: Moment) -> int:
        return moment.now_us

    def due_us(self, watermark_us: int, moment: Moment) -> int:  # noqa: ARG002
        return watermark_us

    def snapshot(self) -> None:
        return None


@dataclass(frozen=True)
class EventClock(Clock[V, tuple[int, int]]):
    """Event time: each value carries its timestamp, and the watermark follows the greatest.

    For each key, the watermark is the greatest of ``timestamp - wait_for_system_duration`` seen so
    far, plus the system time that has passed since; the time for which the flow was not running
    does not count.

    Args:
        ts_getter: a function of the value, or the path of a field, such as ``"details.at"``, that
            gives an aware datetime, Unix seconds or ISO 8601 text.
        wait_for_system_duration: how long to wait for values out of order; ``timedelta.max`` never
            moves the watermark until the input ends.

    Raises:
        FlowTypeError, FlowBuildError, DurationError: when an argument is not fit.

    >>> EventClock("at", "5m")
    EventClock(ts_getter='at', wait_for_system_duration='5m')
    """

    ts_getter: Callable[[V], Instant] | str
    wait_for_system_duration: Duration

    def __post_init__(self) -> None:
        if not isinstance(self.ts_getter, str) and not callable(self.ts_getter):
            raise FlowTypeError(
                "EventClock: ts_getter must be a function or a field's path, "
                f"got {shorten(self.ts_getter)}"
            )
        if isinstance(self.ts_getter, str) and not all(self.ts_getter.split(".")):
            raise FlowBuildError(
                f"EventClock: ts_getter must be a field's path such as 'details.at', "
                f"got {self.ts_getter!r}"
            )
        if self.wait_us < 0:
            raise FlowBuildError(
                "EventClock: wait_for_system_duration must not be negative, "
                f"got {self.wait_for_system_duration!r}"
            )

    @cached_property
    def wait_us(self) -> int:
        """`wait_for_system_duration` in microseconds."""
        wait = duration_us(self.wait_for_system_duration, "EventClock: wait_for_system_duration")
        return min(wait, FOREVER_US)

    @override
    def build(self, state: tuple[int, int] | None) -> ClockLogic[V, tuple[int, int]]:
        return _EventClockLogic(self.ts_getter, self.wait_us, state)


class _EventClockLogic(ClockLogic[Any, tuple[int, int]]):
    """The state is the watermark's base, and the running time at which it was set."""

    __slots__ = ("_base_us", "_get", "_path", "_set_at_us", "_wait_us")

    def __init__(
        self,
        ts_getter: Callable[[Any], Any] | str,
        wait_us: int,
        state: tuple[int, int] | None,
    ) -> None:
        self._path = ts_getter if isinstance(ts_getter, str) else None
        self._get = None if isinstance(ts_getter, str) else ts_getter
        self._wait_us = wait_us
        self._base_us, self._set_at_us = state or (NO_WATERMARK, 0)

    def on_item(self, value: Any, moment: Moment) -> tuple[int, int]:
        timestamp_us = self._timestamp(value)
        candidate_us = timestamp_us - self._wait_us
        watermark_us = self.watermark(moment)
        if candidate_us > watermark_us:
            self._base_us, self._set_at_us = candidate_us, moment.running_us
            return timestamp_us, candidate_us
        return timestamp_us, watermark_us

    def watermark(self, moment: Moment) -> int:
        if self._base_us == NO_WATERMARK:
            return NO_WATERMARK
        return self._base_us + max(0, moment.running_us - self._set_at_us)

    def due_us(self, watermark_us: int, moment: Moment) -> int:
        if self._base_us == NO_WATERMARK:
            return NEVER
        return min(self._set_at_us + watermark_us - self._base_us + moment.downtime_us, NEVER)

    def snapshot(self) -> tuple[int, int] | None:
        return None if self._base_us == NO_WATERMARK else (self._base_us, self._set_at_us)

    def _timestamp(self, value: Any) -> int:
        path = self._path
        try:
            if path is None:
                found = self._get(value)  # type: ignore[misc]
            elif isinstance(value, Mapping) and path in value:
                found = value[path]
            else:
                found = get_path(value, path)
            return instant_us(found)
        except Exception as error:
            what = "ts_getter" if path is None else f"ts_getter {path!r}"
            problem = f"{what} gave no timestamp: {type(error).__name__}: {error}"
            raise RejectedValue(value, problem) from error
