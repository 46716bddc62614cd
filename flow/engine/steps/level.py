"""One level of a plan in one shard: the keyed steps, and the stateless steps that follow them.

The engines differ in the transport of packets and the storage of state; this module is common to
all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from flow.columns.arrays import Ints, round_up
from flow.columns.chunks import Chunk
from flow.dataflow import Step, StreamId
from flow.engine.epoch.context import Control, TaskContext
from flow.engine.epoch.failures import encode_failure
from flow.engine.epoch.statistics import (
    BUFFERED_VALUES,
    OPEN_WINDOWS,
    Stats,
    StepBound,
    TaskWork,
    WorkPhase,
    late_sample,
)
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
from flow.engine.progress.bound import Holds
from flow.engine.progress.meter import Marks, Partition
from flow.engine.progress.step_time import KnownHolds, StepTime, hold_us, holds_packet, step_time
from flow.engine.state.key_states import KeyStates, LiveStates, SegmentedStates
from flow.engine.state.step_state import LiveTable, SegmentedTable, ShardTable
from flow.engine.state.store import StateStore
from flow.engine.steps.gathering import gather_rows, gather_runs
from flow.engine.steps.key_by_key import KeyedRun, cause_of, failed_at, raised
from flow.engine.steps.pipeline import Pipeline, unchanged
from flow.errors import RAISED, EngineError, FlowError, step_error
from flow.instants import NEVER, NO_PROGRESS
from flow.keyed.logic import LATE_PORT, Counted, FailedCall
from flow.keyed.shard_logic import PARTIAL_COUNT, KeyFailure, ShardEpoch, ShardOutput, ShardRows
from flow.keyed.step import OverColumns, Stateful

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
    here: dict[str, StepPackets] = defaultdict(StepPackets)
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
        origin, partition = (self.level << LEVEL_BITS) | self.shard, Partition("", self.level)
        return Pipeline(self.plan, self.shards, self.shard, origin, partition, self.context)

    def packets(self, here: dict[str, StepPackets], states_of: StatesOf) -> Iterator[Packet]:
        try:
            for step_id in self.plan.levels[self.level - 1]:
                self._run_step(self.plan.steps[step_id], here[step_id], states_of)
                yield from self.pipeline.flush(self.slice_number)
            yield from self.pipeline.finish(self.slice_number)
            if self.holds and self.level < len(self.plan.levels):
                seq = self.slice_number << SLICE_BITS
                yield holds_packet(self.holds, self.shard, self.shard, seq)
        except FlowError as error:
            yield Packet(ERROR, self.shard, self.shard, 0, encode_failure(error))
        yield from self.pipeline.report()

    def _run_step(self, step: Step, arrived: StepPackets, states_of: StatesOf) -> None:
        with self.context.work.timed(WorkPhase.STEPS):
            sent = self._sent(step, arrived, states_of)
        for down, chunk in sent:
            self.context.count(step.step_id, counted_as(step, down), len(chunk))
            self.pipeline.push(down, chunk)

    def _sent(
        self, step: Step, arrived: StepPackets, states_of: StatesOf
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


@dataclass
class StepPackets:
    """Packets for a step in one epoch.

    Attributes:
        items: packets of values.
        marks: packets of stream progress.
    """

    items: list[Packet] = field(default_factory=list)
    marks: list[Packet] = field(default_factory=list)

    def add(self, packet: Packet) -> None:
        """Add a packet."""
        (self.marks if packet.dest == PROGRESS else self.items).append(packet)


@dataclass
class KeyedStep:
    """A keyed step in one shard and one epoch.

    Attributes:
        plan: the compiled flow.
        step: the step.
        arrived: the packets for the step.
        state: the step's state in the shard.
        control: the epoch's parameters.
        context: the context that takes counts.
        known: the holds of steps at earlier levels, at the end of the epoch.
        holds: the hold of each stream of the step that a step in event time reads, after `run`.
    """

    plan: Plan
    step: Step
    arrived: StepPackets
    state: KeyStates | ShardTable
    control: Control
    context: TaskContext
    known: Holds = field(default_factory=dict)
    holds: Holds = field(default_factory=dict)

    def run(self) -> list[tuple[StreamId, Chunk]]:
        """Run the step, write its state, and return the chunks of each of its streams."""
        step_id, edges = self.step.step_id, self.plan.edges_into(self.step.step_id)
        marks, control = self.arrived.marks, self.control
        time = step_time(self.plan, self.step, edges, marks, self.state, control, self.known)
        if isinstance(self.state, ShardTable):
            output, due_us = self._over_columns(self.state, time)
        else:
            output, due_us = self._key_by_key(self.state, time)
        self.holds = self._holds(time)
        self._report(time, due_us)
        self._count(output.counted)
        self._count_lags(output.watermarks_us)
        if self.plan.samples_late:
            self.context.stats.late_items += late_sample(self.step, output.chunks)
        downs = self.step.downs
        for down, unread in zip(downs, output.unread, strict=False):
            self.context.count(step_id, counted_as(self.step, down), unread)
        pairs = zip(downs, output.chunks, strict=False)
        return [(down, chunk) for down, chunks in pairs for chunk in chunks]

    def _key_by_key(self, states: KeyStates, time: StepTime) -> tuple[ShardOutput, int]:
        step_id, items = self.step.step_id, self.arrived.items
        runs = gather_runs(self.plan.edges_into(step_id), items, time) if items else {}
        self.context.count(step_id, "in", sum(len(run.values) for run in runs.values()))
        keyed = KeyedRun(step_id, self.plan.keyed(step_id).builder, states, time)
        values = (value for run in runs.values() for value in run.values)
        with unchanged(self.plan, step_id, values):
            emitted = keyed.run(runs, self.control.end_of_input)
        return emitted.by_port(len(self.step.downs)), states.flush()

    def _over_columns(self, table: ShardTable, time: StepTime) -> tuple[ShardOutput, int]:
        step_id, lowering = self.step.step_id, self.plan.lowered[self.step.step_id]
        takes_sided = isinstance(lowering, OverColumns) and lowering.takes_sided_records
        rows = gather_rows(
            *(self.plan.edges_into(step_id), self.arrived.items, time),
            takes_sided_records=takes_sided,
        )
        self.context.count(step_id, "in", 0 if rows is None else _value_count(rows))
        downs = self.step.downs
        wanted = frozenset(at for at, down in enumerate(downs) if self._is_wanted(down))
        moment = time.moment
        holding = self.plan.holding.get(step_id, frozenset())
        epoch = ShardEpoch(moment, self.control.end_of_input, wanted, holding)
        values = rows.values if rows is not None and isinstance(rows.values, list) else ()
        try:
            with unchanged(self.plan, step_id, values):
                return table.run(rows, epoch, time.due_after), table.flush()
        except KeyFailure as failure:
            raise failed_at(step_id, failure) from cause_of(failure.cause)
        except RAISED as error:
            # The error is one of the step as a whole: state that cannot be pickled, an aggregate.
            if isinstance(error, FlowError) and not isinstance(error, FailedCall):
                raise
            problem = raised("working out or keeping its results", error)
            raise step_error(step_id, problem, has_item=False) from cause_of(error)

    def _holds(self, time: StepTime) -> Holds:
        """Return the holds of the step's streams that steps in event time read.

        No value on time lies below the bound of the step's watermarks, so late values have it as
        their hold.
        """
        step_id, results = self.step.step_id, self.plan.capabilities[self.step.step_id].results
        ports = self.plan.holding.get(step_id)
        if ports is None or results is None:
            return {}
        if time.bound is not None:
            bound_us = time.bound.after_us
        else:  # The clock's wait is endless, so a value on time may have any timestamp.
            feeds = self.plan.feeds[step_id]
            is_behind = any(name in feeds for name, _ in self.control.behind)
            bound_us = NO_PROGRESS if is_behind else NEVER
        least_us = hold_us(bound_us, results.reach_us, self.state.hold_us())
        downs = self.step.downs
        holds = {downs[port]: least_us for port in sorted(ports)}
        return holds | {down: bound_us for down in downs if down.port == LATE_PORT}

    def _is_wanted(self, down: StreamId) -> bool:
        """Return True if the items of a stream are read or sampled, and not only counted."""
        is_sampled = self.plan.samples_late and down.port == LATE_PORT
        return is_sampled or bool(self.plan.hops_of(down))

    def _report(self, time: StepTime, least_us: int) -> None:
        """Report the state's size, the step's due time, and the progress of its partitions."""
        step_id, stats = self.step.step_id, self.context.stats
        stats.due(step_id, time.due_us(least_us))
        if time.bound is not None:
            for partition, reached_us in time.bound.progress.items():
                stats.reach(partition, reached_us)
            if time.moment.bound_us < NEVER and time.bound.set_by is not None:
                by = time.bound.set_by
                name = (by.step_id, -1) if isinstance(by, StreamId) else by
                stats.bounds[step_id] = StepBound(time.bound.after_us, *name)
        stats.gauges[step_id, "keys"] += self.state.header.keys
        stats.gauges[step_id, "state_bytes"] += self.state.header.weight
        if self.plan.capabilities[step_id].counter is not None:
            counts = self.state.header.total
            stats.gauges[step_id, OPEN_WINDOWS] += counts.windows
            stats.gauges[step_id, BUFFERED_VALUES] += counts.values

    def _count(self, counted: list[Counted]) -> None:
        """Add counts to the statistics, with their notes."""
        step_id = self.step.step_id
        for count in counted:
            if count.late_by_us:
                self._count_late(count)
                continue
            self.context.count(step_id, count.what, count.amount)
            if count.note:
                self.context.stats.note(f"step {step_id!r} {count.note}")

    def _count_late(self, late: Counted) -> None:
        """Count late values by their lateness, and by their source partition."""
        step_id, stats, sources = self.step.step_id, self.context.stats, self.control.sources
        stats.lateness[step_id, late.late_by_us] += late.amount
        if sources is not None and late.source >= 0:
            stats.late_from[step_id, sources[late.source]] += late.amount

    def _count_lags(self, watermarks_us: Ints) -> None:
        """Count the lag of watermarks behind system time; 0 for a watermark that is ahead."""
        known = (watermarks_us > NO_PROGRESS) & (watermarks_us < NEVER)
        lag_us = np.maximum(self.control.moment.now_us - watermarks_us[known], 0)
        rounded, counts = np.unique(round_up(lag_us), return_counts=True)
        for lag, count in zip(rounded.tolist(), counts.tolist(), strict=True):
            self.context.stats.lags[self.step.step_id, lag] += count


def _value_count(rows: ShardRows) -> int:
    """Return the number of values in rows, with those that partial rows stand for."""
    counts = [batch[PARTIAL_COUNT].to_numpy() for batch in rows.partials]
    return len(rows.pos) + sum(int(count.sum()) - len(count) for count in counts)


def counted_as(step: Step, down: StreamId) -> str:
    """Return the name of the counter of the items of one of a step's streams."""
    return "out" if down == step.downs[0] else down.port


def states_in(store: StateStore, plan: Plan, step_id: str) -> KeyStates | ShardTable:
    """Return the state of a keyed step in a store."""
    lowering, of = plan.lowered[step_id], plan.capabilities[step_id]
    if isinstance(lowering, OverColumns):
        is_counted, rule = of.counter is not None, plan.hold_rule(step_id)
        return SegmentedTable(store, step_id, lowering.shard_logic, of.settings, is_counted, rule)
    return key_states_in(store, plan, step_id)


def key_states_in(store: StateStore, plan: Plan, step_id: str) -> SegmentedStates:
    """Return the state of a keyed step in a store, key by key."""
    builder, settings = plan.keyed(step_id).builder, plan.capabilities[step_id].settings
    # The keys of a step that runs over columns are shown here, and have no logic that tells holds.
    is_shown = isinstance(plan.lowered[step_id], OverColumns)
    holding = frozenset[int]() if is_shown else plan.holding.get(step_id, frozenset())
    return SegmentedStates(store, step_id, builder, settings, plan.hold_rule(step_id), holding)


def live_states(plan: Plan, step_id: str) -> KeyStates | ShardTable:
    """Return the state of a keyed step in memory, for a batch run."""
    lowering = plan.lowered[step_id]
    if isinstance(lowering, OverColumns):
        return LiveTable(lowering.shard_logic)
    return LiveStates(plan.holding.get(step_id, frozenset()))
