"""Session windows: runs of values at most a gap apart."""

from __future__ import annotations

from bisect import bisect_right, insort_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TypeAlias

from typing_extensions import override

from flow.checks import check_flag
from flow.durations import Duration, natural_us
from flow.errors import FlowBuildError
from flow.instants import NEVER
from flow_windowing.rules.metadata import WindowMetadata
from flow_windowing.rules.triggers import Timestamp
from flow_windowing.rules.watermark import has_closed
from flow_windowing.windowers.windower import (
    LONGEST_US,
    AssignedWindows,
    GraceWindower,
    WindowerLogic,
)

SessionState: TypeAlias = list[tuple[int, int, int, tuple[int, ...]]]
"""Each open session, sorted by time: id, first and last timestamp, merged ids."""


@dataclass(frozen=True)
class SessionWindower(GraceWindower[SessionState]):
    """Windows of values that are each at most a gap apart from the next.

    A value within the gap of a session joins it; a value within the gap of two sessions merges
    them. A session's bounds are its first and last timestamp, both inclusive. Its id is the
    timestamp, in microseconds, of the value that opened it. A merged session has the id of the
    session that opens earlier, and lists the other id in `WindowMetadata.merged_ids`. A session
    closes when the watermark is more than the gap past its last timestamp.

    Args:
        gap: the greatest distance between two consecutive values of a session.
        inclusive: ``True``: values exactly a gap apart are in one session, as in Kafka Streams.
            ``False``: they are not, as in Spark, and a session closes as soon as the watermark is a
            gap past its last timestamp.
        grace: the time past its close for which a session stays open for values behind the
            watermark; by default a value behind the watermark is late.

    Raises:
        FlowBuildError, FlowTypeError, DurationError: when an argument is invalid.

    >>> SessionWindower(gap="30m").gap_us
    1800000000
    """

    merges = True

    gap: Duration
    inclusive: bool = True
    grace: Duration | None = None

    def __post_init__(self) -> None:
        _ = self.grace_us
        check_flag("SessionWindower: inclusive", self.inclusive)
        if self.gap_us == 0 and not self.inclusive:
            raise FlowBuildError(
                "SessionWindower: gap must be positive when inclusive=False: "
                f"no two values could belong together, got {self.gap!r}"
            )

    @cached_property
    def gap_us(self) -> int:
        """`gap` in microseconds."""
        return min(natural_us(self.gap, "SessionWindower: gap"), LONGEST_US)

    @override
    def reach_us(self, timestamp: Timestamp) -> int:
        # A value behind the watermark may join a session that opened at most a gap after it.
        return 0 if self.grace_us is None else self.gap_us + self.grace_us

    @override
    def stays_us(self, timestamp: Timestamp) -> int:
        return self.gap_us + (self.grace_us or 0)

    @override
    def build(self, state: SessionState | None) -> WindowerLogic[SessionState]:
        reach_us = self.gap_us if self.inclusive else self.gap_us - 1
        return SessionLogic(reach_us, self.grace_us or 0, state)


@dataclass(slots=True)
class _Session:
    """An open session: its id, its first and last timestamp, and the ids merged into it."""

    window_id: int
    first_us: int
    last_us: int
    merged_ids: frozenset[int] = frozenset()

    def metadata(self) -> WindowMetadata:
        """Return the metadata of the session."""
        return WindowMetadata.of_us(self.window_id, self.first_us, self.last_us, self.merged_ids)


class SessionLogic(WindowerLogic[SessionState]):
    """The open sessions of one key, sorted by time.

    Invariant: sessions are more than `reach_us` apart, the greatest distance at which a value
    joins a session. So a value joins at most two sessions, and sessions close in order.
    """

    __slots__ = ("_by_id", "_closing_us", "_merged", "_sessions", "reach_us")

    def __init__(self, reach_us: int, grace_us: int, state: SessionState | None) -> None:
        self.reach_us = reach_us
        self._closing_us = reach_us + grace_us + 1
        self._sessions = [
            _Session(number, first_us, last_us, frozenset(merged))
            for number, first_us, last_us, merged in state or ()
        ]
        self._by_id = {session.window_id: session for session in self._sessions}
        self._merged: list[tuple[int, int]] = []

    def add(self, state: tuple[int, int, int, tuple[int, ...]]) -> None:
        """Add a session of a snapshot."""
        window_id, first_us, last_us, merged = state
        self._insert(_Session(window_id, first_us, last_us, frozenset(merged)))

    def _insert(self, session: _Session) -> None:
        insort_right(self._sessions, session, key=attrgetter("first_us"))
        self._by_id[session.window_id] = session

    @override
    def open_for(self, timestamp_us: int, watermark_us: int) -> AssignedWindows:
        near = self._near(timestamp_us)
        if not near:
            return self._open_new(timestamp_us, watermark_us)
        session = near[0]
        session.first_us = min(session.first_us, timestamp_us)
        session.last_us = max(session.last_us, timestamp_us)
        for other in near[1:]:
            self._merge(other, session)
        return AssignedWindows((session.window_id,))

    @override
    def missed_by(self, timestamp_us: int) -> Sequence[WindowMetadata]:
        return (WindowMetadata.of_us(timestamp_us, timestamp_us, timestamp_us),)

    @override
    def metadata(self, window_id: int) -> WindowMetadata:
        return self._by_id[window_id].metadata()

    @override
    def merged(self) -> Sequence[tuple[int, int]]:
        merged, self._merged = self._merged, []
        return merged

    @override
    def close_for(self, watermark_us: int) -> Sequence[WindowMetadata]:
        count = bisect_right(
            self._sessions, watermark_us, key=lambda session: session.last_us + self._closing_us
        )
        closed, self._sessions = self._sessions[:count], self._sessions[count:]
        for session in closed:
            del self._by_id[session.window_id]
        return [session.metadata() for session in closed]

    @override
    def next_close_us(self) -> int:
        return self._sessions[0].last_us + self._closing_us if self._sessions else NEVER

    @override
    def closed_at_us(self, window_id: int) -> int:
        return self._by_id[window_id].last_us + self._closing_us

    @override
    def snapshot(self) -> SessionState | None:
        return [
            (one.window_id, one.first_us, one.last_us, tuple(sorted(one.merged_ids)))
            for one in self._sessions
        ] or None

    def _near(self, timestamp_us: int) -> list[_Session]:
        """Return the sessions that a value joins: none, one, or the two beside it."""
        after = bisect_right(self._sessions, timestamp_us, key=attrgetter("first_us"))
        return [
            session
            for session in self._sessions[max(after - 1, 0) : after + 1]
            if session.first_us - self.reach_us <= timestamp_us <= session.last_us + self.reach_us
        ]

    def _open_new(self, timestamp_us: int, watermark_us: int) -> AssignedWindows:
        """Open a session for a value that joins no session, unless the watermark has closed it."""
        if has_closed(timestamp_us + self._closing_us, watermark_us):
            return AssignedWindows((), self.missed_by(timestamp_us))
        self._insert(_Session(timestamp_us, timestamp_us, timestamp_us))
        return AssignedWindows((timestamp_us,))

    def _merge(self, original: _Session, target: _Session) -> None:
        """Merge a session into the session before it, and record the merge."""
        target.last_us = max(target.last_us, original.last_us)
        target.merged_ids |= original.merged_ids | {original.window_id}
        self._sessions.remove(original)
        del self._by_id[original.window_id]
        self._merged.append((original.window_id, target.window_id))
