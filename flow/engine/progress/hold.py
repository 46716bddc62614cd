"""The hold of a backlog: partitions of which more is to come bound a step's watermarks.

Partitions of a step's sources are read at different paces. What one has brought says nothing of how
far another has come, so a watermark that followed the fastest would call late what is on time in
the others. Rules:

- A partition holds a step's watermarks at its own progress, the greatest measure of its items so
  far, while more of it is known to be there than the epoch reads, and inside an epoch up to its
  last item. One that has brought nothing holds them at the beginning of time.
- A partition that has been read from for `QUIET_US` and brought the step nothing holds nobody,
  until it brings something.

The bound changes with the position in the epoch. A shard remembers, for each partition that is
behind, how far it has come; one that is not behind starts an epoch as one that has brought nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from flow.columns.chunks import Positions, sources_at
from flow.engine.epoch.context import Control, SourcePartition
from flow.engine.progress.meter import Marks
from flow.engine.progress.tracks import Least, Track
from flow.instants import NEVER, NO_PROGRESS

QUIET_US = 60_000_000
"""Running time after which a partition that is read and brings a step nothing holds it no more."""


class Brought(NamedTuple):
    """Values that a partition has brought to a step.

    Attributes:
        reached_us: the greatest measure of its items.
        heard_us: the running time from which its silence counts.
    """

    reached_us: int
    heard_us: int


@dataclass
class HoldState:
    """State of the hold on the watermarks of a step, between epochs.

    Attributes:
        brought: what each source partition that is behind has brought.
        bound_us: the bound as the epoch before ended, `NEVER` when nothing held the step.
        since_us: the inputs' clock at which the hold began, `NEVER` when nothing holds the step.
        now_us: the running time of the epoch before.
    """

    brought: dict[SourcePartition, Brought] = field(default_factory=dict)
    bound_us: int = NEVER
    since_us: int = NEVER
    now_us: int = 0

    def to_json(self) -> Any:
        """Return the state as JSON, ``None`` when there is nothing to remember."""
        if not self.brought and self.bound_us == NEVER:
            return None
        rows = [[*partition, *brought] for partition, brought in self.brought.items()]
        return [self.bound_us, self.since_us, self.now_us, rows]

    @classmethod
    def from_json(cls, found: Any) -> HoldState:
        """Return the state in JSON made by `to_json`."""
        if found is None:
            return cls()
        bound_us, since_us, now_us, rows = found
        brought = {(name, n): Brought(*one) for name, n, *one in rows}
        return cls(brought, bound_us, since_us, now_us)


class Hold:
    """The bound of a step's watermarks in an epoch.

    Args:
        kept: what the step remembers.
        marks: how far each partition came in this epoch, of any origin.
        control: the epoch.
        inputs: the inputs that feed the step.

    Attributes:
        before_us: the bound at the epoch's start; `NEVER` for none.
        after_us: the bound after all items of the epoch; `NEVER` for none.
        since_us: the inputs' clock at which the hold began.
        kept: what the step has to remember.
    """

    def __init__(
        self, kept: HoldState, marks: Iterable[Marks], control: Control, inputs: Sequence[str]
    ) -> None:
        self._sources = control.sources or ()
        said: dict[SourcePartition, list[Marks]] = {}
        for one in marks:
            said.setdefault((one.partition.made_by, one.partition.number), []).append(one)
        behind = {partition for partition in control.behind if partition[0] in inputs}
        partitions = sorted({*kept.brought, *said, *behind})
        self._numbers = {partition: number for number, partition in enumerate(partitions)}
        self._tracks = [_track(kept, partition, said) for partition in partitions]
        now_us, read = control.moment.running_us, set(self._sources)
        heard = {
            one: now_us if one in said else _heard_us(kept, one, now_us, one in read)
            for one in partitions
        }
        holding = {one for one in behind if now_us - heard[one] < QUIET_US}
        ways = [
            track if one in holding else track.ending(_last(said.get(one, ())))
            for one, track in zip(partitions, self._tracks, strict=True)
        ]
        self._least = Least(ways) if ways else None
        self.before_us = kept.bound_us
        self.after_us = min(
            (self._tracks[self._numbers[one]].end_us for one in holding), default=NEVER
        )
        clock = control.read_by(inputs)
        self.since_us = clock.before_us if kept.bound_us == NEVER else kept.since_us
        brought = {
            one: Brought(self._tracks[self._numbers[one]].end_us, heard[one])
            for one in sorted(behind)
        }
        since_us = self.since_us if self.after_us < NEVER else NEVER
        self.kept = HoldState(brought, self.after_us, since_us, now_us if brought else 0)

    @property
    def progress(self) -> dict[SourcePartition, int]:
        """The progress of each partition that has brought a value, in microseconds."""
        ends = {one: self._tracks[number].end_us for one, number in self._numbers.items()}
        return {one: end_us for one, end_us in ends.items() if end_us > NO_PROGRESS}

    def bounds(self, pos: Positions) -> tuple[Positions, Positions]:
        """Return what bounds the watermark at items.

        Args:
            pos: their positions, int64, shape (items,).

        Returns:
            The bound by the other partitions, and how far the item's own partition has come with
            the items up to it, `NEVER` for an item of no partition; each int64, shape (items,).
        """
        codes = sources_at(pos)
        numbers = np.array([self._numbers.get(one, -1) for one in self._sources] + [-1])[codes]
        own = np.full(len(pos), NEVER, np.int64)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            rows = numbers == number
            own[rows] = self._tracks[number].up_to(pos[rows])
        if self._least is None:
            return np.full(len(pos), NEVER, np.int64), own
        return self._least.without(numbers, pos), own


def _track(
    kept: HoldState, partition: SourcePartition, said: dict[SourcePartition, list[Marks]]
) -> Track:
    before = kept.brought.get(partition)
    marks = said.get(partition, ())
    return Track(
        NO_PROGRESS if before is None else before.reached_us,
        np.concatenate([np.empty(0, np.int64), *(one.positions for one in marks)]),
        np.concatenate([np.empty(0, np.int64), *(one.values for one in marks)]),
    )


def _heard_us(kept: HoldState, partition: SourcePartition, now_us: int, is_read: bool) -> int:
    """Return the running time from which a partition's silence counts.

    The time that passes while the partition is not read from does not count.
    """
    before = kept.brought.get(partition)
    if before is None:
        return now_us
    return before.heard_us if is_read else before.heard_us + now_us - kept.now_us


def _last(marks: Iterable[Marks]) -> int:
    """Return the position of a partition's last item, -2 when it has none."""
    return max((one.last for one in marks if one.last is not None), default=-2)
