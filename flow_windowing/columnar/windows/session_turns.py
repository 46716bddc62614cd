"""Sessions that values make one, or come late for: worked out value by value, as each came."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from flow_windowing.columnar.state.windower_states import Bounds
from flow_windowing.windowers.sessions import SessionState, SessionWindower


class SessionKey(NamedTuple):
    """Which session it is: the place of its key, and its id."""

    place: int
    id: int


class SessionTurn(NamedTuple):
    """A value enters a session, or makes two sessions one.

    Attributes:
        target: the session that takes something in.
        original: the one that it takes in; ``None`` when it is the value.
        value: the number of the value.
    """

    target: SessionKey
    original: SessionKey | None
    value: int


class Coming(NamedTuple):
    """A value that comes.

    Attributes:
        value: its number.
        time_us: its timestamp.
        watermark_us: the watermark then.
    """

    value: int
    time_us: int
    watermark_us: int


@dataclass
class Played:
    """What came of sessions and values.

    Attributes:
        turns: what happened, those of each key in order.
        final: the sessions that there are in the end, also those that have closed meanwhile.
        part_of: where sessions went that are no more, and which value made them one.
        missed: the values that came late.
    """

    turns: list[SessionTurn] = field(default_factory=list)
    final: dict[SessionKey, Bounds] = field(default_factory=dict)
    part_of: dict[SessionKey, tuple[SessionKey, int]] = field(default_factory=dict)
    missed: list[int] = field(default_factory=list)

    def play(
        self, windower: SessionWindower, place: int, state: SessionState, values: list[Coming]
    ) -> None:
        """Let values of a key come to its open sessions, one after the other."""
        logic = windower.build(state)
        for value, time_us, watermark_us in values:
            if logic.next_close_us() <= watermark_us:
                before = logic.snapshot() or []
                logic.close_for(watermark_us)
                self._keep(place, before)
            opened = logic.open_for(time_us, watermark_us)
            for original, target in logic.merged():
                gone, into = SessionKey(place, original), SessionKey(place, target)
                self.turns.append(SessionTurn(into, gone, value))
                self.part_of[gone] = into, value
                self.final.pop(gone, None)
            for session in opened.ids:
                self.turns.append(SessionTurn(SessionKey(place, session), None, value))
            if not opened.ids:
                self.missed.append(value)
        self._keep(place, logic.snapshot() or [])

    def _keep(self, place: int, sessions: SessionState) -> None:
        for number, first_us, last_us, merged in sessions:
            self.final[SessionKey(place, number)] = Bounds(first_us, last_us, merged)

    def end_of(self, session: SessionKey) -> SessionKey:
        """The session that one is part of in the end."""
        while session in self.part_of:
            session = self.part_of[session][0]
        return session

    def sessions_of_values(self) -> dict[int, SessionKey]:
        """The session that each value that enters is part of in the end."""
        ends: dict[SessionKey, SessionKey] = {}
        found = {}
        for target, original, value in self.turns:
            if original is None:
                found[value] = target
        for session in set(found.values()):
            ends[session] = self.end_of(session)
        return {value: ends[session] for value, session in found.items()}


def by_cluster(clusters: list[int], values: list[Coming]) -> dict[int, list[Coming]]:
    """The values of each cluster, in order."""
    found: dict[int, list[Coming]] = defaultdict(list)
    for cluster, value in zip(clusters, values, strict=True):
        found[cluster].append(value)
    return found
