"""The plan: the compiled form of a flow, made by a list of small passes over the graph.

A keyed step needs all items of a key in one place, which costs a shuffle. The *level* of a step is
the number of shuffles up to and including its own; all steps of a level share one shuffle. The
items of one stream may leave several levels, if the stream merges streams of different levels: all
of them travel to the level of the step that reads the stream. This module does not use Spark.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from flow.dataflow import Dataflow, Step, StreamId
from flow.errors import EngineError, FlowBuildError, UnusedStepWarning
from flow.fields import field_path
from flow.keyed.step import Lowering, OverColumns, Stateful, runs_key_by_key
from flow.operators.edges import Input, Output
from flow.operators.stateless import Inspect, KeyOn, Redistribute
from flow.operators.trying import Raises


class EdgeKind(Enum):
    """Distribution of the items of an edge."""

    KEYED = "keyed"
    SPREAD = "spread"
    OUTPUT = "output"


@dataclass(frozen=True)
class Edge:
    """The link between a stream and a step of another task: the address of a packet.

    Attributes:
        dest: the edge's number in the plan.
        stream: the stream whose items travel.
        step_id: the step that reads the items.
        side: the index of the stream among the step's upstreams.
        level: the level at which the items are read; for outputs the number after the last level.
        kind: the distribution of the items over shards.
        fields: the fields of records that the step needs; ``None`` for all.
    """

    dest: int
    stream: StreamId
    step_id: str
    side: int
    level: int
    kind: EdgeKind
    fields: frozenset[str] | None = None


Hop: TypeAlias = "Step | Edge"
"""Next place of a stream's items: a step of the same pipeline, or an edge."""


@dataclass(frozen=True)
class Plan:
    """Compiled form of a flow, which the engines run.

    Attributes:
        flow_id: the flow's name.
        plan_id: the random identity of this compilation of the flow.
        steps: the steps by id.
        inputs: the steps that read a source, in order of declaration.
        outputs: the edges to sinks.
        edges: all edges, by number.
        hops: the next places of each stream's items.
        levels: the ids of the steps of each level; level 1 is the first element.
        kept_as: the names of the state of steps, where they differ from the steps' ids.
        dropped: the names of state to drop.
        fields_read: the fields of records that the flow reads, for each input of which it does not
            read all fields.
        feeds: the inputs whose items reach each step, in order of declaration.
        lowered: the lowering of each keyed step.
    """

    flow_id: str
    plan_id: str
    steps: dict[str, Step]
    inputs: tuple[str, ...] = ()
    outputs: tuple[Edge, ...] = ()
    edges: tuple[Edge, ...] = ()
    hops: dict[StreamId, tuple[Hop, ...]] | None = None
    levels: tuple[tuple[str, ...], ...] = ()
    kept_as: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    fields_read: Mapping[str, frozenset[str]] = field(default_factory=dict)
    feeds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lowered: Mapping[str, Lowering] = field(default_factory=dict)

    @property
    def frames(self) -> tuple[str, ...]:
        """The inputs whose data frames Spark itself reads."""
        return tuple(name for name in self.inputs if _is_frame(self.steps[name]))

    @property
    def timed(self) -> tuple[str, ...]:
        """The steps whose time is the clock of their inputs."""
        return tuple(name for name, step in self.steps.items() if _follows_inputs(step))

    def keyed(self, step_id: str) -> Stateful:
        """Return the operator of a keyed step.

        Raises:
            EngineError: when the step is not a keyed one.
        """
        operator = self.steps[step_id].operator
        if not isinstance(operator, Stateful):
            raise EngineError(f"step {step_id!r} is not a keyed step")
        return operator

    def lowering_of(self, step_id: str) -> Lowering:
        """Return the lowering of a keyed step: over columns, or key by key."""
        return self.keyed(step_id).lower() if runs_key_by_key() else self.lowered[step_id]

    def is_held(self, step_id: str, many: Collection[str] | None = None) -> bool:
        """Return True if partitions that are behind hold a step's watermarks.

        Args:
            step_id: the step.
            many: the inputs whose sources have several partitions; ``None`` if that is unknown,
                and then only a step with several inputs is held.
        """
        operator = self.steps[step_id].operator
        if not isinstance(operator, Stateful) or operator.holds is None:
            return False
        feeds = self.feeds.get(step_id, ())
        return len(feeds) > 1 or any(name in (many or ()) for name in feeds)

    def sources_of(self, read: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        """Return the source partitions of an epoch in the order of their numbers.

        The partitions of data frames are first: tasks that read them do not know the epoch's
        partitions, and their numbers are the same in every epoch.

        Args:
            read: the input and number of each partition that the epoch reads.
        """
        order = {name: number for number, name in enumerate(self.inputs)}
        frames = {(name, 0) for name in self.frames}
        others = sorted(
            (partition for partition in {*read} - frames if partition[0] in order),
            key=lambda partition: (order[partition[0]], partition[1]),
        )
        return (*((name, 0) for name in self.frames), *others)

    def tells_sources(self, many: Collection[str] | None = None) -> bool:
        """Return True if positions carry the number of the source partition, see `is_held`."""
        return any(self.is_held(step_id, many) for step_id in self.timed)

    def kept_name(self, step_id: str) -> str:
        """Return the name of a step's state, or of an input's offset, in the checkpoint."""
        return self.kept_as.get(step_id, step_id)

    def hops_of(self, stream: StreamId) -> tuple[Hop, ...]:
        """Return the next places of a stream's items."""
        return (self.hops or {}).get(stream, ())

    def edges_into(self, step_id: str) -> tuple[Edge, ...]:
        """Return the edges that a step reads, by side."""
        return tuple(edge for edge in self.edges if edge.step_id == step_id)

    def with_steps(self, steps: dict[str, Step]) -> Plan:
        """Return the plan with other steps of the same ids, such as steps that can be pickled."""
        hops = {
            stream: tuple(
                hop if isinstance(hop, Edge) else steps[hop.step_id] for hop in hops_of_stream
            )
            for stream, hops_of_stream in (self.hops or {}).items()
        }
        return replace(self, steps=steps, hops=hops)


def compile_flow(flow: Dataflow) -> Plan:
    """Compile a flow by the passes, in order.

    Raises:
        FlowBuildError: when the flow has no input or no output.

    Warns:
        UnusedStepWarning: for each step whose items reach no output, `op.inspect` or `op.raises`.
    """
    plan = Plan(flow.flow_id, uuid.uuid4().hex, {step.step_id: step for step in flow.steps})
    for step_pass in PASSES:
        plan = step_pass(plan)
    return plan


def check_ends(plan: Plan) -> Plan:
    """Find the inputs, and raise an error for a flow without an input or an end."""
    inputs = tuple(name for name, step in plan.steps.items() if isinstance(step.operator, Input))
    if not inputs:
        raise FlowBuildError(
            f"flow {plan.flow_id!r} has no input: start with op.input(step_id, flow, source)"
        )
    if not any(_is_end(step) for step in plan.steps.values()):
        raise FlowBuildError(
            f"flow {plan.flow_id!r} has no output: end with op.output(step_id, stream, sink), "
            "or with op.inspect(step_id, stream) to look at items"
        )
    return replace(plan, inputs=inputs)


def warn_of_unused(plan: Plan) -> Plan:
    """Warn of each step from which no path leads to an end."""
    used: set[str] = set()
    for name, step in reversed(plan.steps.items()):
        if _is_end(step) or name in used:
            used.add(name)
            used.update(up.step_id for up in step.ups)
    for name in plan.steps:
        if name not in used:
            warnings.warn(
                f"step {name!r} of flow {plan.flow_id!r} is never used by an output: "
                "its items go nowhere",
                UnusedStepWarning,
                stacklevel=2,
            )
    return plan


def assign_levels(plan: Plan) -> Plan:
    """Give each step that needs a shuffle the level after the highest level of its upstreams."""
    heights: dict[str, int] = {}
    levels: dict[int, list[str]] = {}
    for name, step in plan.steps.items():
        below = max((heights[up.step_id] for up in step.ups), default=0)
        heights[name] = below + 1 if _needs_shuffle(step) else below
        if _needs_shuffle(step):
            levels.setdefault(below + 1, []).append(name)
    return replace(plan, levels=tuple(tuple(levels[level]) for level in sorted(levels)))


def lower_steps(plan: Plan) -> Plan:
    """Choose for each keyed step whether it runs over columns or key by key."""
    lowered = {
        name: step.operator.lower()
        for name, step in plan.steps.items()
        if isinstance(step.operator, Stateful)
    }
    return replace(plan, lowered=lowered)


def draw_edges(plan: Plan) -> Plan:
    """Make an edge for each stream that a step reads after a shuffle, or that an output reads."""
    level_of = {name: n for n, names in enumerate(plan.levels, 1) for name in names}
    read = {up for step in plan.steps.values() for up in step.ups}
    edges: list[Edge] = []
    for name, step in plan.steps.items():
        kind = _edge_kind(step)
        if kind is not None:
            level = level_of.get(name, len(plan.levels) + 1)
            fields = _fields_needed(plan, step, read)
            for side, up in enumerate(step.ups):
                edges.append(Edge(len(edges), up, name, side, level, kind, fields))
    outputs = tuple(edge for edge in edges if edge.kind is EdgeKind.OUTPUT)
    return replace(plan, edges=tuple(edges), outputs=outputs)


def route_streams(plan: Plan) -> Plan:
    """Find the hops of each stream, in the order of declaration of the steps that read it."""
    hops: dict[StreamId, list[Hop]] = {}
    for name, step in plan.steps.items():
        into = plan.edges_into(name)
        for side, up in enumerate(step.ups):
            hops.setdefault(up, []).append(into[side] if into else step)
    return replace(plan, hops={stream: tuple(its_hops) for stream, its_hops in hops.items()})


def find_fields_read(plan: Plan) -> Plan:
    """Find the inputs of whose records the flow reads only some fields.

    All records of such an input are keyed at once, by a field, and read by steps over columns.
    """
    fields_read: dict[str, frozenset[str]] = {}
    for name in plan.inputs:
        readers = plan.hops_of(plan.steps[name].downs[0])
        uses = [_fields_read_by(plan, hop) for hop in readers]
        fields = [use for use in uses if use is not None]
        if uses and len(fields) == len(uses):
            fields_read[name] = frozenset().union(*fields)
    return replace(plan, fields_read=fields_read)


def find_feeds(plan: Plan) -> Plan:
    """Find the inputs whose items reach each step."""
    feeds: dict[str, frozenset[str]] = {}
    for name, step in plan.steps.items():
        own = {name} if name in plan.inputs else set()
        feeds[name] = frozenset(own).union(*(feeds[up.step_id] for up in step.ups))
    ordered = {
        name: tuple(each for each in plan.inputs if each in inputs)
        for name, inputs in feeds.items()
    }
    return replace(plan, feeds=ordered)


def _fields_read_by(plan: Plan, hop: Hop) -> frozenset[str] | None:
    """Return the fields of an input's records that the next step reads; ``None`` if unknown."""
    if isinstance(hop, Edge) or not isinstance(hop.operator, KeyOn):
        return None
    key, edges = hop.operator.key, plan.hops_of(hop.downs[0])
    fields = [edge.fields for edge in edges if isinstance(edge, Edge) and edge.fields is not None]
    if not isinstance(key, str) or not edges or len(fields) < len(edges):
        return None
    return field_path(key).record_fields.union(*fields)


PASSES: tuple[Callable[[Plan], Plan], ...] = (
    check_ends,
    warn_of_unused,
    assign_levels,
    lower_steps,
    draw_edges,
    route_streams,
    find_fields_read,
    find_feeds,
)


def _is_end(step: Step) -> bool:
    """Return True if the step does its work even when no step reads its stream."""
    return isinstance(step.operator, (Output, Raises, Inspect))


def _is_frame(step: Step) -> bool:
    return isinstance(step.operator, Input) and step.operator.source.is_frame


def _follows_inputs(step: Step) -> bool:
    return isinstance(step.operator, Stateful) and step.operator.follows_inputs


def _needs_shuffle(step: Step) -> bool:
    return isinstance(step.operator, (Stateful, Redistribute))


def _fields_needed(plan: Plan, step: Step, read: set[StreamId]) -> frozenset[str] | None:
    """Return the fields of records that a step needs, ``None`` for all."""
    lowering = plan.lowered.get(step.step_id)
    if not isinstance(lowering, OverColumns):
        return None
    wanted = frozenset(at for at, down in enumerate(step.downs) if down in read)
    return lowering.fields_needed(wanted)


def _edge_kind(step: Step) -> EdgeKind | None:
    match step.operator:
        case Stateful():
            return EdgeKind.KEYED
        case Redistribute():
            return EdgeKind.SPREAD
        case Output():
            return EdgeKind.OUTPUT
        case _:
            return None
