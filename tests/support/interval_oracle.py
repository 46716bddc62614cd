"""An oracle of interval joins: the output of one key, computed from the definition.

The oracle compares all pairs of values, and looks at the whole timeline to find when a value leaves
without a partner. Times are whole microseconds; a *turn* is as in `window_oracle`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.window_oracle import Event, Read, Turn, Watermarks

TIME_PASSES, EVICTED_BY_VALUE, PAIRED, LEFT_AT_ONCE = range(4)
"""The order of the outputs of an event."""


@dataclass(frozen=True)
class Join:
    """An interval join, in microseconds."""

    before: int
    after: int
    how: str = "inner"
    grace: int = 0

    def matches(self, left: Read, right: Read) -> bool:
        """Return True if two values match, by the definition."""
        return left.time - self.before <= right.time <= left.time + self.after

    def last_partner(self, one: Read) -> int:
        """Return the last time at which a partner of a value can be."""
        side, _ = one.value
        return one.time + (self.after if side == 0 else self.before)

    def emits_unmatched(self, side: int) -> bool:
        """Return True if values of a side also leave without a partner."""
        return self.how == "outer" or self.how == ("left", "right")[side]


@dataclass
class Answer:
    """The output of a key, each stream in order.

    Attributes:
        down: the id of the window, the timestamp, the left and the right value of each item.
        late: the side, the value and the watermark of each late value.
        closed: the id of each left value's window.
    """

    down: list[tuple[int, int, Any, Any]] = field(default_factory=list)
    late: list[tuple[int, Any, Any]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)


def answer(clock: Any, join: Join, events: Sequence[Event]) -> Answer:
    """Return the output of a key, whose input ends after the events.

    Args:
        clock: the clock, of values that are pairs of side and value.
        join: the join.
        events: the events.
    """
    marks = Watermarks(clock, events)
    found, down, closed = Answer(), list[tuple[Turn, Any]](), list[tuple[Turn, int]]()
    on_time: tuple[list[Read], list[Read]] = ([], [])
    for one in marks.reads:
        side, value = one.value
        if one.too_far or one.time + join.grace < one.watermark:
            found.late.append((side, value, one.watermark))
        else:
            on_time[side].append(one)
    pairs = [(a, b) for a in on_time[0] for b in on_time[1] if join.matches(a, b)]
    for left, right in pairs:
        first, second = sorted((left, right), key=lambda one: one.event)
        turn = (second.event, PAIRED, first.time, first.event)
        item = (left.time, max(left.time, right.time), left.value[1], right.value[1])
        down.append((turn, item))
    matched = {one for pair in pairs for one in pair}
    for side, values in enumerate(on_time):
        for one in values:
            turn = leaves_at(marks, join, one)
            if side == 0:
                closed.append((turn, one.time))
            if one not in matched and join.emits_unmatched(side):
                places = (one.value[1], None) if side == 0 else (None, one.value[1])
                down.append((turn, (one.time, one.time, *places)))
    found.down = [item for _, item in sorted(down, key=lambda entry: entry[0])]
    found.closed = [item for _, item in sorted(closed, key=lambda entry: entry[0])]
    return found


def leaves_at(marks: Watermarks, join: Join, one: Read) -> Turn:
    """Return the turn at which the watermark is past a value's last partner and the grace."""
    past = join.last_partner(one) + join.grace + 1
    event, is_value = marks.first_turn(past, one.event)
    if event == one.event:
        return event, LEFT_AT_ONCE, past, one.event
    return event, EVICTED_BY_VALUE if is_value else TIME_PASSES, past, one.event
