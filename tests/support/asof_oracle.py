"""An oracle of as-of joins: the output of one key, computed from the definition.

The oracle looks at all right values to find a partner. To find whether a partner is final, it tries
further right values at all times that matter. Times are whole microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.window_oracle import FOREVER, Event, Micros, Read, Watermarks


@dataclass(frozen=True)
class Asof:
    """An as-of join, in microseconds; without a tolerance, any distance will do."""

    tolerance: int | None
    direction: str = "backward"
    how: str = "left"
    emit: str = "close"

    def partner(self, left: int, rights: Sequence[tuple[int, Any]]) -> tuple[int, Any] | None:
        """Return the right value, as time and value, that a left value at a time finds.

        Args:
            left: the time of the left value.
            rights: right values, in order of arrival.
        """
        found = [
            (abs(time - left), time > left, -number)
            for number, (time, _) in enumerate(rights)
            if (time <= left or self.direction != "backward")
            and (time >= left or self.direction != "forward")
            and (self.tolerance is None or abs(time - left) <= self.tolerance)
        ]
        return rights[-min(found)[2]] if found else None

    def is_final(self, left: int, rights: Sequence[tuple[int, Any]], watermark: Micros) -> bool:
        """Return True if no further right value on time would be the partner."""
        far = 10**12 if self.tolerance is None else self.tolerance
        corners = [left, left - far, left + far, *(time for time, _ in rights)]
        corners += [2 * left - time for time, _ in rights]
        times = {corner + beside for corner in corners for beside in (-1, 0, 1)}
        if watermark > -FOREVER:
            times.add(int(min(watermark, 10**18)))
        further = object()
        tried = (
            self.partner(left, [*rights, (time, further)]) for time in times if time >= watermark
        )
        return all(found is None or found[1] is not further for found in tried)


@dataclass
class Answer:
    """The output of a key, each stream in order.

    Attributes:
        down: the event with which each item leaves, its time, the left and the right value.
        late: the side and the value of each late value.
        closed: the time of each left value.
    """

    down: list[tuple[int, int, Any, Any]] = field(default_factory=list)
    late: list[tuple[int, Any]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)


def answer(clock: Any, join: Asof, events: Sequence[Event], part_of: Any) -> Answer:
    """Return the output of a key, whose input ends after the events.

    Args:
        clock: the clock, of values that are pairs of side and value.
        join: the join.
        events: the events.
        part_of: returns what is paired of a right value.
    """
    marks, key = Watermarks(clock, events), _Key(join)
    by_event = {one.event: one for one in marks.reads}
    for event in range(len(events)):
        key.advance(event, marks.before[event])
        if event in by_event:
            key.add(by_event[event], part_of)
        key.advance(event, marks.after[event])
    key.advance(len(events), FOREVER)
    return key.answer


class _Key:
    """The values of a key so far: right values, left values that wait, and the output."""

    def __init__(self, join: Asof) -> None:
        self.join, self.answer = join, Answer()
        self.rights, self.waiting = list[tuple[int, Any]](), list[Read]()

    def add(self, one: Read, part_of: Any) -> None:
        side, value = one.value
        if one.too_far or one.time < one.watermark:
            self.answer.late.append((side, value))
        elif side == 1:
            self.rights.append((one.time, part_of(value)))
        elif self.join.emit == "now":
            self._leave(one.event, one)
        else:
            self.waiting.append(one)

    def advance(self, event: int, watermark: Micros) -> None:
        for left in sorted(self.waiting, key=lambda one: (one.time, one.event)):
            if self.join.is_final(left.time, self.rights, watermark):
                self.waiting.remove(left)
                self._leave(event, left)

    def _leave(self, event: int, left: Read) -> None:
        partner = self.join.partner(left.time, self.rights)
        right = None if partner is None else partner[1]
        if right is not None or self.join.how == "left":
            self.answer.down.append((event, left.time, left.value[1], right))
        self.answer.closed.append(left.time)
