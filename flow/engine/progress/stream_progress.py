"""Progress of a step's whole stream at each item of an epoch: the same in every shard.

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
from typing import NamedTuple, TypeAlias

import numpy as np

from flow.columns.chunks import Positions
from flow.engine.packets.packets import Run
from flow.engine.progress.hold import Hold, HoldState
from flow.engine.progress.meter import Marks
from flow.engine.progress.tracks import Least, Track
from flow.engine.state.header import FORMAT, check_format
from flow.instants import NEVER, NO_PROGRESS, Moment
from flow.keyed.logic import Progress, Stamped

Speaker: TypeAlias = tuple[int, str, int]
"""A source partition of one of a step's streams: the side, and the `Partition`."""


class Sent(NamedTuple):
    """Marks, with where they came from."""

    origin: int
    side: int
    marks: Marks


class Reached(NamedTuple):
    """Progress of a speaker, and the running time of the epoch that set it."""

    base_us: int
    set_at_us: int


@dataclass
class StepProgress:
    """State of a step's stream progress between epochs.

    Attributes:
        reached: for each speaker that has spoken, how far it has come.
        floor_us: how far the stream had come, when that is further than the least of them.
        hold: what holds the step's watermarks.
    """

    reached: dict[Speaker, Reached] = field(default_factory=dict)
    floor_us: int = NO_PROGRESS
    hold: HoldState = field(default_factory=HoldState)

    def encode(self) -> bytes:
        """Return the state as bytes."""
        rows = [[*speaker, *reached] for speaker, reached in self.reached.items()]
        hold = self.hold.to_json()
        found = [self.floor_us, rows] if hold is None else [self.floor_us, rows, hold]
        return bytes([FORMAT]) + json.dumps(found).encode()

    @classmethod
    def decode(cls, content: bytes | None, step_id: str) -> StepProgress:
        """Read the progress in bytes made by `encode`.

        Raises:
            CheckpointError: when they were written in a format this version does not know.
        """
        if content is None:
            return cls()
        check_format(content, step_id)
        floor_us, rows, *hold = json.loads(content[1:])
        reached = {(side, by, n): Reached(*reached) for side, by, n, *reached in rows}
        return cls(reached, floor_us, HoldState.from_json(hold[0] if hold else None))


class _SpeakerTrack(Track):
    """One speaker's way through an epoch; before it has ever spoken it holds nobody."""

    def __init__(self, start_us: int | None, marks: list[Marks]) -> None:
        positions = np.concatenate([np.empty(0, np.int64), *(one.positions for one in marks)])
        values = np.concatenate([np.empty(0, np.int64), *(one.values for one in marks)])
        self._speaks_after = positions.min() if start_us is None else None
        if start_us is None:
            start_us = int(values[positions == self._speaks_after].min())
        super().__init__(start_us, positions, values)

    def before(self, pos: Positions) -> Positions:
        reached = super().before(pos)
        if self._speaks_after is None:
            return reached
        return np.where(pos > self._speaks_after, reached, NO_PROGRESS)


class Timeline:
    """Progress of a step's stream within an epoch.

    Args:
        progress: how it is measured.
        kept: what the step remembers.
        sent: what came in this epoch.
        moment: the epoch's system time, and the clock of the step's inputs.
        hold: what holds the step's watermarks, where its sources have several partitions.

    Attributes:
        before_us: how far it had come before the epoch's items.
        after_us: how far it has come with all of them.
        kept: what the step has to remember.
    """

    def __init__(
        self,
        progress: Progress,
        kept: StepProgress,
        sent: Iterable[Sent],
        moment: Moment,
        hold: Hold | None = None,
    ) -> None:
        self._advances = progress.advances
        self._moment = moment
        self._hold = hold
        self._speakers: dict[tuple[int, int], Speaker] = {}
        marks: dict[Speaker, list[Marks]] = {speaker: [] for speaker in kept.reached}
        for origin, side, one in sent:
            speaker = self._speakers[one.dest, origin] = (side, *one.partition)
            if len(one.positions):
                marks.setdefault(speaker, []).append(one)
        clock = moment.before.inputs_us
        starts = {speaker: self._at(reached, clock) for speaker, reached in kept.reached.items()}
        self._tracks = [_SpeakerTrack(starts.get(speaker), said) for speaker, said in marks.items()]
        self._numbers = {speaker: number for number, speaker in enumerate(marks)}
        self._least = Least(self._tracks) if len(self._tracks) > 1 else None
        reached = {
            speaker: self._keep(self._tracks[number], kept.reached.get(speaker))
            for speaker, number in self._numbers.items()
        }
        ends = [self._at(one, moment.inputs_us) for one in reached.values()]
        self._end_us = min(ends, default=NO_PROGRESS)
        start_us = min(starts.values(), default=NO_PROGRESS)
        bounds = (NEVER, NEVER) if hold is None else (hold.before_us, hold.after_us)
        self.before_us = max(kept.floor_us, min(start_us, bounds[0]))
        self.after_us = max(self.before_us, min(self._end_us, bounds[1]))
        held = hold is not None or self._end_us < self.after_us
        floor_us = self.after_us if held else NO_PROGRESS
        self.kept = StepProgress(reached, floor_us, HoldState() if hold is None else hold.kept)

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
        """Return the stream progress at each item that one origin sent along an edge, in µs."""
        return self.at(self._speakers.get((dest, origin)), pos, stamps)

    def at(self, speaker: Speaker | None, pos: Positions, stamps: Positions) -> Positions:
        """Return the progress of the stream once items of one speaker are counted.

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
        if self._hold is not None:
            others, own = self._hold.bounds(pos)
            reached = np.minimum(reached, np.minimum(others, np.maximum(own, stamps)))
        return np.where(spoken, np.maximum(reached, self.before_us), self.before_us)

    def due_us(self, least_us: int) -> int:
        """The system time at which time alone will have brought the stream as far as `least_us`."""
        if least_us <= self.after_us:
            return self._moment.now_us
        held = self._hold is not None and self._hold.after_us < NEVER
        if held or not self._advances or not self._tracks or least_us >= NEVER:
            return NEVER
        return min(self._moment.inputs_now_us + least_us - self._end_us, NEVER)

    def _at(self, reached: Reached, clock_us: int) -> int:
        """Return the progress of a speaker, with the time that has passed until `clock_us`."""
        passed_us = clock_us - reached.set_at_us if self._advances else 0
        return reached.base_us + max(0, passed_us)

    def _keep(self, track: Track, before: Reached | None) -> Reached:
        """Return the progress of a speaker by its items, unless time has advanced it further."""
        if before is not None and track.end_us <= self._at(before, self._moment.inputs_us):
            return before
        return Reached(track.end_us, self._moment.running_us)
