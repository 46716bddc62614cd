"""The in-process engine: runs every shard of every level in this process, without Spark.

State is in dicts. Packets, levels and the format of state are those of the engines on Spark, so a
flow has the same results on all engines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from flow.columns.chunks import Chunk, Positions, as_items
from flow.connectors.source import Split
from flow.dataflow import Dataflow, Step
from flow.engine.calls.resources import close_resources
from flow.engine.epoch.context import Control
from flow.engine.epoch.statistics import Stats
from flow.engine.feed.run_tables import Tables, lookup_changes
from flow.engine.packets.packets import HOLDS, Packet, sorted_chunks
from flow.engine.packets.shards import DEFAULT_SHARDS, hash_keys, shard_of
from flow.engine.plan.compiler import compile_flow, lower_steps
from flow.engine.progress.bound import Holds
from flow.engine.progress.step_time import HoldRelay, KnownHolds, step_time
from flow.engine.state.key_states import KeyStates
from flow.engine.state.step_state import ShardTable
from flow.engine.state.store import MemoryStore
from flow.engine.steps.kernels import changes_in
from flow.engine.steps.level import key_states_in, run_level, states_in
from flow.engine.steps.outputs import settled
from flow.engine.steps.pipeline import Pipeline
from flow.engine.steps.reading import Reading, arriving, pipeline_of, push_changes
from flow.engine.tables.contents import Change
from flow.engine.tables.table_files import MemoryTables, TableVersion
from flow.errors import FlowBuildError
from flow.garbage import collecting_seldom
from flow.instants import NEVER, Moment
from flow.keyed.step import runs_key_by_key
from flow.process import print_text


@dataclass(frozen=True)
class Part:
    """Items of one source partition of an input, in order: a list of objects, or a record batch."""

    items: list[Any] | pa.RecordBatch
    partition: int = 0


@dataclass
class EpochResult:
    """Result of an epoch.

    Attributes:
        outputs: the items that reached each output, by step, in order of position.
        stats: the statistics of the epoch.
    """

    outputs: dict[str, list[Any]] = field(default_factory=dict)
    stats: Stats = field(default_factory=Stats)


class LocalEngine:
    """An engine that runs a flow epoch by epoch in this process."""

    def __init__(self, flow: Dataflow, shards: int = DEFAULT_SHARDS) -> None:
        self._tables = MemoryTables()
        self.plan = replace(compile_flow(flow), table_store=self._tables, checks_items=True)
        self._lowered = self.plan.lowered
        self._shards = shards
        self._log = Tables.of(self.plan)
        self._versions: dict[str, TableVersion] = {}
        self._sent: dict[str, list[Chunk]] = {}
        self._stores: dict[tuple[int, int], MemoryStore] = {}
        self._holds: Holds = {}

    def epoch(self, parts: Mapping[str, Iterable[Part]], control: Control) -> EpochResult:
        """Run one epoch.

        Args:
            parts: the items that each input reads in the epoch.
            control: the epoch's parameters.

        Raises:
            StepError: when a step fails; the state is then that before the epoch.
        """
        # A test may change a builder between epochs, as a changed flow does between runs.
        capabilities = {name: self.plan.keyed(name).capabilities for name in self.plan.lowered}
        lowered = lower_steps(self.plan).lowered if runs_key_by_key() else self._lowered
        self.plan = replace(self.plan, capabilities=capabilities, lowered=lowered)
        with collecting_seldom():
            log, control = self._with_tables(parts, control)
            packets = list(self._read(parts, control))
            stores = {address: store.copy() for address, store in self._stores.items()}
            known = KnownHolds()
            for level in range(1, len(self.plan.levels) + 1):
                packets = self._level(level, packets, control, stores)
                for packet in packets:
                    if packet.dest == HOLDS:
                        known.add(packet)
            result = self._finish(packets)
        self._stores, self._log, self._versions = stores, log, dict(control.tables)
        self._holds = known.least()
        log.report(result.stats)
        return result

    def close(self) -> None:
        """Close the resources of the flow's calls; a later epoch makes them again."""
        close_resources(self.plan.plan_id)

    def _with_tables(
        self, parts: Mapping[str, Iterable[Part]], control: Control
    ) -> tuple[Tables, Control]:
        """Return the tables after the changes of an epoch, and the control with their versions."""
        log = self._log.copy()
        read = [
            push_changes(self.plan, name, _chunks_of(name, parts), control)
            for name in self.plan.controls
            if name in parts
        ]
        sent = {name: _chunks_of(name, parts) for name in self.plan.lookups if name in parts}
        self._sent.update(sent)
        log.look_up_again(sent)
        control = replace(control, tables=log.after(self._versions, read, control, self._look_up))
        self._tables.known = log.contents
        return log, control

    def _look_up(self, step: Step, control: Control) -> Iterable[Change]:
        """Return the rows that a test sent to a lookup table, or else those of its source."""
        name = step.step_id
        if name not in self._sent:
            return lookup_changes(step, control)
        operator = self.plan.table(name)
        return [
            change for chunk in self._sent[name] for change in changes_in(operator, name, chunk)
        ]

    def snapshot(self, step_id: str, key: str, control: Control) -> tuple[Any, Moment]:
        """Return the snapshot of a key's logic, ``None`` without state, and its step's moment.

        Args:
            step_id: a keyed step.
            key: the key.
            control: the control of the last epoch.

        Raises:
            EngineError: when the step is not a keyed step.
        """
        self.plan.keyed(step_id)
        (level,) = (n for n, names in enumerate(self.plan.levels, 1) if step_id in names)
        shard = int(shard_of(hash_keys(pa.array([key])), self._shards)[0])
        store = self._stores.get((level, shard), MemoryStore()).copy()
        states = key_states_in(store, self.plan, step_id)
        step, edges = self.plan.steps[step_id], self.plan.edges_into(step_id)
        moment = step_time(self.plan, step, edges, [], states, control, self._holds).moment
        return states.snapshot(key), moment

    def hold_us(self, step_id: str) -> int:
        """Return the least hold of a step's streams after the last epoch; `NEVER` for none.

        Raises:
            EngineError: when the step is not a keyed step.
        """
        self.plan.keyed(step_id)
        return min(
            (us for down, us in self._holds.items() if down.step_id == step_id), default=NEVER
        )

    def _read(self, parts: Mapping[str, Iterable[Part]], control: Control) -> Iterable[Packet]:
        origin = 0
        numbers = control.source_numbers
        for step_id in self.plan.inputs:
            rows: Counter[int] = Counter()
            for part in parts.get(step_id, ()):
                source = numbers.get((step_id, part.partition))
                reading = Reading(step_id, Split(None, part.partition), origin, source=source)
                pos = reading.positions(rows[part.partition], len(part.items))
                rows[part.partition] += len(part.items)
                pipeline = pipeline_of(self.plan, self._shards, reading, control)
                yield from _read_part(pipeline, self.plan.steps[step_id], part, pos)
                origin += 1
        readable = (*self.plan.sources, *self.plan.lookups)
        for step_id in parts:
            if step_id not in readable:
                known = ", ".join(map(repr, readable))
                raise FlowBuildError(f"the flow has no input {step_id!r}; its inputs are: {known}")

    def _level(
        self,
        level: int,
        packets: list[Packet],
        control: Control,
        stores: dict[tuple[int, int], MemoryStore],
    ) -> list[Packet]:
        by_shard: dict[int, list[Packet]] = {shard: [] for shard in range(self._shards)}
        for packet in packets:
            by_shard[packet.shard].append(packet)
        made: list[Packet] = []
        relay = HoldRelay(self._shards, level)
        for shard, received in by_shard.items():
            store = stores.setdefault((level, shard), MemoryStore())

            def states_of(step: Step, store: MemoryStore = store) -> KeyStates | ShardTable:
                return states_in(store, self.plan, step.step_id)

            made += relay.forward(
                run_level(
                    self.plan, level, self._shards, shard, received, states_of, control=control
                )
            )
        return [*made, *relay.finish()]

    def _finish(self, packets: list[Packet]) -> EpochResult:
        result = EpochResult()
        arrived: dict[int, list[Packet]] = {}
        for packet in settled(packets, result.stats):
            arrived.setdefault(packet.dest, []).append(packet)
        for edge in self.plan.outputs:
            chunks = sorted_chunks(arrived.get(edge.dest, []))
            items = [item for chunk in chunks for item in as_items(chunk).items]
            result.outputs.setdefault(edge.step_id, []).extend(items)
        return result


def _chunks_of(step_id: str, parts: Mapping[str, Iterable[Part]]) -> list[Chunk]:
    """Return the items of an input or a lookup table as chunks, one for each source partition."""
    return [
        arriving(
            part.items, Reading(step_id, Split(None), 0).positions(0, len(part.items)), step_id
        )
        for part in parts.get(step_id, ())
    ]


def _read_part(pipeline: Pipeline, step: Step, part: Part, pos: Positions) -> Iterable[Packet]:
    context = pipeline.context
    context.count(step.step_id, "out", len(part.items))
    try:
        pipeline.push(step.downs[0], arriving(part.items, pos, step.step_id))
    finally:
        if context.printed:
            print_text("\n".join(context.printed))
        context.printed.clear()
    return [*pipeline.finish(), *pipeline.report()]
