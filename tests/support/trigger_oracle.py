"""The panes of windows with a trigger, by the definition, for tests to compare drivers with.

The oracle keeps all values of the open windows and all panes. Values since the last pane are a
difference of sets, and the index of a pane is the number of panes before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from flow_windowing import AfterWatermark, SessionWindower

FOREVER = 1 << 80


class Entry(NamedTuple):
    """A value: its number in order of arrival, its timestamp in µs, the system time in µs."""

    number: int
    time: int
    now: int


class SeenPane(NamedTuple):
    """A pane, or the retraction of one: the numbers of its values, in order of arrival."""

    window_id: int
    number: int
    timing: str
    is_last: bool
    values: tuple[int, ...]
    is_retracted: bool = False


@dataclass
class Open:
    """An open window, with its values and the panes that it has emitted."""

    window_id: int
    end: int
    closes: int
    entries: list[Entry] = field(default_factory=list)
    panes: list[SeenPane] = field(default_factory=list)
    due: int = FOREVER
    is_past: bool = False


Timed: TypeAlias = tuple[int, Sequence[int]]
"""System time in µs, and the timestamps of the values that arrive then."""


class PaneOracle:
    """The panes of one key.

    The clock is an event clock without idle time: the watermark is the greatest timestamp less the
    wait.
    """

    def __init__(self, windower: Any, trigger: AfterWatermark, wait: int, ordered: bool) -> None:
        self.windower, self.trigger = windower, trigger
        self.wait, self.ordered = wait, ordered
        self.seen: list[SeenPane] = []
        self.closed: list[int] = []
        self._open: list[Open] = []
        self._shown: set[int] = set()
        self._buffered: list[Entry] = []
        self._watermark, self._now, self._count = -FOREVER, 0, 0

    def run(self, epochs: Iterable[Timed]) -> None:
        """Play epochs, and the end of the input."""
        for now, times in epochs:
            self._now = now
            for window in sorted(self._open, key=lambda one: one.window_id):
                if window.due <= now:
                    self._fire(window, "late" if window.is_past else "early")
            for time in times:
                self._arrive(Entry(self._count, time, now))
                self._count += 1
        self._advance(FOREVER)

    def _arrive(self, entry: Entry) -> None:
        self._watermark = max(self._watermark, entry.time - self.wait)
        watermark = self._watermark
        is_behind = entry.time < watermark
        if is_behind and self.windower.grace_us is None:
            pass
        elif self.ordered and entry.time > watermark:
            self._buffered.append(entry)
        else:
            self._release(watermark)
            self._enter(entry, watermark)
        self._advance(watermark)

    def _advance(self, watermark: int) -> None:
        self._release(watermark)
        self._pass(watermark)

    def _release(self, watermark: int) -> None:
        """Enter buffered values, each at a watermark equal to its timestamp."""
        for entry in sorted(self._buffered, key=lambda one: (one.time, one.number)):
            if entry.time <= watermark:
                self._buffered.remove(entry)
                self._enter(entry, entry.time)

    def _pass(self, watermark: int) -> None:
        """Fire on-time panes and close windows, in order of time."""
        while True:
            ends = [
                (one.end, 0, one.window_id)
                for one in self._open
                if not one.is_past and one.end < one.closes and watermark < FOREVER
            ]
            closes = [(one.closes, 1, one.window_id) for one in self._open]
            passed = [one for one in [*ends, *closes] if one[0] <= watermark]
            if not passed:
                return
            _, closing, window_id = min(passed)
            (window,) = (one for one in self._open if one.window_id == window_id)
            if closing:
                self._open.remove(window)
                if not window.is_past:
                    self._fire(window, "on_time", is_last=True)
                elif self._pending(window):
                    self._fire(window, "late", is_last=True)
                self.closed.append(window_id)
            else:
                window.is_past = True
                self._fire(window, "on_time")

    def _enter(self, entry: Entry, watermark: int) -> None:
        self._pass(watermark)
        for window in self._windows_of(entry, watermark):
            window.entries.append(entry)
            window.is_past = window.end <= watermark
            rule = self.trigger.late if window.is_past else self.trigger.early
            every = None if rule is None else rule.every_us
            window.due = FOREVER if every is None else min(window.due, self._now + every)
            if rule and rule.count and len(self._pending(window)) >= rule.count:
                self._fire(window, "late" if window.is_past else "early")
        self._pass(watermark)

    def _pending(self, window: Open) -> set[int]:
        """Return the numbers of the values of a window that no valid pane has."""
        numbers = {entry.number for entry in window.entries}
        if not self.trigger.accumulate:
            # A value is in one pane of each of its windows.
            return numbers - {n for pane in window.panes for n in pane.values} - self._shown
        return numbers - set(window.panes[-1].values) if window.panes else numbers

    def _fire(self, window: Open, timing: str, is_last: bool = False) -> None:
        numbers = {entry.number for entry in window.entries}
        shown = numbers if self.trigger.accumulate else self._pending(window)
        seen = SeenPane(window.window_id, len(window.panes), timing, is_last, tuple(sorted(shown)))
        window.panes.append(seen)
        window.due = FOREVER
        self.seen.append(seen)

    def _windows_of(self, entry: Entry, watermark: int) -> list[Open]:
        if isinstance(self.windower, SessionWindower):
            return self._session_of(entry, watermark)
        length = self.windower.length_us
        offset = getattr(self.windower, "offset_us", length)
        grace = self.windower.grace_us or 0
        found = []
        for window_id in range((entry.time - length) // offset, entry.time // offset + 1):
            end = window_id * offset + length
            if window_id * offset <= entry.time < end and watermark < end + grace:
                found.append(self._window(window_id, end, end + grace))
        return found

    def _window(self, window_id: int, end: int, closes: int) -> Open:
        for window in self._open:
            if window.window_id == window_id:
                return window
        self._open.append(Open(window_id, end, closes))
        return self._open[-1]

    def _session_of(self, entry: Entry, watermark: int) -> list[Open]:
        """Return the session of a value, after the sessions that it joins were merged."""
        gap, grace = self.windower.gap_us, self.windower.grace_us or 0
        near = [
            window
            for window in sorted(self._open, key=lambda one: min(e.time for e in one.entries))
            if any(abs(one.time - entry.time) <= gap for one in window.entries)
        ]
        if not near:
            closes = entry.time + gap + 1 + grace
            if closes <= watermark:
                return []
            return [self._window(entry.time, closes - grace, closes)]
        session, *others = near
        for other in others:
            self._open.remove(other)
            if other.panes and self.trigger.accumulate:
                self.seen.append(other.panes[-1]._replace(is_retracted=True))
            if not self.trigger.accumulate:
                self._shown |= {number for pane in other.panes for number in pane.values}
            session.entries += other.entries
            session.due = min(session.due, other.due)
        last = max(one.time for one in [*session.entries, entry])
        session.end = last + gap + 1
        session.closes = session.end + grace
        return [session]
