"""One level of a plan in one shard: the steps that run there, and the stateless steps after them.

The engines differ in who brings the packets and who keeps the state; what happens between is this.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from flow.columns.chunks import Chunk
from flow.dataflow import Step, StreamId
from flow.engine.epoch.context import Control, Stats, TaskContext
from flow.engine.epoch.failures import encode_failure
from flow.engine.packets.packets import CONTROL, ERROR, PROGRESS, STATS, Packet, sorted_chunks
from flow.engine.plan.plan import Edge, Plan
from flow.engine.progress.meter import Marks, Partition
from flow.engine.progress.step_time import StepTime, step_time
from flow.engine.state.key_states import KeyStates
from flow.engine.state.shard_table import ShardTable
from flow.engine.steps.gathering import gather_rows
from flow.engine.steps.keyed import KeyedRun, cause_of, failed_at, gather, raised
from flow.engine.steps.pipeline import Pipeline
from flow.errors import RAISED, EngineError, FlowError, step_error
from flow.keyed.due import DueLimit
from flow.keyed.logic import Counted, FailedCall
from flow.keyed.shard_logic import KeyFailure, ShardEpoch
from flow.keyed.step import Stateful

LEVEL_BITS = 24
"""A level's origins stand above those of the tasks of stage 0, and of the levels before it, so that
what has the same position comes in the order in which it was made."""


@dataclass
class Arrived:
    """What has arrived for a step: its items, and how far their streams have come."""

    items: list[Packet] = field(default_factory=list)
    marks: list[Packet] = field(default_factory=list)

    def add(self, packet: Packet) -> None:
        """Add a packet."""
        (self.marks if packet.dest == PROGRESS else self.items).append(packet)


StatesOf: TypeAlias = Callable[[Step], "KeyStates | ShardTable"]
"""Gives the state of a keyed step in the shard at hand."""


def run_level(
    plan: Plan,
    level: int,
    shards: int,
    shard: int,
    packets: Iterable[Packet],
    states_of: StatesOf,
    slice_number: int = 0,
    control: Control | None = None,
) -> Iterator[Packet]:
    """Run a level over one shard's packets of an epoch; what it makes leaves as packets.

    Args:
        plan: the compiled flow.
        level: the level, 1 or more.
        shards: how many shards there are.
        shard: the shard at hand.
        packets: all packets of the shard in this epoch, in any order.
        states_of: the shard's key states by step.
        slice_number: which slice of a batch run this is; 0 when streaming.
        control: the epoch's control, when it is not among the packets.
    """
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
        edge = _edge_of(plan, packet)
        if edge is None or edge.level != level:
            passing.append(packet)
        else:
            here[edge.step_id].add(packet)
    yield from passing
    if control is None:
        if here:  # without the time nothing can be done with them, and they must not be lost
            error = EngineError(f"an epoch brought items to level {level}, but not its system time")
            yield Packet(ERROR, shard, shard, 0, encode_failure(error))
        return
    run = _LevelRun(plan, level, shards, shard, control, stats)
    yield from run.packets(here, states_of, slice_number)
    if level < len(plan.levels):
        yield Packet(CONTROL, shard, shard, 0, control.encode())


def _edge_of(plan: Plan, packet: Packet) -> Edge | None:
    """The edge that a packet travels along, or speaks of."""
    if packet.dest >= 0:
        return plan.edges[packet.dest]
    return plan.edges[Marks.dest_in(packet.payload)] if packet.dest == PROGRESS else None


class _LevelRun:
    def __init__(
        self, plan: Plan, level: int, shards: int, shard: int, control: Control, stats: Stats
    ) -> None:
        self._plan = plan
        self._level = level
        self._shard = shard
        self._control = control
        self._context = TaskContext(control.moment, stats, run_id=plan.plan_id, control=control)
        origin = (level << LEVEL_BITS) | shard
        partition = Partition.of_level(level)
        self._pipeline = Pipeline(plan, shards, shard, origin, partition, self._context)

    def packets(
        self, here: dict[str, Arrived], states_of: StatesOf, slice_number: int
    ) -> Iterator[Packet]:
        try:
            for step_id in self._plan.levels[self._level - 1]:
                self._run_step(self._plan.steps[step_id], here.get(step_id, Arrived()), states_of)
                yield from self._pipeline.flush(slice_number)
            yield from self._pipeline.finish(slice_number)
        except FlowError as error:
            yield Packet(ERROR, self._shard, self._shard, 0, encode_failure(error))
        yield from self._pipeline.report()

    def _run_step(self, step: Step, arrived: Arrived, states_of: StatesOf) -> None:
        if isinstance(step.operator, Stateful):
            states = states_of(step)
            if isinstance(states, ShardTable):
                sent = self._run_shard(step, arrived, states)
            else:
                made = self._run_keyed(step, arrived, states)
                sent = list(zip(step.downs, made, strict=True))
        else:
            sent = [(step.downs[0], chunk) for chunk in sorted_chunks(arrived.items)]
            self._context.count(step.step_id, "in", sum(len(chunk) for _, chunk in sent))
        for down, chunk in sent:
            self._context.count(step.step_id, _counted_as(step, down), len(chunk))
            self._pipeline.push(down, chunk)

    def _run_keyed(self, step: Step, arrived: Arrived, states: KeyStates) -> list[Chunk]:
        edges = self._plan.edges_into(step.step_id)
        time = step_time(self._plan, step, edges, arrived.marks, states, self._control)
        runs = gather(edges, arrived.items, time) if arrived.items else {}
        self._context.count(step.step_id, "in", sum(len(run.values) for run in runs.values()))
        keyed = KeyedRun(step, states, time, self._context)
        emitted = keyed.run(runs, self._control.end_of_input)
        self._note_time(step, time, states.flush())
        self._measure_state(step, states)
        made, counted = emitted.by_port(len(step.downs))
        self._count(step, counted)
        return made

    def _run_shard(
        self, step: Step, arrived: Arrived, table: ShardTable
    ) -> list[tuple[StreamId, Chunk]]:
        """Run a step over all keys at once; returns what goes down which stream."""
        edges = self._plan.edges_into(step.step_id)
        time = step_time(self._plan, step, edges, arrived.marks, table, self._control)
        rows = gather_rows(edges, arrived.items, time) if arrived.items else None
        self._context.count(step.step_id, "in", 0 if rows is None else len(rows.pos))
        downs = step.downs
        wanted = frozenset(at for at, down in enumerate(downs) if self._plan.hops_of(down))
        try:
            made = table.run(rows, *self._asked_of_shard(wanted, time))
            due_us = table.flush()
        except KeyFailure as failure:
            raise failed_at(step.step_id, failure) from cause_of(failure.cause)
        except RAISED as error:  # such as a state that pickle refuses, or a result that raises
            if isinstance(error, FlowError) and not isinstance(error, FailedCall):
                raise
            problem = raised("working out or keeping its results", error)
            raise step_error(step.step_id, problem, has_item=False) from cause_of(error)
        self._note_time(step, time, due_us)
        self._measure_state(step, table)
        self._count(step, made.counted)
        for down, unwanted in zip(downs, made.unwanted, strict=False):
            self._context.count(step.step_id, _counted_as(step, down), unwanted)
        pairs = zip(downs, made.chunks, strict=False)
        return [(down, chunk) for down, chunks in pairs for chunk in chunks]

    def _asked_of_shard(
        self, wanted: frozenset[int], time: StepTime
    ) -> tuple[ShardEpoch, DueLimit]:
        """What the epoch asks of a step's shard, and up to when its keys are due."""
        end_of_input = self._control.end_of_input
        return ShardEpoch(time.moment, time.moment.before, end_of_input, wanted), time.due_after

    def _measure_state(self, step: Step, states: KeyStates | ShardTable) -> None:
        """Report how many keys a step keeps in the shard, and how many bytes."""
        gauges = self._context.stats.gauges
        gauges[step.step_id, "keys"] += states.count()
        gauges[step.step_id, "state_bytes"] += states.size()

    def _note_time(self, step: Step, time: StepTime, least_us: int) -> None:
        """Report when a step wants to be called again, and how far its partitions have come."""
        stats = self._context.stats
        stats.due(step.step_id, time.due_us(least_us))
        if time.hold is not None:
            for partition, reached_us in time.hold.progress.items():
                stats.reach(partition, reached_us)

    def _count(self, step: Step, counted: list[Counted]) -> None:
        for one in counted:
            if one.late_by_us:
                self._note_late(step, one)
                continue
            self._context.count(step.step_id, one.what, one.amount)
            if one.note:
                self._context.stats.note(f"step {step.step_id!r} {one.note}")

    def _note_late(self, step: Step, late: Counted) -> None:
        """Report how late values were, and which source partition they came from."""
        stats, sources = self._context.stats, self._control.sources
        stats.lateness[step.step_id, late.late_by_us] += late.amount
        if sources is not None and late.source >= 0:
            stats.late_from[step.step_id, sources[late.source]] += late.amount


def _counted_as(step: Step, down: StreamId) -> str:
    """What the items of one of a step's streams are counted as."""
    return "out" if down == step.downs[0] else down.port
