"""How far a step's whole stream has come, at each item of an epoch: the same in every shard.

Each source partition, of each of the step's streams, has come as far as the greatest measure of its
items so far; the stream has come as far as the least of the partitions that have spoken. Rules:

- A partition that speaks for the first time counts from the epoch's start, with its first measure:
  one that is ahead cannot make the first items of another late.
- What a partition's own items have reached is exact, as their stamps are: where an epoch is cut
  makes no difference to a stream of one partition.
- The stream never goes back: a partition that turns up behind the others holds it where it is
  until it has caught up.

What is remembered from epoch to epoch is one measure for each partition that ever spoke, in every
shard, written when it has changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from flow.dataflow import Step
from flow.engine.chunks import Positions
from flow.engine.header import FORMAT, check_format
from flow.engine.meter import Marks
from flow.engine.packets import Packet, Run
from flow.engine.plan import Edge
from flow.instants import NEVER, NO_PROGRESS, Moment
from flow.operators.logic import Progress, Stamped, Stateful

Speaker: TypeAlias = tuple[int, str, int]
"""A source partition of one of a step's streams: the side, and the `Partition`."""


class Sent(NamedTuple):
    """Marks, with where they came from."""

    origin: int
    side: int
    marks: Marks


class Reached(NamedTuple):
    """How far a speaker had come, and when: the running time of the epoch that set it."""

    base_us: int
    set_at_us: int


@dataclass
class StepProgress:
    """What a step remembers of its stream's progress.

    Attributes:
        reached: for each speaker that has spoken, how far it has come.
        floor_us: how far the stream had come, when that is further than the least of them.
    """

    reached: dict[Speaker, Reached] = field(default_factory=dict)
    floor_us: int = NO_PROGRESS

    def encode(self) -> bytes:
        """What is remembered, as bytes."""
        rows = [[*speaker, *reached] for speaker, reached in self.reached.items()]
        return bytes([FORMAT]) + json.dumps([self.floor_us, rows]).encode()

    @classmethod
    def decode(cls, content: bytes | None, step_id: str) -> StepProgress:
        """What is remembered in bytes made by `encode`.

        Raises:
            CheckpointError: when they were written in a format this version does not know.
        """
        if content is None:
            return cls()
        check_format(content, step_id)
        floor_us, rows = json.loads(content[1:])
        return cls({(side, by, n): Reached(*reached) for side, by, n, *reached in rows}, floor_us)


class _Track:
    """One speaker's way through an epoch.

    Invariants: `values` grows, and has one more than `positions`: `values[0]` is what counts from
    the epoch's start, `values[n + 1]` from `positions[n]` on.
    """

    def __init__(self, start_us: int | None, marks: list[Marks]) -> None:
        positions = np.concatenate([np.empty(0, np.int64), *(one.positions for one in marks)])
        values = np.concatenate([np.empty(0, np.int64), *(one.values for one in marks)])
        order = np.argsort(positions, kind="stable")
        positions, values = positions[order], values[order]
        self._speaks_after = positions[0] if start_us is None else None
        if start_us is None:
            start_us = int(values[positions == positions[0]].min())
        reached = np.maximum.accumulate(np.concatenate([[start_us], values]))
        grown = np.flatnonzero(np.diff(reached))
        self.positions: Positions = positions[grown]
        self.values: Positions = np.concatenate([reached[:1], reached[grown + 1]])

    @property
    def start_us(self) -> int:
        """What counts from the epoch's start."""
        return int(self.values[0])

    @property
    def end_us(self) -> int:
        """How far it has come with all items of the epoch."""
        return int(self.values[-1])

    def up_to(self, pos: Positions) -> Positions:
        """How far it has come with what lies at these positions, and before."""
        return self.values[np.searchsorted(self.positions, pos, "right")]

    def before(self, pos: Positions) -> Positions:
        """How far it has come with what lies before these positions."""
        reached = self.values[np.searchsorted(self.positions, pos, "left")]
        if self._speaks_after is None:
            return reached
        return np.where(pos > self._speaks_after, reached, NO_PROGRESS)


class _Least:
    """At each position, the least that speakers have reached, with or without one of them."""

    def __init__(self, tracks: list[_Track]) -> None:
        self._events = np.unique(np.concatenate([track.positions for track in tracks]))
        self._least = np.full(len(self._events) + 1, NEVER, np.int64)
        self._second = self._least.copy()
        self._whose = np.full(len(self._least), -1)
        for number, track in enumerate(tracks):
            self._add(number, np.append(track.values[:1], track.up_to(self._events)))

    def _add(self, number: int, reached: Positions) -> None:
        less = reached < self._least
        self._second = np.where(less, self._least, np.minimum(self._second, reached))
        self._whose[less] = number
        self._least[less] = reached[less]

    def without(self, number: int, pos: Positions) -> Positions:
        """The least of all but one of them, `NEVER` when there is no other."""
        at = np.searchsorted(self._events, pos, "right")
        return np.where(self._whose[at] == number, self._second[at], self._least[at])


class Timeline:
    """How far a step's stream comes in an epoch.

    Args:
        progress: how it is measured.
        kept: what the step remembers.
        sent: what came in this epoch.
        moment: the epoch's system time.

    Attributes:
        before_us: how far it had come before the epoch's items.
        after_us: how far it has come with all of them.
        kept: what the step has to remember.
    """

    def __init__(
        self, progress: Progress, kept: StepProgress, sent: Iterable[Sent], moment: Moment
    ) -> None:
        self._advances = progress.advances
        self._moment = moment
        self._speakers: dict[tuple[int, int], Speaker] = {}
        marks: dict[Speaker, list[Marks]] = {speaker: [] for speaker in kept.reached}
        for origin, side, one in sent:
            speaker = self._speakers[one.dest, origin] = (side, *one.partition)
            if len(one.positions):
                marks.setdefault(speaker, []).append(one)
        starts = {speaker: self._now_at(reached) for speaker, reached in kept.reached.items()}
        self._tracks = [_Track(starts.get(speaker), said) for speaker, said in marks.items()]
        self._numbers = {speaker: number for number, speaker in enumerate(marks)}
        self._least = _Least(self._tracks) if len(self._tracks) > 1 else None
        self._end_us = min((track.end_us for track in self._tracks), default=NO_PROGRESS)
        self.before_us = max(kept.floor_us, min(starts.values(), default=NO_PROGRESS))
        self.after_us = max(self.before_us, self._end_us)
        reached = {
            speaker: self._keep(self._tracks[number], kept.reached.get(speaker))
            for speaker, number in self._numbers.items()
        }
        held = self._end_us < self.after_us
        self.kept = StepProgress(reached, self.after_us if held else NO_PROGRESS)

    def stamped(self, dest: int, origin: int, runs: list[Run]) -> list[Run]:
        """The values that one origin sent along an edge, as their logics are to get them."""
        pos = np.array([at for run in runs for at in run.pos], np.int64)
        stamps = np.array([stamp for run in runs for _, stamp in run.values], np.int64)
        reached = iter(self.reached(dest, origin, pos, stamps).tolist())
        return [
            run._replace(values=[Stamped(value, next(reached)) for value, _ in run.values])
            for run in runs
        ]

    def reached(self, dest: int, origin: int, pos: Positions, stamps: Positions) -> Positions:
        """How far the stream has come with each of the items that one origin sent along an edge."""
        return self.at(self._speakers.get((dest, origin)), pos, stamps)

    def at(self, speaker: Speaker | None, pos: Positions, stamps: Positions) -> Positions:
        """How far the stream has come once items of one speaker have been counted.

        Before it has spoken for the first time, its items find the stream where the epoch did.

        Args:
            speaker: whose items they are.
            pos: where they lie.
            stamps: how far what their origin sent had come with each.
        """
        number = None if speaker is None else self._numbers.get(speaker)
        if number is None:
            return np.full(len(pos), self.before_us)
        reached = np.maximum(self._tracks[number].before(pos), stamps)
        spoken = reached > NO_PROGRESS
        if self._least is not None:
            reached = np.minimum(reached, self._least.without(number, pos))
        return np.where(spoken, np.maximum(reached, self.before_us), self.before_us)

    def due_us(self, least_us: int) -> int:
        """The system time at which time alone will have brought the stream as far as `least_us`."""
        if least_us <= self.after_us:
            return self._moment.now_us
        if not self._advances or not self._tracks or least_us >= NEVER:
            return NEVER
        return min(self._moment.now_us + least_us - self._end_us, NEVER)

    def _now_at(self, reached: Reached) -> int:
        """How far a speaker has come by the time that has passed."""
        passed_us = self._moment.running_us - reached.set_at_us if self._advances else 0
        return reached.base_us + max(0, passed_us)

    def _keep(self, track: _Track, before: Reached | None) -> Reached:
        if before is not None and track.end_us == track.start_us:
            return before
        return Reached(track.end_us, self._moment.running_us)


class KeepsProgress(Protocol):
    """What remembers how far a step's stream has come: its state in a shard."""

    def progress(self) -> bytes | None:
        """What is remembered."""

    def keep_progress(self, content: bytes) -> None:
        """Replace what is remembered."""


def timeline_of(
    step: Step,
    edges: tuple[Edge, ...],
    packets: list[Packet],
    states: KeepsProgress,
    moment: Moment,
) -> Timeline | None:
    """The timeline of a step in an epoch, `None` for a step that does not measure progress.

    What the step has to remember of it is kept.
    """
    progress = step.operator.progress if isinstance(step.operator, Stateful) else None
    if progress is None:
        return None
    sides = {edge.dest: edge.side for edge in edges}
    ordered = sorted(packets, key=lambda packet: (packet.origin, packet.seq))
    decoded = [(packet.origin, Marks.decode(packet.payload)) for packet in ordered]
    sent = [Sent(origin, sides[marks.dest], marks) for origin, marks in decoded]
    kept = StepProgress.decode(states.progress(), step.step_id)
    timeline = Timeline(progress, kept, sent, moment)
    if timeline.kept != kept:
        states.keep_progress(timeline.kept.encode())
    return timeline
