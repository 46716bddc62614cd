"""Windowers: which windows is a value in, and when do they close?

A `Windower` is configuration; the `WindowerLogic` it builds runs for one key and owns the state.
Inside, time is a whole number of microseconds since the Unix epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Generic, NamedTuple, TypeVar

from typing_extensions import override

from flow.durations import Duration, duration_us
from flow.errors import FlowBuildError, FlowTypeError, TimestampError, shorten
from flow.instants import NEVER, datetime_us
from flow.wrong_names import Named
from flow_windowing.contract.metadata import WindowMetadata

S = TypeVar("S")

LONGEST_US = 1 << 60
"""A duration several times as long as the calendar: longer ones are held to it.

So sums of a timestamp and up to three durations are less than `NEVER`, and whatever stays open for
ever, such as with ``grace=timedelta.max``, still closes when the input ends.
"""


class Filled(NamedTuple):
    """A window that has just opened over a span in which values have been seen before.

    Attributes:
        window_id: the window.
        first_us: the least timestamp of what it holds from the start.
        last_us: the greatest, inclusive.
    """

    window_id: int
    first_us: int
    last_us: int


class Opened(NamedTuple):
    """Where a value falls. With nothing in any of its fields, it falls into a gap.

    Attributes:
        ids: the open windows that the value enters.
        missed: the windows it would have entered, had they not closed already.
        filled: windows, among `ids` or not, that begin with values seen before; only for windowers
            with `Windower.keep_us`.
    """

    ids: Sequence[int]
    missed: Sequence[WindowMetadata] = ()
    filled: Sequence[Filled] = ()


class WindowerLogic(ABC, Generic[S]):
    """The windows of one key.

    Laws: a window that was reported closed never opens again; an id names one window for ever.
    """

    @abstractmethod
    def open_for(self, timestamp_us: int, watermark_us: int) -> Opened:
        """Called with each value that is not late: open the windows it is in.

        But for those that have closed already by this watermark.
        """

    @abstractmethod
    def missed_by(self, timestamp_us: int) -> Sequence[WindowMetadata]:
        """The windows that a late timestamp would have been in; none is opened."""

    @abstractmethod
    def metadata(self, window_id: int) -> WindowMetadata:
        """What is known of an open window."""

    def merged(self) -> Sequence[tuple[int, int]]:
        """The merges since the last call, in order: (id that is no more, id that it is part of)."""
        return ()

    @abstractmethod
    def close_for(self, watermark_us: int) -> Sequence[WindowMetadata]:
        """Close the windows that the watermark has passed, and forget them; in order of closing.

        Called when the watermark gets to `next_close_us`, and with `NEVER` when the input ends.
        """

    @abstractmethod
    def next_close_us(self) -> int:
        """The least watermark at which `close_for` has something to do; `NEVER` if there is none.

        Asked after every value: it must be cheap.
        """

    @abstractmethod
    def snapshot(self) -> S | None:
        """A copy of the state; ``None`` when there is nothing to remember."""


class Windower(Named, ABC, Generic[S]):
    """A way to cut a key's values into windows, as configuration."""

    WRONG_ARGUMENTS: ClassVar[Mapping[str, str]] = {
        "size": "use length=, how long a window is",
        "duration": "use length=, how long a window is",
        "window_size": "use length=, how long a window is",
        "every": "use offset=, how long after one window the next one opens",
        "hop": "use SlidingWindower(length=, offset=)",
        "step_size": "use offset=, how long after one window the next one opens",
        "period": "use offset=, how long after one window the next one opens",
        "slide": "use offset=, how long after one window the next one opens",
        "advance": "use offset=, how long after one window the next one opens",
        "timeout": "use gap=, the longest silence inside a session",
        "inactivity_gap": "use gap=, the longest silence inside a session",
        "allowed_lateness": "use grace=, how long past its close a window stays open",
        "grace_ms": 'use grace=, a duration such as "5s"',
        "duration_ms": 'use length=, a duration such as "10s"',
    }

    @property
    def grace_us(self) -> int | None:
        """How long past its close a window stays open for values behind the watermark.

        In microseconds. ``None``: a value behind the watermark is late, whatever its window.
        """
        return None

    @property
    def merges(self) -> bool:
        """Whether its windows may become one, as sessions do."""
        return False

    @property
    def keep_us(self) -> int | None:
        """How far behind the watermark values are kept for windows that open over them later.

        In microseconds. ``None``: not at all.
        """
        return None

    @abstractmethod
    def build(self, state: S | None) -> WindowerLogic[S]:
        """Make the logic of one key, from a snapshot if there is one."""


class IndexedLogic(WindowerLogic[list[int]]):
    """Windows with bounds that follow from their index; the state is the indices that are open.

    Closes increase with the index. Invariant: `_in_order` is `_open` in order, so that closing a
    window does not look at those that stay open, of which there may be thousands.
    """

    __slots__ = ("_in_order", "_next_close_us", "_open")

    def __init__(self, state: list[int] | None) -> None:
        self._in_order = sorted(state or ())
        self._open = set(self._in_order)
        self._next_close_us = self._first_close_us()

    @abstractmethod
    def ids_at(self, timestamp_us: int) -> Sequence[int]:
        """The indices of the windows that a timestamp is in."""

    @abstractmethod
    def bounds_us(self, window_id: int) -> tuple[int, int]:
        """When a window opens and closes."""

    @abstractmethod
    def closed_at_us(self, window_id: int) -> int:
        """The watermark at which a window closes, grace included."""

    @override
    def open_for(self, timestamp_us: int, watermark_us: int) -> Opened:
        ids, missed = [], []
        for window_id in self.ids_at(timestamp_us):
            if window_id in self._open:
                ids.append(window_id)
                continue
            closed_at_us = self.closed_at_us(window_id)
            if closed_at_us > watermark_us:
                self._open.add(window_id)
                insort(self._in_order, window_id)
                self._next_close_us = min(self._next_close_us, closed_at_us)
                ids.append(window_id)
            else:
                missed.append(self.metadata(window_id))
        return Opened(ids, missed)

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


def positive_us(value: Duration, what: str) -> int:
    """Read a duration that must be more than nothing; `what` is windower and parameter."""
    micros = duration_us(value, what)
    if micros <= 0:
        raise FlowBuildError(f"{what} must be more than nothing, got {value!r}")
    return min(micros, LONGEST_US)


def natural_us(value: Duration, what: str) -> int:
    """Read a duration that must not be negative; `what` is windower and parameter."""
    micros = duration_us(value, what)
    if micros < 0:
        raise FlowBuildError(f"{what} must not be negative, got {value!r}")
    return min(micros, LONGEST_US)


def grace_us(grace: Duration | None, name: str) -> int | None:
    """Read a `grace` argument of the windower `name`."""
    return None if grace is None else natural_us(grace, f"{name}: grace")


def align_us(align_to: object, name: str) -> int:
    """Read an `align_to` argument of the windower `name`."""
    if not isinstance(align_to, datetime):
        raise FlowTypeError(f"{name}: align_to must be an aware datetime, got {shorten(align_to)}")
    try:
        return datetime_us(align_to)
    except TimestampError as error:
        raise FlowBuildError(f"{name}: align_to: {error}") from error
