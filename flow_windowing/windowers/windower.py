"""The contract of windowers, which assign values to windows and close windows.

A `Windower` is configuration; it builds a `WindowerLogic` for each key, which owns the key's state.
Times in a logic are ints: microseconds since the Unix epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from typing_extensions import override

from flow.checks import KnownArguments, wrong_type
from flow.durations import Duration, natural_us, positive_us
from flow.errors import FlowBuildError
from flow.instants import NEVER, datetime_us, from_us
from flow_windowing.rules.metadata import WindowMetadata
from flow_windowing.rules.triggers import Timestamp
from flow_windowing.rules.watermark import has_closed

S = TypeVar("S")

LONGEST_US = 1 << 60
"""The greatest duration, several times as long as the calendar; longer ones are reduced to it.

So a timestamp plus up to three durations is less than `NEVER`, and a window that no watermark
closes, such as with ``grace=timedelta.max``, still closes when the input ends.
"""


class FilledWindow(NamedTuple):
    """A new window that holds earlier values.

    Attributes:
        window_id: the id of the window.
        first_us: the least timestamp of the values that the window holds from the start, inclusive.
        last_us: the greatest timestamp of these values, inclusive.
    """

    window_id: int
    first_us: int
    last_us: int


class AssignedWindows(NamedTuple):
    """The windows of a value. A value for which all fields are empty is in a gap.

    Attributes:
        ids: the open windows that the value enters.
        missed: the closed windows that the value is late for.
        filled: new windows, among `ids` or not, that hold earlier values; only for windowers with
            `Windower.keep_us`.
    """

    ids: Sequence[int]
    missed: Sequence[WindowMetadata] = ()
    filled: Sequence[FilledWindow] = ()


class WindowerLogic(ABC, Generic[S]):
    """The windows of one key.

    Laws: a window that `close_for` returned never opens again; an id is never used for two windows.
    """

    @abstractmethod
    def open_for(self, timestamp_us: int, watermark_us: int) -> AssignedWindows:
        """Open the windows of a value, except those that the watermark has closed.

        Never called for a value behind the watermark if `Windower.grace_us` is ``None``.
        """

    @abstractmethod
    def missed_by(self, timestamp_us: int) -> Sequence[WindowMetadata]:
        """Return the windows that a late timestamp belongs to, without opening them."""

    @abstractmethod
    def metadata(self, window_id: int) -> WindowMetadata:
        """Return the metadata of an open window."""

    def merged(self) -> Sequence[tuple[int, int]]:
        """Return the merges since the last call, in order: ``(merged id, id that remains)``."""
        return ()

    @abstractmethod
    def close_for(self, watermark_us: int) -> Sequence[WindowMetadata]:
        """Close the windows that the watermark has passed, and return them in order of closing.

        Called when the watermark reaches `next_close_us`, and with `NEVER` when the input ends.
        """

    @abstractmethod
    def next_close_us(self) -> int:
        """Return the least watermark at which `close_for` closes a window, or `NEVER`.

        Called after every value, so it must be cheap.
        """

    def closed_at_us(self, window_id: int) -> int:  # noqa: ARG002
        """Return the least watermark at which an open window is closed, grace included.

        By default `NEVER`: with a trigger, the on-time pane is then emitted as the window closes.
        """
        return NEVER

    @abstractmethod
    def snapshot(self) -> S | None:
        """Return a copy of the state, ``None`` for the state of a new key."""


class Windower(KnownArguments, ABC, Generic[S]):
    """Configuration of the windows of a key's values."""

    WRONG_ARGUMENTS: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("size", "duration"), "use length=, how long a window is"),
        **dict.fromkeys(
            ("every", "period"), "use offset=, how long after one window the next one opens"
        ),
        "timeout": "use gap=, the longest silence inside a session",
        "allowed_lateness": "use grace=, how long past its close a window stays open",
        "grace_ms": 'use grace=, a duration such as "5s"',
        "duration_ms": 'use length=, a duration such as "10s"',
    }

    @property
    def grace_us(self) -> int | None:
        """The time past its close for which a window stays open for values behind the watermark.

        In microseconds. ``None``: a value behind the watermark is late, whatever its window.
        """
        return None

    @property
    def merges(self) -> bool:
        """True if windows may merge, as sessions do."""
        return False

    @property
    def closes_by_time(self) -> bool:
        """True if the watermark closes windows; otherwise a value may close its window."""
        return True

    @property
    def follows_time_alone(self) -> bool:
        """True if the windows of a value follow from its timestamp alone, the same for every key.

        Operators over all keys need such windows.
        """
        return False

    @property
    def keep_us(self) -> int | None:
        """The time behind the watermark for which values are retained for windows that open later.

        In microseconds. ``None``: values are not retained.
        """
        return None

    @property
    def lengths_us(self) -> tuple[int, int]:
        """The least and the greatest length of a window, in microseconds.

        By default 0, for windows whose length is not known: a step that reads their results may
        call some of them late.
        """
        return 0, 0

    def reach_us(self, timestamp: Timestamp) -> int:
        """Return how far before a value the result of a window that the value opens may lie.

        A step holds the steps that read its results at the bound of its watermarks less this time.
        With a grace, the value may enter a window that the watermark has passed.

        Args:
            timestamp: the timestamp of a result.
        """
        grace_us, (_, greatest_us) = self.grace_us, self.lengths_us
        if timestamp == "close":
            return grace_us or 0
        return 0 if timestamp == "last" and grace_us is None else greatest_us + (grace_us or 0)

    def stays_us(self, timestamp: Timestamp) -> int:
        """Return how far behind the watermark a result is, at least, as its window closes."""
        return (self.lengths_us[0] if timestamp == "open" else 0) + (self.grace_us or 0)

    @abstractmethod
    def build(self, state: S | None) -> WindowerLogic[S]:
        """Return the logic of one key, from a snapshot or, for a new key, from ``None``."""


class GraceWindower(Windower[S]):
    """Configuration of windows that end in time, and may stay open past their close."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"grace"})

    grace: Duration | None

    @cached_property
    @override
    def grace_us(self) -> int | None:
        return grace_us(self.grace, type(self).__name__)


class IndexedLogic(WindowerLogic[list[int]]):
    """Windows whose bounds follow from their index; the state is the indices of open windows.

    A window with a greater index closes later. Invariant: `_in_order` is `_open`, sorted, so that
    closing a window does not visit the windows that stay open, which may be thousands.
    """

    __slots__ = ("_in_order", "_next_close_us", "_open")

    def __init__(self, state: list[int] | None) -> None:
        self._in_order = sorted(state or ())
        self._open = set(self._in_order)
        self._next_close_us = self._first_close_us()

    @abstractmethod
    def ids_at(self, timestamp_us: int) -> Sequence[int]:
        """Return the indices of the windows that hold a timestamp."""

    @abstractmethod
    def bounds_us(self, window_id: int) -> tuple[int, int]:
        """Return the open and the close time of a window."""

    @abstractmethod
    @override
    def closed_at_us(self, window_id: int) -> int:
        """Return the least watermark at which a window is closed, grace included."""

    @override
    def open_for(self, timestamp_us: int, watermark_us: int) -> AssignedWindows:
        ids, missed = [], []
        for window_id in self.ids_at(timestamp_us):
            if window_id in self._open:
                ids.append(window_id)
                continue
            closed_at_us = self.closed_at_us(window_id)
            if has_closed(closed_at_us, watermark_us):
                missed.append(self.metadata(window_id))
                continue
            self._open.add(window_id)
            insort(self._in_order, window_id)
            self._next_close_us = min(self._next_close_us, closed_at_us)
            ids.append(window_id)
        return AssignedWindows(ids, missed)

    @override
    def missed_by(self, timestamp_us: int) -> Sequence[WindowMetadata]:
        return [self.metadata(window_id) for window_id in self.ids_at(timestamp_us)]

    @override
    def metadata(self, window_id: int) -> WindowMetadata:
        return WindowMetadata.of_us(window_id, *self.bounds_us(window_id))

    @override
    def close_for(self, watermark_us: int) -> Sequence[WindowMetadata]:
        count = bisect_right(self._in_order, watermark_us, key=self.closed_at_us)
        closed = self._in_order[:count]
        del self._in_order[:count]
        self._open.difference_update(closed)
        self._next_close_us = self._first_close_us()
        return [self.metadata(window_id) for window_id in closed]

    @override
    def next_close_us(self) -> int:
        return self._next_close_us

    @override
    def snapshot(self) -> list[int] | None:
        return list(self._in_order) or None

    def _first_close_us(self) -> int:
        return self.closed_at_us(self._in_order[0]) if self._in_order else NEVER


def check_windower(windower: object) -> None:
    """Raise a `FlowTypeError` unless `windower` is a `Windower`."""
    if not isinstance(windower, Windower):
        rule = "windower must be a Windower such as TumblingWindower(length='1h')"
        raise wrong_type(rule, windower)


def span_us(duration: Duration, name: str) -> int:
    """Return the positive duration of a windower's argument `name`, in microseconds."""
    return min(positive_us(duration, name), LONGEST_US)


def grace_us(grace: Duration | None, name: str) -> int | None:
    """Return the `grace` argument of the windower `name`, in microseconds."""
    return None if grace is None else min(natural_us(grace, f"{name}: grace"), LONGEST_US)


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
    def open_for(self, timestamp_us: int, watermark_us: int) -> AssignedWindows:
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
        return AssignedWindows(ids, missed)

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
