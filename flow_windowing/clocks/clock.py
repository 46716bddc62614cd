"""The contract of clocks, which return timestamps of values and the watermark.

A `Clock` is configuration; it builds a `ClockLogic` for each key, which owns the key's state. Times
in a logic are ints: microseconds since the Unix epoch. A `ClockedBuilder` has the capabilities of a
step that follow from its clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from typing_extensions import override

from flow.checks import KnownArguments, wrong_type
from flow.instants import MAX_US, MIN_US, NEVER, Moment, datetime_us, from_us
from flow.keyed.logic import Progress
from flow.keyed.step import Capabilities, LogicBuilder
from flow_windowing.rules.metadata import LateReason
from flow_windowing.rules.watermark import NO_WATERMARK

V = TypeVar("V")
S = TypeVar("S")


class Reading(NamedTuple):
    """The timestamp of a value, and the watermark after it.

    Attributes:
        timestamp_us: the timestamp.
        watermark_us: the watermark after the value.
        refused: the reason for which the value enters no window; ``None`` if it may enter windows.
    """

    timestamp_us: int
    watermark_us: int
    refused: LateReason | None = None


class DroppedValue(Exception):
    """A decision of a clock to drop a value, which the step counts and no stream receives."""


class ClockLogic(ABC, Generic[V, S]):
    """The clock of one key.

    Laws: the watermark never decreases; a timestamp depends only on the value and the moment.
    """

    @abstractmethod
    def on_item(self, value: V, moment: Moment) -> Reading:
        """Return the timestamp of a value and the watermark after it; called in order of arrival.

        Raises:
            RejectedValue: when the value has no readable timestamp; the flow stops.
            DroppedValue: when such a value is dropped instead.
        """

    @abstractmethod
    def watermark(self, moment: Moment) -> int:
        """Return the watermark at a moment, in µs since the Unix epoch."""

    @abstractmethod
    def due_us(self, watermark_us: int, moment: Moment) -> int:
        """Return the system time at which the watermark reaches `watermark_us` if no value arrives.

        In microseconds; `NEVER` if system time does not advance the watermark.
        """

    def forget_us(self, moment: Moment) -> int:  # noqa: ARG002
        """Return the system time at which the key's state expires if no value arrives, or `NEVER`.

        Called when the key has no open window and no buffered value.
        """
        return NEVER

    def settle(self, moment: Moment) -> None:
        """Advance the state to the end of an epoch, after its values and the windows that close.

        `on_item` is called with ``moment.before``, the start of the epoch; `moment` is its end.
        """

    @abstractmethod
    def snapshot(self) -> S | None:
        """Return a copy of the state, ``None`` for the state of a new key."""


class Clock(KnownArguments, ABC, Generic[V, S]):
    """Configuration of timestamps and watermarks."""

    WRONG_ARGUMENTS: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("wait", "delay"),
            "use wait_for_system_duration=, how long the clock waits for values out of order",
        ),
        "lateness": "use wait_for_system_duration=, or grace= on the windower",
        **dict.fromkeys(
            ("dt_getter", "timestamp", "timestamp_extractor"),
            "use ts_getter=, a function of the value or the path of a field",
        ),
    }

    @abstractmethod
    def build(self, state: S | None) -> ClockLogic[V, S]:
        """Return the logic of one key, from a snapshot or, for a new key, from ``None``."""

    @property
    def progress(self) -> Progress | None:
        """The measure of stream progress, for a clock whose watermark is the stream progress.

        Logics read the progress from ``moment.progress_us``; `ClockLogic.due_us` returns the
        progress to reach.
        """
        return None

    @property
    def holds(self) -> Progress | None:
        """The measure by which source partitions that are behind hold the watermark.

        Logics read the bound from ``moment.bound_us``. ``None`` for a clock that no partition
        holds, such as system time.
        """
        return None

    @property
    def follows_inputs(self) -> bool:
        """True for a clock whose watermark advances by `Moment.inputs_us`, not by system time."""
        return False

    @property
    def takes_holds(self) -> bool:
        """True if steps whose results the clock's step reads hold the watermark.

        Logics then judge all values of an epoch by the watermark at its start where
        ``moment.judges_epoch``, and read the bound from ``moment.bound_us``.
        """
        return False

    @property
    def wait_us(self) -> int:
        """The time for which the clock waits for values out of order, in microseconds."""
        return 0

    def with_wait(self, wait_us: int) -> Self:
        """Return the same clock with another wait; only called if it takes holds."""
        raise NotImplementedError(f"{type(self).__name__} takes no holds, got {wait_us}")


def check_clock(value: object) -> None:
    """Raise a `FlowTypeError` unless `value` is a `Clock`."""
    if not isinstance(value, Clock):
        raise wrong_type("clock must be a Clock such as EventClock(...)", value)


@dataclass(frozen=True)
class SystemClock(Clock[Any, None]):
    """System time: timestamp and watermark are the time of arrival, so no value is late.

    >>> SystemClock()
    SystemClock()
    """

    @override
    def build(self, state: None) -> ClockLogic[Any, None]:
        return _SystemClockLogic()


class _SystemClockLogic(ClockLogic[Any, None]):
    @override
    def on_item(self, value: Any, moment: Moment) -> Reading:
        return Reading(moment.now_us, moment.now_us)

    @override
    def watermark(self, moment: Moment) -> int:
        return moment.now_us

    @override
    def due_us(self, watermark_us: int, moment: Moment) -> int:
        return watermark_us

    @override
    def snapshot(self) -> None:
        return None


class ClockedBuilder(LogicBuilder):
    """A builder of key logic with a clock; snapshots have the clock's state in `clock`.

    Attributes:
        clock: the clock.
    """

    NAMES_FIELDS: ClassVar[tuple[str, ...]] = ("clock",)

    clock: Clock[Any, Any]

    @property
    @override
    def capabilities(self) -> Capabilities:
        clock = self.clock
        return Capabilities(
            *(clock.progress, clock.holds, clock.follows_inputs, clock.takes_holds, clock.wait_us)
        )

    @override
    def with_wait(self, wait_us: int) -> Self:
        builder: Any = self
        longer: Self = replace(builder, clock=self.clock.with_wait(wait_us))
        return longer

    @override
    def watermark(self, snapshot: Any, moment: Moment) -> datetime | None:
        clock = self.clock.build(None if snapshot is None else snapshot.clock)
        watermark_us = clock.watermark(moment)
        return from_us(watermark_us) if MIN_US <= watermark_us <= MAX_US else None


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
