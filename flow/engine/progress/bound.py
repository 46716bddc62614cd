"""The bound of a step's watermarks, which partitions that are behind and other steps set.

The partitions of a step's sources are read at different speeds. A watermark that followed the
fastest partition would make items of the other partitions late. Rules:

- A partition that is behind holds the step's watermarks at its own progress, the greatest measure
  of its items so far. Within an epoch, a partition that is not behind holds them as well, up to
  its last item. A partition without items holds them at the least time.
- A partition that was read for `QUIET_US` without an item for the step does not hold the
  watermarks, until its next item.
- A step whose results the step reads holds its watermarks at the least timestamp that a result may
  still have, its *hold*. An epoch is then one moment: all of its items are judged by the
  watermarks at its start, and the bound does not change with the position.
- Results count as items of the source partitions that they come from. The step's wait is at least
  the spread of the lags of all that it reads, so no plain item on time lies below their measure.

The bound changes with the position in the epoch. A shard stores the progress of each partition that
is behind; a partition that is not behind starts the next epoch without progress.

The progress of a partition within an epoch is a step function of the position, which never
decreases (`Track`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from flow.columns.chunks import Positions, sources_at
from flow.dataflow import StreamId
from flow.engine.epoch.context import Control
from flow.engine.epoch.statistics import SourcePartition
from flow.engine.progress.meter import Marks, growth_in
from flow.instants import NEVER, NO_PROGRESS

MOST_EVALUATIONS = 1 << 22
"""The most values that `Least` compares. With more, it takes the least at fewer positions, so that
the least grows at a later position than it should, never at an earlier one."""


Holds: TypeAlias = Mapping[StreamId, int]
"""The hold of each stream of results that a step in event time reads, in µs."""


class Track:
    """A value that grows at positions of an epoch.

    Invariants: `positions` and `values` are sorted. `values[0]` applies from the epoch's start,
    `values[n + 1]` from `positions[n]` on, so `values` has one element more than `positions`.
    """

    def __init__(self, start_us: int, positions: Positions, values: Positions) -> None:
        order = np.argsort(positions, kind="stable")
        reached = np.maximum.accumulate(np.concatenate([[start_us], values[order]]))
        grown = np.flatnonzero(np.diff(reached))
        self.positions: Positions = positions[order][grown]
        self.values: Positions = np.concatenate([reached[:1], reached[grown + 1]])

    @property
    def start_us(self) -> int:
        """The value at the epoch's start."""
        return int(self.values[0])

    @property
    def end_us(self) -> int:
        """The value after all items of the epoch."""
        return int(self.values[-1])

    def up_to(self, pos: Positions) -> Positions:
        """Return the value at each position, including growth at the position itself."""
        return self.values[np.searchsorted(self.positions, pos, "right")]

    def before(self, pos: Positions) -> Positions:
        """Return the value at each position, without growth at the position itself."""
        return self.values[np.searchsorted(self.positions, pos, "left")]

    def ending(self, last: int) -> Track:
        """Return the track with the value `NEVER` from position `last` on."""
        return Track(
            self.start_us, np.append(self.positions, last), np.append(self.values[1:], NEVER)
        )


class Least:
    """The least value of several tracks at each position, with or without one of the tracks."""

    def __init__(self, tracks: Sequence[Track]) -> None:
        events = np.unique(np.concatenate([track.positions for track in tracks]))
        stride = -(-len(events) * len(tracks) // MOST_EVALUATIONS)
        self._events = events if stride <= 1 else events[::stride]
        self._least = np.full(len(self._events) + 1, NEVER, np.int64)
        self._second = self._least.copy()
        self._owner = np.full(len(self._least), -1)
        for number, track in enumerate(tracks):
            self._add(number, np.append(track.values[:1], track.up_to(self._events)))

    def _add(self, number: int, reached: Positions) -> None:
        less = reached < self._least
        self._second = np.where(less, self._least, np.minimum(self._second, reached))
        self._owner[less] = number
        self._least[less] = reached[less]

    def without(self, number: Positions | int, pos: Positions) -> Positions:
        """Return the least value of all tracks but one; `NEVER` if there is no other track.

        Args:
            number: the number of the track to leave out, or a number for each position, int64,
                shape (positions,); -1 for none.
            pos: the positions.
        """
        at = np.searchsorted(self._events, pos, "right")
        return np.where(self._owner[at] == number, self._second[at], self._least[at])


QUIET_US = 60_000_000
"""The running time after which a partition that is read without items no longer holds a step."""


class PartitionProgress(NamedTuple):
    """Progress of a partition that is behind, in one step.

    Attributes:
        reached_us: the greatest measure of the partition's items.
        heard_us: the running time from which `QUIET_US` counts.
    """

    reached_us: int
    heard_us: int


@dataclass
class BoundState:
    """State of the bound of a step's watermarks, between epochs.

    Attributes:
        partitions: the progress of each source partition that is behind.
        bound_us: the bound at the end of the epoch before; `NEVER` for none.
        since_us: the inputs' clock as the bound began; `NEVER` for none.
        now_us: the running time of the epoch before; 0 if no partition is behind.
    """

    partitions: dict[SourcePartition, PartitionProgress] = field(default_factory=dict)
    bound_us: int = NEVER
    since_us: int = NEVER
    now_us: int = 0

    def to_json(self) -> Any:
        """Return the state as JSON; ``None`` for a state without a bound."""
        if not self.partitions and self.bound_us == NEVER:
            return None
        rows = [[*partition, *progress] for partition, progress in self.partitions.items()]
        return [self.bound_us, self.since_us, self.now_us, rows]

    @classmethod
    def from_json(cls, found: Any) -> BoundState:
        """Return the state in JSON made by `to_json`."""
        if found is None:
            return cls()
        bound_us, since_us, now_us, rows = found
        partitions = {(name, n): PartitionProgress(*one) for name, n, *one in rows}
        return cls(partitions, bound_us, since_us, now_us)


class Bound:
    """The bound of a step's watermarks in an epoch.

    Args:
        kept: the state of the bound after the epoch before.
        marks: the progress of each partition in this epoch, from all origins.
        control: the epoch's control.
        inputs: the inputs whose plain items the step reads.
        feeds: all inputs that feed the step, also through steps in event time.
        results: the holds, at the end of this epoch, of the streams of results that the step reads.
        applies: False if the bound is only measured, for the hold of the step's results.

    Attributes:
        before_us: the bound at the epoch's start; `NEVER` for none.
        after_us: the bound after all items of the epoch; `NEVER` for none.
        set_by: the stream of results, or the source partition, that sets this bound, or ``None``.
        since_us: the inputs' clock as the bound began.
        kept: the state of the bound after this epoch.
    """

    def __init__(
        self,
        kept: BoundState,
        marks: Iterable[Marks],
        control: Control,
        inputs: Collection[str],
        feeds: Sequence[str],
        results: Holds | None = None,
        *,
        applies: bool = True,
    ) -> None:
        self._sources = control.sources or ()
        marks_of: dict[SourcePartition, list[Marks]] = {}
        for each in marks:
            source_partition = (each.partition.made_by, each.partition.number)
            marks_of.setdefault(source_partition, []).append(each)
        behind = {partition for partition in control.behind if partition[0] in inputs}
        partitions = sorted({*kept.partitions, *marks_of, *behind})
        self._numbers = {partition: number for number, partition in enumerate(partitions)}
        self._tracks = [_track(kept, partition, marks_of) for partition in partitions]
        now_us, read = control.moment.running_us, set(self._sources)
        heard = {
            one: now_us if one in marks_of else _heard_us(kept, one, now_us, one in read)
            for one in partitions
        }
        holding = {one for one in behind if now_us - heard[one] < QUIET_US}
        bounds = [
            track if one in holding else track.ending(_last(marks_of.get(one, ())))
            for one, track in zip(partitions, self._tracks, strict=True)
        ]
        self._least = Least(bounds) if bounds else None
        self.before_us = kept.bound_us
        ends_us = {one: self._tracks[self._numbers[one]].end_us for one in sorted(holding)}
        limits: list[tuple[StreamId | SourcePartition | None, int]] = [(None, NEVER)]
        limits += [*(results or {}).items(), *ends_us.items()]
        self.set_by, self.after_us = min(limits, key=itemgetter(1))
        clock = control.read_by(feeds)
        self.since_us = clock.before_us if kept.bound_us == NEVER else kept.since_us
        progress = {
            one: PartitionProgress(self._tracks[self._numbers[one]].end_us, heard[one])
            for one in sorted(behind)
        }
        kept_us = self.after_us if applies else NEVER
        since_us = self.since_us if kept_us < NEVER else NEVER
        self.kept = BoundState(progress, kept_us, since_us, now_us if progress else 0)

    @property
    def progress(self) -> dict[SourcePartition, int]:
        """The progress of each partition that has sent a value, in µs."""
        ends = {one: self._tracks[number].end_us for one, number in self._numbers.items()}
        return {one: end_us for one, end_us in ends.items() if end_us > NO_PROGRESS}

    def bounds(self, pos: Positions) -> tuple[Positions, Positions]:
        """Return the bounds of the watermark at items.

        Args:
            pos: the items' positions, int64, shape (items,).

        Returns:
            The bound by the other partitions, and the progress of the item's own partition with the
            items up to it, `NEVER` for an item of no partition; each int64 µs, shape (items,).
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
    kept: BoundState, partition: SourcePartition, marks_of: dict[SourcePartition, list[Marks]]
) -> Track:
    before = kept.partitions.get(partition)
    start_us = NO_PROGRESS if before is None else before.reached_us
    return Track(start_us, *growth_in(marks_of.get(partition, ())))


def _heard_us(kept: BoundState, partition: SourcePartition, now_us: int, is_read: bool) -> int:
    """Return the running time from which `QUIET_US` counts for a partition without items.

    The time of epochs that do not read the partition does not count.
    """
    before = kept.partitions.get(partition)
    if before is None:
        return now_us
    return before.heard_us if is_read else before.heard_us + now_us - kept.now_us


def _last(marks: Iterable[Marks]) -> int:
    """Return the position of a partition's last item; -2 for a partition without items."""
    return max((one.last for one in marks if one.last is not None), default=-2)
