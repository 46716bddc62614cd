"""An oracle: the windows and late values of one key, computed from the contract in the plain way.

The oracle does not run step by step as an engine does. It knows the whole timeline, and looks at
all of it to answer each question: is this value late, when does it enter, which windows contain it,
when do they close. It is slow, and short enough to be compared with the contract.

Times are whole microseconds. A *turn* is the place of something in the timeline, and turns sort in
the order in which things happen: the number of the event; 0 if system time passes before the event,
1 or 2 if the event's value causes it; the timestamp; and the number of the event that brought the
value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import flow_windowing as win
from flow.instants import Moment

FOREVER = math.inf
Micros: TypeAlias = "int | float"
Turn: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Event:
    """An event of a key: system time passes, and perhaps a value arrives."""

    moment: Moment
    value: Any = None


@dataclass(frozen=True)
class Read:
    """A value as the clock reads it.

    Attributes:
        event: the number of the event that brought the value.
        value: the value.
        time: the timestamp.
        watermark: the watermark after the value.
        too_far: True if the timestamp is too far ahead.
    """

    event: int
    value: Any
    time: int
    watermark: Micros
    too_far: bool = False


@dataclass(frozen=True)
class Entry:
    """A value that enters windows, at a turn and a watermark."""

    turn: Turn
    value: Any
    time: int
    watermark: Micros

    def missing(self, *window_ids: int, reason: win.LateReason = win.LateReason.LATE) -> Missed:
        """Return the value as a late value for these windows, which are in order of opening."""
        return Missed(self.turn, self.value, self.time, self.watermark, window_ids, reason)


@dataclass
class Held:
    """A window and its values.

    Attributes:
        window_id: the id.
        first: the open time.
        last: the close time, as metadata states it.
        closes: the least watermark at which the window is closed.
        entries: the values.
        merged: the ids of all windows that were merged into the window.
    """

    window_id: int
    first: int
    last: int
    closes: Micros
    entries: list[Entry] = field(default_factory=list)
    merged: frozenset[int] = frozenset()

    def closed_by(self, marks: Watermarks, event: int) -> bool:
        """Return True if the window is closed after an event."""
        return self.closes <= marks.after[event]

    @property
    def values(self) -> list[Any]:
        """The values, in the order in which they enter."""
        return [entry.value for entry in sorted(self.entries, key=lambda entry: entry.turn)]


class Full(Held):
    """A count window that its last value closes, whatever the watermark."""

    def closed_by(self, marks: Watermarks, event: int) -> bool:
        """Return True if the last value has entered after an event."""
        return max(entry.turn[0] for entry in self.entries) <= event


@dataclass(frozen=True)
class Missed:
    """A late value: its turn, value, timestamp and watermark, the windows it missed, the reason."""

    turn: Turn
    value: Any
    time: int
    watermark: Micros
    window_ids: tuple[int, ...] = ()
    reason: win.LateReason = win.LateReason.LATE


@dataclass
class Answer:
    """The windows and late values of a timeline.

    Attributes:
        windows: all windows that close, in order of closing.
        missed: the late values, in order.
        closed_by: the number of windows that are closed after each event.
        left: the count windows that never close.
    """

    windows: list[Held]
    missed: list[Missed]
    closed_by: list[int]
    left: list[Held]


class Watermarks:
    """The watermark before and after the value of each event."""

    def __init__(self, clock: Any, events: Sequence[Event]) -> None:
        self.reads: list[Read] = []
        self.before: list[Micros] = []
        self.after: list[Micros] = []
        base: Micros = -FOREVER
        set_at = 0
        for number, event in enumerate(events):
            now, running = event.moment.now_us, event.moment.running_us
            if isinstance(clock, win.SystemClock):
                watermark: Micros = now
            elif clock.on_idle == "hold":
                watermark = base
            else:
                watermark = base + (running - set_at)
            self.before.append(watermark)
            if event.value is not None:
                time, too_far = _read(clock, event)
                candidate = time - clock.wait_us if hasattr(clock, "wait_us") else now
                if candidate > watermark and not too_far:
                    base, set_at, watermark = candidate, running, candidate
                self.reads.append(Read(number, event.value, time, watermark, too_far))
            self.after.append(watermark)

    def first_turn(self, reached: Micros, since: int) -> tuple[int, int]:
        """Return when the watermark is at least `reached` for the first time, not before an event.

        The result is the number of an event, and 0 if system time moves the watermark there or 1
        if the event's value does.
        """
        if self.after[since] >= reached:
            return since, 1
        for number in range(since + 1, len(self.after)):
            if self.before[number] >= reached:
                return number, 0
            if self.after[number] >= reached:
                return number, 1
        return len(self.after), 0


def _read(clock: Any, event: Event) -> tuple[int, bool]:
    now = event.moment.now_us
    if isinstance(clock, win.SystemClock):
        return now, False
    time = clock.timestamp_us(event.value)
    return time, clock.max_ahead is not None and time - now > clock.max_ahead_us


def answer(clock: Any, windower: Any, ordered: bool, events: Sequence[Event]) -> Answer:
    """Return the windows and late values of events, after which the input ends."""
    marks = Watermarks(clock, events)
    entries, missed = entering(marks, windower, ordered)
    windows, left, also_missed = _WINDOWS[type(windower)](windower, entries)
    closed_by = [
        sum(window.closed_by(marks, number) for window in windows) for number in range(len(events))
    ]
    missed = sorted([*missed, *also_missed], key=lambda one: one.turn)
    return Answer(windows, missed, closed_by, left)


def entering(marks: Watermarks, windower: Any, ordered: bool) -> tuple[list[Entry], list[Missed]]:
    """Return the values that are on time, in order of entering, and those that enter no window."""
    entries, missed = list[Entry](), list[Missed]()
    # A count window has no end in time: no value is late for it.
    strict = not isinstance(windower, win.CountWindower) and windower.grace_us is None
    for read in marks.reads:
        at_once = (read.event, 2, read.time, read.event)
        if read.too_far:
            reason = win.LateReason.TOO_FAR_AHEAD
            missed.append(Missed(at_once, read.value, read.time, read.watermark, (), reason))
        elif strict and read.time < read.watermark:
            windows = tuple(would_be_in(windower, read.time))
            missed.append(Missed(at_once, read.value, read.time, read.watermark, windows))
        elif ordered and read.time > read.watermark:
            turn = (*marks.first_turn(read.time, read.event), read.time, read.event)
            entries.append(Entry(turn, read.value, read.time, read.time))
        else:
            entries.append(Entry(at_once, read.value, read.time, read.watermark))
    return sorted(entries, key=lambda entry: entry.turn), missed


def would_be_in(windower: Any, time: int) -> list[int]:
    """Return the ids of the windows around a time, open or not."""
    if isinstance(windower, (win.TumblingWindower, win.SlidingWindower)):
        return [window_id for window_id, _, _ in _spans(windower, time)]
    return [time]


Found: TypeAlias = tuple[list[Held], list[Held], list[Missed]]
"""The windows that close, in order; the windows that stay open; and the late values."""


def _spans(windower: Any, time: int) -> list[tuple[int, int, int]]:
    """Return the id, open time and close time of the windows around a time."""
    offset = getattr(windower, "offset_us", windower.length_us)
    length, align = windower.length_us, windower.align_us
    near = (time - align) // offset
    reach = length // offset + 2
    spans = [
        (index, align + index * offset, align + index * offset + length)
        for index in range(near - reach, near + reach + 1)
    ]
    if windower.closed == "left":
        return [one for one in spans if one[1] <= time < one[2]]
    return [one for one in spans if one[1] < time <= one[2]]


def aligned(windower: Any, entries: Sequence[Entry]) -> Found:
    """Return tumbling or sliding windows: a value is in each open window around its timestamp."""
    found: dict[int, Held] = {}
    missed: list[Missed] = []
    for entry in entries:
        spans = _spans(windower, entry.time)
        if not spans:
            missed.append(entry.missing(reason=win.LateReason.GAP))
        closed = []
        for window_id, first, last in spans:
            # (open, close] holds its close, so it closes once the watermark is past that.
            closes = last + (windower.grace_us or 0) + (windower.closed == "right")
            if closes <= entry.watermark:
                closed.append(window_id)
            else:
                window = found.setdefault(window_id, Held(window_id, first, last, closes))
                window.entries.append(entry)
        if closed:
            missed.append(entry.missing(*closed))
    return [found[window_id] for window_id in sorted(found)], [], missed


def session(windower: Any, entries: Sequence[Entry]) -> Found:
    """Return sessions: neighbours in a session are at most the gap apart."""
    gap, grace = windower.gap_us, windower.grace_us or 0
    # `watermark - gap > last + grace`, or `>=`, as the least whole watermark.
    ends = gap + grace + (1 if windower.inclusive else 0)
    alive: list[Held] = []
    closed: list[Held] = []
    missed: list[Missed] = []
    for entry in entries:
        closed += [one for one in alive if one.closes <= entry.watermark]
        alive = [one for one in alive if one.closes > entry.watermark]
        near = [one for one in alive if _joins(windower, one, entry.time)]
        if not near and entry.time + ends <= entry.watermark:
            missed.append(entry.missing(entry.time))
            continue
        alone = Held(entry.time, entry.time, entry.time, 0, [entry])
        parts = sorted(near, key=lambda one: one.first)
        whole = _together(parts, alone) if parts else alone
        whole.closes = whole.last + ends
        alive = [*(one for one in alive if one not in near), whole]
    return sorted(closed + alive, key=lambda one: one.last), [], missed


def _joins(windower: Any, one: Held, time: int) -> bool:
    apart = max(one.first - time, time - one.last, 0)
    return bool(apart <= windower.gap_us if windower.inclusive else apart < windower.gap_us)


def _together(parts: list[Held], alone: Held) -> Held:
    merged = frozenset[int]().union(*(one.merged for one in parts))
    merged |= {one.window_id for one in parts[1:]}
    return Held(
        parts[0].window_id,
        min(one.first for one in [*parts, alone]),
        max(one.last for one in [*parts, alone]),
        0,
        [entry for one in [*parts, alone] for entry in one.entries],
        merged,
    )


def event_sliding(windower: Any, entries: Sequence[Entry]) -> Found:
    """Return event-sliding windows: one for each distinct timestamp, with the values on time."""
    length, grace = windower.length_us, windower.grace_us or 0
    missed = [
        entry.missing(entry.time) for entry in entries if entry.watermark > entry.time + grace
    ]
    closes = {entry.time for entry in entries}
    if windower.emit_right:
        closes |= {entry.time + windower.resolution_us + length for entry in entries}
    windows = []
    for close in sorted(closes):
        on_time = [entry for entry in entries if entry.watermark <= close + grace]
        inside = [entry for entry in on_time if close - length <= entry.time <= close]
        is_left = any(entry.time == close for entry in inside)
        begins = close - length - windower.resolution_us
        is_right = windower.emit_right and inside and any(one.time == begins for one in on_time)
        if is_left or is_right:
            windows.append(Held(close, close - length, close, close + grace + 1, inside))
    return windows, [], missed


def counted(windower: Any, entries: Sequence[Entry]) -> Found:
    """Return count windows: every `step` values, a window of the next `count`."""
    count, step = windower.count, windower.step or windower.count
    missed = [
        entry.missing(reason=win.LateReason.GAP)
        for number, entry in enumerate(entries)
        if number % step >= count
    ]
    windows = []
    for window_id, start in enumerate(range(0, len(entries), step)):
        held = list(entries[start : start + count])
        bounds = min(one.time for one in held), max(one.time for one in held)
        kind = Full if len(held) == count else Held
        windows.append(kind(window_id, *bounds, FOREVER, held))
    full = [window for window in windows if isinstance(window, Full)]
    rest = [window for window in windows if not isinstance(window, Full)]
    return (full + rest, [], missed) if windower.partial else (full, rest, missed)


_WINDOWS = {
    win.TumblingWindower: aligned,
    win.SlidingWindower: aligned,
    win.SessionWindower: session,
    win.EventSlidingWindower: event_sliding,
    win.CountWindower: counted,
}
