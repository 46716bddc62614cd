"""Progress of a step's whole stream at each item of an epoch: the same in every shard.

The progress of a partition, of any of the step's streams, is the greatest measure of its items so
far. The progress of the stream is the least progress of the partitions that have sent a measured
item. Rules:

- The first measure of a new partition counts from the epoch's start, so that a partition that is
  ahead cannot make the first items of a new partition late.
- The progress by a partition's own items is exact, as their stamps are: the result for a stream of
  one partition does not depend on the boundaries of epochs.
- Stream progress never decreases: a new partition with less progress stops the stream's progress
  until the partition reaches it.
- A partition that is finished for good no longer counts after an epoch at whose end another
  partition has progress: nothing would move a history whose source has gone on to live data.

Every shard stores one measure for each partition that has sent a measured item, and writes them
when they change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from flow.columns.chunks import Positions
from flow.engine.progress.bound import Bound, BoundState, Least, Track
from flow.engine.progress.meter import Marks, growth_in
from flow.format_version import VERSION, check_format, version_in
from flow.instants import NEVER, NO_PROGRESS, Moment
from flow.keyed.logic import Progress

StreamPartition: TypeAlias = tuple[int, str, int]
"""A partition of a step's stream: the side, for items of a level, and the `Partition`.

The branches of one input are one partition, on whichever side of the step they arrive."""


class Sent(NamedTuple):
    """Marks, with their origin and the side of the step that they belong to."""

    origin: int
    side: int
    marks: Marks


class ProgressAt(NamedTuple):
    """Progress of a partition, and the running time of the epoch that set it."""

    base_us: int
    set_at_us: int


@dataclass
class StepProgress:
    """State of a step's stream progress between epochs.

    Attributes:
        reached: the progress of each partition that has sent a measured item.
        floor_us: the progress of the stream, if it is greater than that of the least partition.
        bound: the state of the bound of the step's watermarks.
    """

    reached: dict[StreamPartition, ProgressAt] = field(default_factory=dict)
    floor_us: int = NO_PROGRESS
    bound: BoundState = field(default_factory=BoundState)

    def encode(self) -> bytes:
        """Return the state as bytes."""
        rows = [[*partition, *reached] for partition, reached in self.reached.items()]
        content = [self.floor_us, rows, self.bound.to_json()]
        return bytes([VERSION]) + json.dumps(content).encode()

    @classmethod
    def decode(cls, content: bytes | None, step_id: str) -> StepProgress:
        """Return the progress in bytes made by `encode`.

        Raises:
            CheckpointError: when the bytes have a format that this version does not know.
        """
        if content is None:
            return cls()
        check_format(f"the state of step {step_id!r}", version_in(content))
        floor_us, rows, bound = json.loads(content[1:])
        reached = {(side, by, n): ProgressAt(*reached) for side, by, n, *reached in rows}
        return cls(reached, floor_us, BoundState.from_json(bound))


class _PartitionTrack(Track):
    """Progress of one partition in an epoch; `before` its first measured item it has none."""

    def __init__(self, start_us: int | None, marks: list[Marks]) -> None:
        positions, values = growth_in(marks)
        self._first_pos = positions.min() if start_us is None else None
        if start_us is None:
            start_us = int(values[positions == self._first_pos].min())
        super().__init__(start_us, positions, values)

    def before(self, pos: Positions) -> Positions:
        reached = super().before(pos)
        if self._first_pos is None:
            return reached
        return np.where(pos > self._first_pos, reached, NO_PROGRESS)


class Timeline:
    """Progress of a step's stream within an epoch.

    Args:
        progress: the step's measure of progress.
        kept: the state after the epoch before.
        sent: the marks of this epoch.
        moment: the epoch's system time, and the clock of the step's inputs.
        bound: the bound of the step's watermarks, if the step has one.
        first: the first source partition of an input that may still be read, if not 0.

    Attributes:
        before_us: the stream progress before the epoch's items.
        after_us: the stream progress after all items of the epoch.
        kept: the state after this epoch.
    """

    def __init__(
        self,
        progress: Progress,
        kept: StepProgress,
        sent: Iterable[Sent],
        moment: Moment,
        bound: Bound | None = None,
        first: Mapping[str, int] | None = None,
    ) -> None:
        self._advances = progress.advances
        self._moment = moment
        self._bound = bound
        self._partitions: dict[tuple[int, int], StreamPartition] = {}
        marks: dict[StreamPartition, list[Marks]] = {partition: [] for partition in kept.reached}
        for origin, side, new_marks in sent:
            its_side = 0 if new_marks.partition.made_by else side
            partition = self._partitions[new_marks.dest, origin] = (its_side, *new_marks.partition)
            if len(new_marks.positions):
                marks.setdefault(partition, []).append(new_marks)
        clock = moment.before.inputs_us
        starts = {
            partition: self._at(reached, clock) for partition, reached in kept.reached.items()
        }
        self._tracks = [
            _PartitionTrack(starts.get(partition), its_marks)
            for partition, its_marks in marks.items()
        ]
        self._numbers = {partition: number for number, partition in enumerate(marks)}
        self._least = Least(self._tracks) if len(self._tracks) > 1 else None
        reached = {
            partition: self._keep(self._tracks[number], kept.reached.get(partition))
            for partition, number in self._numbers.items()
        }
        ends = [self._at(one, moment.inputs_us) for one in reached.values()]
        self._end_us = min(ends, default=NO_PROGRESS)
        start_us = min(starts.values(), default=NO_PROGRESS)
        bounds = (NEVER, NEVER) if bound is None else (bound.before_us, bound.after_us)
        self.before_us = max(kept.floor_us, min(start_us, bounds[0]))
        self.after_us = max(self.before_us, min(self._end_us, bounds[1]))
        counting = _counting(reached, first or {})
        is_reduced = len(counting) < len(reached)
        has_floor = bound is not None or is_reduced or self._end_us < self.after_us
        floor_us = self.after_us if has_floor else NO_PROGRESS
        self.kept = StepProgress(counting, floor_us)

    def reached(self, dest: int, origin: int, pos: Positions, stamps: Positions) -> Positions:
        """Return the stream progress at each item that one origin sent along an edge, in µs."""
        return self.at(self._partitions.get((dest, origin)), pos, stamps)

    def at(self, partition: StreamPartition | None, pos: Positions, stamps: Positions) -> Positions:
        """Return the stream progress with each of some items of one partition.

        At items before the first measured item of a new partition, the progress is that of the
        epoch's start.

        Args:
            partition: the partition of the items.
            pos: the items' positions, int64, shape (items,).
            stamps: the items' stamps, int64 µs, shape (items,).
        """
        number = None if partition is None else self._numbers.get(partition)
        if number is None:
            return np.full(len(pos), self.before_us)
        reached = np.maximum(self._tracks[number].before(pos), stamps)
        has_progress = reached > NO_PROGRESS
        if self._least is not None:
            reached = np.minimum(reached, self._least.without(number, pos))
        if self._bound is not None:
            others, own = self._bound.bounds(pos)
            if partition is not None and partition[1]:  # Not the items of a level, of many sources.
                own = np.maximum(own, stamps)
            reached = np.minimum(reached, np.minimum(others, own))
        return np.where(has_progress, np.maximum(reached, self.before_us), self.before_us)

    def due_us(self, least_us: int) -> int:
        """Return the system time at which stream progress reaches `least_us` without new items."""
        if least_us <= self.after_us:
            return self._moment.steady_us
        is_held = self._bound is not None and self._bound.after_us < least_us
        if is_held or not self._advances or not self._tracks or least_us >= NEVER:
            return NEVER
        return min(self._moment.inputs_now_us + least_us - self._end_us, NEVER)

    def _at(self, reached: ProgressAt, clock_us: int) -> int:
        """Return the progress of a partition, with the time that has passed until `clock_us`."""
        passed_us = clock_us - reached.set_at_us if self._advances else 0
        return reached.base_us + max(0, passed_us)

    def _keep(self, track: Track, before: ProgressAt | None) -> ProgressAt:
        """Return the progress of a partition by its items, unless time has advanced it further."""
        if before is not None and track.end_us <= self._at(before, self._moment.inputs_us):
            return before
        return ProgressAt(track.end_us, self._moment.running_us)


def _counting(
    reached: dict[StreamPartition, ProgressAt], first: Mapping[str, int]
) -> dict[StreamPartition, ProgressAt]:
    """Return the progress of the partitions that count in the next epoch.

    Args:
        reached: the progress of all partitions that have sent a measured item.
        first: the first source partition of an input that may still be read, if not 0.
    """
    unfinished = {
        partition: its
        for partition, its in reached.items()
        if partition[2] >= first.get(partition[1], 0)
    }
    return unfinished or reached
