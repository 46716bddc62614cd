"""The plan: the compiled form of a flow, made by the passes of `flow.engine.plan.compiler`.

A keyed step needs all items of a key in one place, which costs a shuffle. The *level* of a step is
the number of shuffles up to and including its own; all steps of a level share one shuffle. The
items of one stream may leave several levels, if the stream merges streams of different levels: all
of them travel to the level of the step that reads the stream. This module does not use Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias, TypeVar
from urllib.parse import quote

from flow.dataflow import Operator, Step, StreamId
from flow.engine.tables.table_files import TableStore
from flow.errors import EngineError
from flow.instants import NEVER
from flow.keyed.step import Capabilities, Lowering, Stateful, TimeColumn
from flow.operators.edges import Input
from flow.operators.keyed_tables import LookupTable, Table

OperatorT = TypeVar("OperatorT", bound=Operator)


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
class Reads:
    """The origins of the items of a stream, or of all streams that a step reads.

    A step in event time that reads the results of another is *held* by it: its watermarks stay at
    or below the least timestamp that such a result may still have. Results lag behind the values
    that they are made of; a step that reads streams with different lags needs a wait of at least
    their spread.

    Attributes:
        results: the streams of steps in event time whose items arrive, without another step in
            event time on their way.
        plain: the inputs whose items arrive in this way.
        ignored: the streams of results that arrive at a step in event time that takes no holds.
        is_moment: True if a step on the way keeps items back, so that the order in which items of
            an epoch arrive means nothing.
        least_us, greatest_us: the least and the greatest lag of the results behind the values at
            the sources, in µs.
    """

    results: frozenset[StreamId] = frozenset()
    plain: frozenset[str] = frozenset()
    ignored: frozenset[StreamId] = frozenset()
    is_moment: bool = False
    least_us: int = NEVER
    greatest_us: int = 0

    def __or__(self, other: Reads) -> Reads:
        return Reads(
            self.results | other.results,
            self.plain | other.plain,
            self.ignored | other.ignored,
            self.is_moment or other.is_moment,
            min(self.least_us, other.least_us),
            max(self.greatest_us, other.greatest_us),
        )

    def lags_us(self, wait_us: int) -> tuple[int, int]:
        """Return the least and the greatest lag of all items; that of plain items is the wait."""
        if not self.plain:
            return self.least_us, self.greatest_us
        return min(0, self.least_us), max(self.greatest_us, wait_us)

    def wait_us(self, given_us: int) -> int:
        """Return the wait of a step that reads these streams: at least the spread of their lags."""
        if not self.results:
            return given_us
        least_us, greatest_us = self.lags_us(given_us)
        return max(given_us, greatest_us - least_us)


@dataclass(frozen=True)
class Plan:
    """Compiled form of a flow, which the engines run.

    Attributes:
        flow_id: the flow's name.
        plan_id: the random identity of this compilation of the flow.
        steps: the steps by id.
        inputs: the steps that read a source in tasks, in order of declaration.
        controls: the control inputs: the steps that read the changes of tables, which the process
            that plans epochs reads.
        tables: the tables, in order of declaration.
        outputs: the edges to sinks.
        edges: all edges, by number.
        hops: the next places of each stream's items.
        levels: the ids of the steps of each level; level 1 is the first element.
        state_names: the names of the state of steps, where they differ from the steps' ids.
        dropped: the names of state to drop.
        fields_read: the fields of records that the flow reads, for each input of which it does not
            read all fields.
        named: the fields that steps name in the records of a stream that they read, by the step and
            the index of the stream among those.
        feeds: the inputs whose items reach each step, in order of declaration.
        reads: the origins of the items that each step reads.
        holding: the numbers of the streams of each step that steps in event time read, without
            late values.
        waits: the wait in µs of each step that waits longer than its clock says, as its inputs lag
            behind the sources by different times.
        capabilities: the capabilities of each keyed step.
        lowered: the lowering of each keyed step.
        timed_by: the input and the column of timestamps of each step that may aggregate before the
            shuffle, if it can tell which records are on time; no input (empty) if the wait of the
            step's clock is endless.
        samples_late: True if keyed steps report a sample of their late values.
        checks_items: True if it is an error that a function changes an item that it was given.
        table_store: the tables, where the plan's tasks run; ``None`` without tables.
    """

    flow_id: str
    plan_id: str
    steps: dict[str, Step]
    inputs: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    outputs: tuple[Edge, ...] = ()
    edges: tuple[Edge, ...] = ()
    hops: Mapping[StreamId, tuple[Hop, ...]] = field(default_factory=dict)
    levels: tuple[tuple[str, ...], ...] = ()
    state_names: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    fields_read: Mapping[str, frozenset[str]] = field(default_factory=dict)
    named: Mapping[tuple[str, int], frozenset[str]] = field(default_factory=dict)
    feeds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reads: Mapping[str, Reads] = field(default_factory=dict)
    holding: Mapping[str, frozenset[int]] = field(default_factory=dict)
    waits: Mapping[str, int] = field(default_factory=dict)
    capabilities: Mapping[str, Capabilities] = field(default_factory=dict)
    lowered: Mapping[str, Lowering] = field(default_factory=dict)
    timed_by: Mapping[str, tuple[str, TimeColumn]] = field(default_factory=dict)
    samples_late: bool = False
    checks_items: bool = False
    table_store: TableStore | None = None

    @property
    def frames(self) -> tuple[str, ...]:
        """The inputs whose data frames Spark itself reads."""
        return tuple(name for name in self.inputs if _is_frame(self.steps[name]))

    @property
    def sources(self) -> tuple[str, ...]:
        """The steps that read a source: in tasks, then the control inputs."""
        return (*self.inputs, *self.controls)

    @property
    def lookups(self) -> tuple[str, ...]:
        """The tables whose sources are read again."""
        return tuple(
            name for name in self.tables if isinstance(self.steps[name].operator, LookupTable)
        )

    @property
    def timed(self) -> tuple[str, ...]:
        """The steps whose time is the clock of their inputs."""
        return tuple(name for name, of in self.capabilities.items() if of.follows_inputs)

    @property
    def compared_inputs(self) -> list[tuple[str, ...]]:
        """The inputs of each step that reads two or more of them in event time."""
        groups = [self.feeds.get(step_id, ()) for step_id in self.timed]
        return [group for group in groups if len(group) > 1]

    def table(self, step_id: str) -> Table:
        """Return the operator of a table.

        Raises:
            EngineError: when the step is not a table.
        """
        return self.operator(step_id, Table, "a table")

    def keyed(self, step_id: str) -> Stateful:
        """Return the operator of a keyed step.

        Raises:
            EngineError: when the step is not a keyed one.
        """
        return self.operator(step_id, Stateful, "a keyed step")

    def operator(self, step_id: str, kind: type[OperatorT], what: str) -> OperatorT:
        """Return the operator of a step, of the kind that `what` names in the error.

        Raises:
            EngineError: when the step has another operator.
        """
        operator = self.steps[step_id].operator if step_id in self.steps else None
        if not isinstance(operator, kind):
            raise EngineError(f"step {step_id!r} is not {what}")
        return operator

    def has_bound(self, step_id: str, many: Collection[str] | None = None) -> bool:
        """Return True if partitions that are behind, or other steps, may hold a step's watermarks.

        Args:
            step_id: the step.
            many: the inputs whose sources have several partitions; ``None`` if that is unknown,
                and then a step that reads plain items has a bound if several inputs feed it.
        """
        if not self._has_measure(step_id):
            return False
        if self.is_moment(step_id):
            return True
        feeds = self.feeds.get(step_id, ())
        return len(feeds) > 1 or any(name in (many or ()) for name in feeds)

    def measures_bound(self, step_id: str, many: Collection[str] | None = None) -> bool:
        """Return True if a step has a bound, or needs one for the hold of its results."""
        if self.has_bound(step_id, many):
            return True
        return step_id in self.holding and self._has_measure(step_id)

    def _has_measure(self, step_id: str) -> bool:
        return step_id in self.capabilities and self.capabilities[step_id].holds is not None

    def is_moment(self, step_id: str) -> bool:
        """Return True if all items of an epoch are one moment for a step in event time.

        The step reads results of another such step, or items that a step has kept back.
        """
        is_held = step_id in self.capabilities and self.capabilities[step_id].takes_holds
        return is_held and self.reads[step_id].is_moment

    def hold_rule(self, step_id: str) -> str:
        """Return the rule of the holds in a step's state; empty for a step without holds."""
        results, ports = self.capabilities[step_id].results, self.holding.get(step_id)
        return f"{results.rule} {sorted(ports)}" if results is not None and ports else ""

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

    def has_source_numbers(self, many: Collection[str] | None = None) -> bool:
        """Return True if positions carry the number of a source partition; see `has_bound`."""
        return any(self.measures_bound(step_id, many) for step_id in self.timed)

    def state_name(self, step_id: str) -> str:
        """Return the name of a step's state, or of an input's offset, in the checkpoint."""
        return self.state_names.get(step_id, step_id)

    def file_of(self, step_id: str) -> str:
        """Return the name of a step in the checkpoint, quoted for a file name."""
        return quote(self.state_name(step_id), safe="")

    def hops_of(self, stream: StreamId) -> tuple[Hop, ...]:
        """Return the next places of a stream's items."""
        return self.hops.get(stream, ())

    def edges_into(self, step_id: str) -> tuple[Edge, ...]:
        """Return the edges that a step reads, by side."""
        return tuple(edge for edge in self.edges if edge.step_id == step_id)

    def for_workers(self) -> Plan:
        """Return the plan without the steps that run in the process that plans epochs."""
        feeding = {name for name, feeds in self.feeds.items() if {*feeds} & {*self.controls}}
        here = feeding | {*self.tables}
        return replace(
            self,
            steps={name: step for name, step in self.steps.items() if name not in here},
            hops={at: hops for at, hops in self.hops.items() if at.step_id not in here},
        )

    def with_steps(self, steps: dict[str, Step]) -> Plan:
        """Return the plan with other steps of the same ids, such as steps that can be pickled."""
        hops = {
            stream: tuple(
                hop if isinstance(hop, Edge) else steps[hop.step_id] for hop in hops_of_stream
            )
            for stream, hops_of_stream in self.hops.items()
        }
        return replace(self, steps=steps, hops=hops)


def _is_frame(step: Step) -> bool:
    return isinstance(step.operator, Input) and step.operator.source.is_frame
