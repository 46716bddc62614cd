"""The time of a keyed step in an epoch: its inputs' clock, its stream's progress, its bound.

The time of a step defines the moments of the calls before and after the epoch's items, the due
keys, and the stamp of each item. The *hold* of a step, the least timestamp that its results may
still have, reaches the steps of the next levels that read the results.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from flow.columns.chunks import Positions, sources_at
from flow.dataflow import Step, StreamId
from flow.engine.epoch.context import Control
from flow.engine.packets.packets import HOLDS, SLICE_BITS, Packet, Run
from flow.engine.plan.plan import Edge, Plan
from flow.engine.progress.bound import Bound, Holds
from flow.engine.progress.meter import Marks
from flow.engine.progress.stream_progress import Sent, StepProgress, Timeline
from flow.engine.state.step_state import StepState
from flow.instants import NEVER, NO_PROGRESS, Moment
from flow.keyed.logic import BoundedValue, StampedValue
from flow.keyed.state import DueLimit


class Bounds(NamedTuple):
    """Bounds of the watermark at items; int64, shape (items,).

    Attributes:
        others_us: the bound by all partitions but the item's own.
        own_us: the progress of the item's own partition with the items up to it.
        sources: the number of the item's partition in the epoch; -1 for an item of no partition.
    """

    others_us: Positions
    own_us: Positions
    sources: Positions


class StepTime:
    """The time of a step in an epoch and a shard.

    Attributes:
        moment: the moment after the epoch's items; its `before` is the moment before the items.
        due_before: the limit of the due times of keys that are due before the epoch's items.
        due_after: the limit of the due times of keys that are due after the items.
        timeline: the stream progress, for a step whose watermarks follow it.
        bound: the bound of the step's watermarks, if it is measured.
    """

    def __init__(
        self,
        moment: Moment,
        timeline: Timeline | None = None,
        bound: Bound | None = None,
        *,
        follows_inputs: bool = False,
        is_bounded: bool = False,
        is_moment: bool = False,
    ) -> None:
        self.timeline, self.bound = timeline, bound
        self._bounds_items = is_bounded and not is_moment
        self._is_moment = is_moment
        start = replace(moment.before, judges_epoch=is_moment)
        if bound is not None and is_bounded:
            since_us = bound.since_us
            start = replace(start, bound_us=bound.before_us, held_since_us=since_us)
            moment = replace(moment, bound_us=bound.after_us, held_since_us=since_us)
        if timeline is not None:
            start = replace(start, progress_us=timeline.before_us)
            moment = replace(moment, progress_us=timeline.after_us)
            self.due_before = DueLimit(timeline.before_us)
            self.due_after = DueLimit(timeline.after_us)
        elif follows_inputs:
            self.due_before = DueLimit(start.inputs_now_us, start.bound_us)
            self.due_after = DueLimit(moment.inputs_now_us, moment.bound_us)
        else:
            self.due_before = self.due_after = DueLimit(moment.now_us)
        self.moment = replace(moment, start=None if start == moment else start)

    def stamped(self, dest: int, origin: int, runs: list[Run]) -> list[Run]:
        """Return the values that one origin sent along an edge, with the stamps for the logics."""
        pos = np.array([at for run in runs for at in run.pos], np.int64)
        if self.timeline is not None:
            stamps = np.array([stamp for run in runs for _, stamp in run.values], np.int64)
            reached = iter(self.reached(dest, origin, pos, stamps).tolist())
            return [
                run._replace(values=[StampedValue(value, next(reached)) for value, _ in run.values])
                for run in runs
            ]
        bounds = self.bounds(pos)
        if bounds is None:
            return runs
        each = zip(*(column.tolist() for column in bounds), strict=True)
        return [
            run._replace(values=[BoundedValue(value, *next(each)) for value in run.values])
            for run in runs
        ]

    def reached(self, dest: int, origin: int, pos: Positions, stamps: Positions) -> Positions:
        """Return the stream progress at each item that one origin sent along an edge, in µs.

        Args:
            dest: the number of the edge.
            origin: the origin.
            pos: the items' positions, int64, shape (items,).
            stamps: the items' stamps, int64 µs, shape (items,).
        """
        if self.timeline is None:
            raise TypeError("a step without stream progress has no stamps")
        if self._is_moment:
            return np.full(len(pos), self.timeline.before_us)
        return self.timeline.reached(dest, origin, pos, stamps)

    def bounds(self, pos: Positions) -> Bounds | None:
        """Return the bounds of the watermark at items; ``None`` if it has none between items."""
        if self.bound is None or not self._bounds_items:
            return None
        return Bounds(*self.bound.bounds(pos), sources_at(pos))

    def due_us(self, least_us: int) -> int:
        """Return the system time at which a key is due, from the least due time of the keys."""
        return least_us if self.timeline is None else self.timeline.due_us(least_us)


def step_time(
    plan: Plan,
    step: Step,
    edges: Sequence[Edge],
    packets: list[Packet],
    states: StepState,
    control: Control,
    holds: Holds | None = None,
) -> StepTime:
    """Return the time of a step in an epoch, and write the changed progress to the step's state.

    Args:
        plan: the compiled flow.
        step: a keyed step.
        edges: the edges that the step reads.
        packets: the packets of marks for the step.
        states: the step's state in the shard.
        control: the epoch's control.
        holds: the holds of steps at earlier levels.
    """
    name = step.step_id
    of = plan.capabilities[name]
    feeds = plan.feeds.get(name, ())
    moment = _moment(control, feeds) if of.follows_inputs else control.moment
    is_bounded, is_moment = plan.has_bound(name, control.many), plan.is_moment(name)
    is_measured = plan.measures_bound(name, control.many)
    if of.progress is None and not is_measured:
        return StepTime(moment, follows_inputs=of.follows_inputs, is_moment=is_moment)
    ordered = sorted(packets, key=lambda packet: (packet.origin, packet.seq))
    decoded = [(packet.origin, Marks.decode(packet.payload)) for packet in ordered]
    kept = StepProgress.decode(states.progress(), name)
    bound = None
    if is_measured:
        marks = [marks for _, marks in decoded if marks.last is not None]
        reads = plan.reads[name]
        # A step that has had no epoch yet holds at the beginning of time.
        results = {
            one: (holds or {}).get(one, NO_PROGRESS) for one in sorted(reads.results, key=str)
        }
        bound = Bound(
            *(kept.bound, marks, control, reads.plain, feeds, results), applies=is_bounded
        )
    timeline, after = None, StepProgress()
    if of.progress is not None:
        sides = {edge.dest: edge.side for edge in edges}
        sent = [
            Sent(origin, sides[marks.dest], marks)
            for origin, marks in decoded
            if marks.last is None
        ]
        applied = bound if is_bounded else None
        timeline = Timeline(of.progress, kept, sent, moment, applied, control.first)
        after = timeline.kept
    if bound is not None:
        after = replace(after, bound=bound.kept)
    if after != kept:
        states.keep_progress(after.encode())
    return StepTime(
        *(moment, timeline, bound),
        follows_inputs=of.follows_inputs,
        is_bounded=is_bounded,
        is_moment=is_moment,
    )


def _moment(control: Control, inputs: Sequence[str]) -> Moment:
    """Return the epoch's moment with the clock of a step's inputs."""
    clock = control.read_by(inputs)
    now_us = control.moment.running_us
    if clock.before_us >= now_us:
        return control.moment
    after = replace(control.moment, read_us=clock.after_us if clock.after_us < now_us else NEVER)
    return replace(after, start=replace(control.moment, read_us=clock.before_us))


def hold_us(bound_us: int, reach_us: int, of_keys_us: int) -> int:
    """Return the hold of a step.

    Args:
        bound_us: the bound of the step's watermarks, below which no value on time will lie.
        reach_us: the greatest time before a value at which a result that it begins may lie.
        of_keys_us: the least hold of the state of the step's keys.
    """
    if NO_PROGRESS < bound_us < NEVER:
        bound_us = max(NO_PROGRESS, bound_us - reach_us)
    return min(bound_us, of_keys_us)


def least_of(several: Iterable[Holds]) -> dict[StreamId, int]:
    """Return the least hold of each stream."""
    least: dict[StreamId, int] = {}
    for holds in several:
        for stream, us in holds.items():
            least[stream] = min(us, least.get(stream, NEVER))
    return least


def holds_packet(holds: Holds, shard: int, origin: int, seq: int) -> Packet:
    """Return the packet that carries holds to a shard."""
    rows = [[stream.step_id, stream.port, us] for stream, us in holds.items()]
    return Packet(HOLDS, shard, origin, seq, json.dumps(rows).encode())


def holds_in(packet: Packet) -> dict[StreamId, int]:
    """Return the holds in a packet made by `holds_packet`."""
    return {StreamId(step_id, port): us for step_id, port, us in json.loads(packet.payload)}


class KnownHolds:
    """The last holds that each task of the level before has sent to a shard."""

    def __init__(self) -> None:
        self._of_origin: dict[int, Holds] = {}

    def add(self, packet: Packet) -> None:
        """Take the holds in a packet."""
        self._of_origin[packet.origin] = holds_in(packet)

    def least(self) -> Holds:
        """Return the least hold of each stream."""
        return least_of(self._of_origin.values())


class HoldRelay:
    """The holds of a task's shards, on their way to all shards of the next level.

    Args:
        shards: the number of shards.
        origin: the number of the task.
    """

    def __init__(self, shards: int, origin: int) -> None:
        self._shards, self._origin = shards, origin
        self._of_slices: dict[int, dict[int, Holds]] = {}

    def forward(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """Yield the packets of a shard, except those of its holds, which the relay keeps."""
        for packet in packets:
            if packet.dest == HOLDS:
                of_shards = self._of_slices.setdefault(packet.seq >> SLICE_BITS, {})
                of_shards[packet.shard] = holds_in(packet)
            else:
                yield packet

    def finish(self) -> Iterator[Packet]:
        """Yield the packets of holds for all shards, slice by slice, after the last shard."""
        of_shards: dict[int, Holds] = {}
        before: Holds = {}
        for slice_number, changed in sorted(self._of_slices.items()):
            # A shard that a slice of a batch does not call holds as before.
            of_shards.update(changed)
            least = least_of(of_shards.values())
            if least != before:
                for shard in range(self._shards):
                    yield holds_packet(least, shard, self._origin, slice_number << SLICE_BITS)
            before = least
