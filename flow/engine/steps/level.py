"""One level of a plan in one shard: the keyed steps, and the stateless steps that follow them.

The engines differ in the transport of packets and the storage of state; this module is common to
all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from flow.columns.chunks import Chunk
from flow.dataflow import Step, StreamId
from flow.engine.epoch.context import Control, Stats, TaskContext
from flow.engine.epoch.failures import encode_failure
from flow.engine.epoch.work import TaskWork, WorkPhase
from flow.engine.packets.packets import (
    CONTROL,
    ERROR,
    HOLDS,
    PROGRESS,
    SLICE_BITS,
    STATS,
    Packet,
    sorted_chunks,
)
from flow.engine.plan.plan import Edge, Plan
from flow.engine.progress.bound import Holds, KnownHolds, holds_packet
from flow.engine.progress.meter import Marks, Partition
from flow.engine.state.key_states import KeyStates
from flow.engine.state.shard_table import ShardTable
from flow.engine.steps.keyed_step import Arrived, KeyedStep, counted_as
from flow.engine.steps.pipeline import Pipeline
from flow.errors import EngineError, FlowError
from flow.keyed.step import Stateful

LEVEL_BITS = 24
"""Bits below the level in an origin. Origins of a level are greater than those of stage 0 and of
earlier levels, so that items of equal position stay in the order in which they were made."""


StatesOf: TypeAlias = Callable[[Step], "KeyStates | ShardTable"]
"""Function that returns the state of a keyed step in the shard that runs."""


def run_level(
    plan: Plan,
    level: int,
    shards: int,
    shard: int,
    packets: Iterable[Packet],
    states_of: StatesOf,
    slice_number: int = 0,
    control: Control | None = None,
    known: KnownHolds | None = None,
) -> Iterator[Packet]:
    """Run a level over one shard's packets of an epoch, and yield the packets of its output.

    Args:
        plan: the compiled flow.
        level: the level, 1 or more.
        shards: the number of shards.
        shard: the shard to run.
        packets: all packets of the shard in this epoch, in any order.
        states_of: the shard's key states by step.
        slice_number: the number of the slice of a batch run; 0 in a stream.
        control: the epoch's control, if it is not among the packets.
        known: the holds of earlier slices, to which those of this slice are added.
    """
    known = KnownHolds() if known is None else known
    here: dict[str, Arrived] = defaultdict(Arrived)
    stats = Stats()
    passing: list[Packet] = []
    for packet in packets:
        if packet.dest == CONTROL:
            control = Control.decode(packet.payload)
            continue
        if packet.dest == STATS:
            stats.add(Stats.decode(packet.payload))
            continue
        if packet.dest == HOLDS:
            known.add(packet)
            continue
        edge = _edge_of(plan, packet)
        if edge is None or edge.level != level:
            passing.append(packet)
        else:
            here[edge.step_id].add(packet)
    yield from passing
    if control is None:
        if here:  # The items cannot be processed without a time, and losing them must be an error.
            error = EngineError(f"an epoch sent items to level {level} without its system time")
            yield Packet(ERROR, shard, shard, 0, encode_failure(error))
        return
    run = _LevelRun(plan, level, shards, shard, control, stats, slice_number, known.least())
    yield from run.packets(here, states_of)
    if level < len(plan.levels):
        yield Packet(CONTROL, shard, shard, 0, control.encode())


def _edge_of(plan: Plan, packet: Packet) -> Edge | None:
    """Return the edge of a packet of items or of progress, ``None`` for other packets."""
    if packet.dest >= 0:
        return plan.edges[packet.dest]
    return plan.edges[Marks.dest_in(packet.payload)] if packet.dest == PROGRESS else None


@dataclass
class _LevelRun:
    plan: Plan
    level: int
    shards: int
    shard: int
    control: Control
    stats: Stats
    slice_number: int
    holds: Holds

    @cached_property
    def context(self) -> TaskContext:
        return TaskContext(
            *(self.control.moment, self.stats),
            run_id=self.plan.plan_id,
            control=self.control,
            place=(self.level, self.shard, self.slice_number),
            table_store=self.plan.table_store,
            work=TaskWork(self.level),
        )

    @cached_property
    def pipeline(self) -> Pipeline:
        origin, partition = (self.level << LEVEL_BITS) | self.shard, Partition.of_level(self.level)
        return Pipeline(self.plan, self.shards, self.shard, origin, partition, self.context)

    def packets(self, here: dict[str, Arrived], states_of: StatesOf) -> Iterator[Packet]:
        try:
            for step_id in self.plan.levels[self.level - 1]:
                self._run_step(self.plan.steps[step_id], here.get(step_id, Arrived()), states_of)
                yield from self.pipeline.flush(self.slice_number)
            yield from self.pipeline.finish(self.slice_number)
            if self.holds and self.level < len(self.plan.levels):
                seq = self.slice_number << SLICE_BITS
                yield holds_packet(self.holds, self.shard, self.shard, seq)
        except FlowError as error:
            yield Packet(ERROR, self.shard, self.shard, 0, encode_failure(error))
        yield from self.pipeline.report()

    def _run_step(self, step: Step, arrived: Arrived, states_of: StatesOf) -> None:
        with self.context.work.timed(WorkPhase.LEVELS):
            sent = self._sent(step, arrived, states_of)
        for down, chunk in sent:
            self.context.count(step.step_id, counted_as(step, down), len(chunk))
            self.pipeline.push(down, chunk)

    def _sent(
        self, step: Step, arrived: Arrived, states_of: StatesOf
    ) -> list[tuple[StreamId, Chunk]]:
        """Return the chunks that a keyed step emits, or those that have arrived for another."""
        if isinstance(step.operator, Stateful):
            state = states_of(step)
            keyed = KeyedStep(
                self.plan, step, arrived, state, self.control, self.context, self.holds
            )
            with self.context.stats.timed(step.step_id):
                sent = keyed.run()
            self.holds = {**self.holds, **keyed.holds}
            return sent
        sent = [(step.downs[0], chunk) for chunk in sorted_chunks(arrived.items)]
        self.context.count(step.step_id, "in", sum(len(chunk) for _, chunk in sent))
        return sent
