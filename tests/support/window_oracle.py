"""What the contract says comes of one key's values, worked out the plain way.

Nothing here runs step by step as a driver does: the whole timeline is known, and each question
(when is this value on time, when does it enter, which windows hold it, when do they close) is
answered by looking at all of it. It is slow, and short enough to be compared with the contract.

Times are whole microseconds. A *turn* says when something happens: the number of the event in the
timeline, whether by the passing of system time before the event or by the event's value, and then
the time and the number of arrival among what happens then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from flow.instants import Moment
from flow_windowing import (
    CountWindower,
    EventSlidingWindower,
    LateReason,
    SessionWindower,
    SlidingWindower,
    SystemClock,
    TumblingWindower,
)

FOREVER = math.inf
Micros: TypeAlias = "int | float"
Turn: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Event:
    """Something that happens to a key: time passes, and perhaps a value comes."""

    moment: Moment
    value: Any = None


@dataclass(frozen=True)
class Read:
    """A value as the clock reads it.

    Attributes:
        event: the number of the event that brought it.
        value: the value.
        time: its timestamp.
        watermark: the watermark once it has been considered.
        too_far: whether it is too far ahead.
    """

    event: int
    value: Any
    time: int
    watermark: Micros
    too_far: bool = False


@dataclass(frozen=True)
class Entry:
    """A value that enters the windows that are open at a watermark."""

    turn: Turn
    value: Any
    time: int
    watermark: Micros

    def missing(self, *window_ids: int, reason: LateReason = LateReason.LATE) -> Missed:
        """The value as one that missed windows, in order of opening."""
        return Missed(self.turn, self.value, self.time, self.watermark, window_ids, reason)


@dataclass
class Held:
    """A window with what it holds.

    Attributes:
        window_id: its id.
        first: when it opens.
        last: when it closes by its bounds.
        closes: the least watermark at which it is closed.
        entries: what it holds.
        merged: the ids of all windows that became part of it.
    """

    window_id: int
    first: int
    last: int
    closes: Micros
    entries: list[Entry] = field(default_factory=list)
    merged: frozenset[int] = frozenset()

    def closed_by(self, marks: Watermarks, event: int) -> bool:
        """Whether it has closed once an event is over."""
        return self.closes <= marks.after[event]

    @property
    def values(self) -> list[Any]:
        """What it holds, in order of entering."""
        return [entry.value for entry in sorted(self.entries, key=lambda entry: entry.turn)]


class Full(Held):
    """A window that is closed by what it holds, whatever the time."""

    def closed_by(self, marks: Watermarks, event: int) -> bool:
        """Whether the last of its values has entered once an event is over."""
        return max(entry.turn[0] for entry in self.entries) <= event


@dataclass(frozen=True)
class Missed:
    """A late value: when, the value, its time, the watermark then, the windows, and why."""

    turn: Turn
    value: Any
    time: int
    watermark: Micros
    window_ids: tuple[int, ...] = ()
    reason: LateReason = LateReason.LATE


@dataclass
class Answer:
    """What comes of a timeline.

    Attributes:
        windows: all windows that close, in order of closing.
        missed: the late values, in order.
        closed_by: of each event, how many windows have closed by then.
        left: what count windows hold that stay open.
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
            if isinstance(clock, SystemClock):
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
        """When the watermark gets somewhere, from an event's value on."""
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
    if isinstance(clock, SystemClock):
        return now, False
    time = clock.timestamp_us(event.value)
    return time, clock.max_ahead is not None and time - now > clock.max_ahead_us


def answer(clock: Any, windower: Any, ordered: bool, events: Sequence[Event]) -> Answer:
    """What the contract says of these events, the input ending after them."""
    marks = Watermarks(clock, events)
    entries, missed = entering(marks, windower, ordered)
    windows, left, also_missed = _WINDOWS[type(windower)](windower, entries)
    closed_by = [
        sum(window.closed_by(marks, number) for window in windows) for number in range(len(events))
    ]
    missed = sorted([*missed, *also_missed], key=lambda one: one.turn)
    return Answer(windows, missed, closed_by, left)


def entering(marks: Watermarks, windower: Any, ordered: bool) -> tuple[list[Entry], list[Missed]]:
    """The values that are on time, in order of entering, and those that enter nothing."""
    entries, missed = list[Entry](), list[Missed]()
    # A count window has no end in time: no value is late for it.
    strict = not isinstance(windower, CountWindower) and windower.grace_us is None
    for read in marks.reads:
        at_once = (read.event, 2, read.time, read.event)
        if read.too_far:
            reason = LateReason.TOO_FAR_AHEAD
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
    """The ids of the windows that a value at a time is in, or would have been."""
    if isinstance(windower, (TumblingWindower, SlidingWindower)):
        return [window_id for window_id, _, _ in _spans(windower, time)]
    return [time]


Found: TypeAlias = tuple[list[Held], list[Held], list[Missed]]
"""The windows that close, in order; those that stay open; and who missed which."""


def _spans(windower: Any, time: int) -> list[tuple[int, int, int]]:
    """The windows around a time: id, open and close."""
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
    """Tumbling and sliding windows: a value is in each whose bounds hold it and that is open."""
    found: dict[int, Held] = {}
    missed: list[Missed] = []
    for entry in entries:
        spans = _spans(windower, entry.time)
        if not spans:
            missed.append(entry.missing(reason=LateReason.GAP))
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
    """Sessions: values are together when steps of at most the gap lead from one to the other."""
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
    """A window for each distinct time, and what was not late for it."""
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
    """Count windows: every `step` values one of the next `count`."""
    count, step = windower.count, windower.step or windower.count
    missed = [
        entry.missing(reason=LateReason.GAP)
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
    TumblingWindower: aligned,
    SlidingWindower: aligned,
    SessionWindower: session,
    EventSlidingWindower: event_sliding,
    CountWindower: counted,
}
