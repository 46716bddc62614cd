"""The compiler: a list of small passes, each of which adds a part to the plan of a flow."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from operator import or_

from flow.columns.predicate import ColumnPredicate
from flow.dataflow import Dataflow, Step, StreamId
from flow.engine.plan.plan import Edge, EdgeKind, Hop, Plan, Reads
from flow.errors import FlowBuildError, UnusedStepWarning
from flow.fields import field_path, paths_named
from flow.instants import NEVER
from flow.keyed.logic import LATE_PORT
from flow.keyed.step import (
    Capabilities,
    LogicBuilder,
    OverColumns,
    Stateful,
    TimeColumn,
    TimedResults,
)
from flow.operators.edges import Input, Output
from flow.operators.keyed_tables import Table, TableReader
from flow.operators.stateless import Bucket, Filter, Inspect, KeyOn, Raises, Redistribute
from flow.operators.typed_records import TryTyped, Typed


def compile_flow(flow: Dataflow) -> Plan:
    """Compile a flow by the passes, in order.

    Raises:
        FlowBuildError: when the flow has no input or no output, or a control input feeds more
            than tables.

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


def find_tables(plan: Plan) -> Plan:
    """Find the tables and their control inputs, which the process that plans epochs reads.

    Raises:
        FlowBuildError: when a control input feeds more than tables.
    """
    tables = tuple(name for name, step in plan.steps.items() if isinstance(step.operator, Table))
    if not tables:
        return plan
    above: set[str] = set()
    for name, step in reversed(plan.steps.items()):
        if name in tables or name in above:
            above.update(up.step_id for up in step.ups)
    controls = [name for name in plan.inputs if name in above]
    for name in controls:
        operator = plan.steps[name].operator
        if isinstance(operator, Input) and operator.source.is_frame:
            raise FlowBuildError(
                f"step {name!r} feeds a table, and Spark reads its data frame in tasks: make the "
                "table of a function, op.lookup_table(step_id, flow, lambda: frame, key=...)"
            )
    fed = {*controls}
    for name, step in plan.steps.items():
        brings = [up.step_id in fed for up in step.ups]
        if name in tables or not any(brings):
            continue
        fed.add(name)
        is_for_tasks = isinstance(step.operator, (Output, TableReader)) or _needs_shuffle(step)
        if is_for_tasks or not all(brings):
            raise FlowBuildError(
                f"step {name!r} reads items of input {_first_fed(plan, step, controls)!r}, which "
                "feeds a table: such an input is read as epochs are planned, not in tasks; give "
                f"step {name!r} an input of its own, with the same source"
            )
    inputs = tuple(name for name in plan.inputs if name not in above)
    return replace(plan, inputs=inputs, controls=tuple(controls), tables=tables)


def _first_fed(plan: Plan, step: Step, controls: list[str]) -> str:
    """Return the first control input whose items reach a step."""
    waiting, seen = [up.step_id for up in step.ups], set[str]()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        waiting += [up.step_id for up in plan.steps[name].ups]
    return next(name for name in controls if name in seen)


def leave_out_unused(plan: Plan) -> Plan:
    """Leave out optional steps from which no path leads to an end, and warn of other such steps."""
    used: set[str] = set()
    for name, step in reversed(plan.steps.items()):
        if _is_end(step) or name in used:
            used.add(name)
            used.update(up.step_id for up in step.ups)
    kept = {
        name: step
        for name, step in plan.steps.items()
        if name in used or not step.operator.is_optional
    }
    for name in kept:
        if name not in used:
            warnings.warn(
                f"step {name!r} of flow {plan.flow_id!r} is never used by an output: "
                "its items go nowhere",
                UnusedStepWarning,
                stacklevel=2,
            )
    return replace(plan, steps=kept)


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
    found = {name: _fields_read_of(plan, plan.steps[name].downs[0]) for name in plan.inputs}
    fields_read = {name: fields for name, fields in found.items() if fields is not None}
    return replace(plan, fields_read=fields_read)


def push_predicates(plan: Plan) -> Plan:
    """Tell the sources the expressions by which the flow filters their records first."""
    steps = dict(plan.steps)
    for name, step in plan.steps.items():
        wanted = _first_filter(plan, step.downs[0]) if name in plan.inputs else None
        if wanted is not None and isinstance(step.operator, Input):
            source = step.operator.source.keeping(wanted)
            steps[name] = replace(step, operator=replace(step.operator, source=source))
    return replace(plan, steps=steps)


def find_time_columns(plan: Plan) -> Plan:
    """Find the steps whose records a task may aggregate as they are those of a source, in order.

    The source is told the column of timestamps; of several steps, that of the first counts. A step
    whose wait is endless needs no timestamps of sources.
    """
    found = {name: _time_column(plan, name) for name in plan.lowered}
    known = {name: one for name, one in found.items() if one is not None}
    steps = dict(plan.steps)
    timed_by = {name: ("", one) for name, one in known.items() if one.wait_us >= NEVER}
    for name in plan.inputs:
        step = plan.steps[name]
        columns = {
            edge.step_id: known[edge.step_id]
            for edge in _edges_of_records(plan, step.downs[0])
            if plan.feeds[edge.step_id] == (name,) and len(plan.edges_into(edge.step_id)) == 1
            if edge.step_id in known and edge.step_id not in timed_by
        }
        first = next(iter(columns.values()), None)
        if first is not None and isinstance(step.operator, Input):
            source = step.operator.source.timed_by(first.name)
            steps[name] = replace(step, operator=replace(step.operator, source=source))
            of_source = {at: one for at, one in columns.items() if one.name == first.name}
            timed_by |= {at: (name, one) for at, one in of_source.items()}
    return replace(plan, steps=steps, timed_by=timed_by)


def find_fields_named(plan: Plan) -> Plan:
    """Find the fields that steps name in the records that they read."""
    named = {
        (name, side): paths_named(step.operator, side)
        for name, step in plan.steps.items()
        for side, up in enumerate(step.ups)
        if up.step_id not in plan.tables
    }
    return replace(plan, named={at: paths for at, paths in named.items() if paths})


def find_feeds(plan: Plan) -> Plan:
    """Find the inputs whose items reach each step."""
    feeds: dict[str, frozenset[str]] = {}
    for name, step in plan.steps.items():
        own = {name} if name in plan.sources else set()
        # A table holds no watermark and brings no items.
        ups = [up.step_id for up in step.ups if up.step_id not in plan.tables]
        feeds[name] = frozenset(own).union(*(feeds[up] for up in ups))
    ordered = {
        name: tuple(each for each in plan.sources if each in inputs)
        for name, inputs in feeds.items()
    }
    return replace(plan, feeds=ordered)


def find_reads(plan: Plan) -> Plan:
    """Find the results that each step in event time reads, and give it a wait that they need."""
    steps: dict[str, Step] = {}
    of_streams: dict[StreamId, Reads] = {}
    of_steps: dict[str, Reads] = {}
    waits: dict[str, int] = {}
    capabilities: dict[str, Capabilities] = {}
    for name, step in plan.steps.items():
        ups = [of_streams[up] for up in step.ups if up.step_id not in plan.tables]
        own = frozenset({name}) if isinstance(step.operator, Input) else frozenset[str]()
        reads = reduce(or_, ups, Reads(plain=own))
        if isinstance(step.operator, Stateful):
            of = step.operator.capabilities
            if of.follows_inputs and not of.takes_holds:
                reads = Reads(plain=frozenset(plan.feeds[name]), ignored=reads.results)
            step, of = _with_wait(step, step.operator, of, reads)
            waits |= {name: of.wait_us} if step is not plan.steps[name] else {}
            capabilities[name] = of
        steps[name], of_steps[name] = step, reads
        for port, stream in enumerate(step.downs):
            of_streams[stream] = _emitted(step, capabilities.get(name), reads, port, stream)
    found = replace(plan, steps=steps, reads=of_steps, waits=waits, capabilities=capabilities)
    holding: dict[str, frozenset[int]] = {}
    for name in found.timed:
        for stream in of_steps[name].results:
            ports = frozenset({steps[stream.step_id].downs.index(stream)})
            ports = frozenset() if stream.port == LATE_PORT else ports
            holding[stream.step_id] = ports | holding.get(stream.step_id, frozenset())
    return replace(found, holding=holding)


def _with_wait(
    step: Step, operator: Stateful, of: Capabilities, reads: Reads
) -> tuple[Step, Capabilities]:
    """Return a step whose wait is at least the spread of its inputs' lags, and its capabilities."""
    wait_us = reads.wait_us(of.wait_us) if of.follows_inputs and of.takes_holds else 0
    if wait_us <= of.wait_us or not isinstance(operator.builder, LogicBuilder):
        return step, of
    longer = replace(operator, builder=operator.builder.with_wait(wait_us))
    return replace(step, operator=longer), longer.capabilities


def _emitted(
    step: Step, of: Capabilities | None, reads: Reads, port: int, stream: StreamId
) -> Reads:
    """Return the origins of the items of one of a step's streams."""
    if of is None or not isinstance(step.operator, Stateful):
        return reads
    if of.results is not None:
        lags_us = _lags_us(reads, of.wait_us, of.results, stream.port == LATE_PORT)
        return Reads(frozenset({stream}), frozenset(), frozenset(), True, *lags_us)
    if of.follows_inputs or not step.operator.keeps_back(port):
        return reads
    return replace(reads, is_moment=True)


def _lags_us(reads: Reads, wait_us: int, results: TimedResults, are_late: bool) -> tuple[int, int]:
    """Return the least and the greatest lag of a step's results, or of its late values."""
    least_us, greatest_us = reads.lags_us(wait_us)
    greatest_us = max(greatest_us, wait_us)
    if are_late:
        return least_us, greatest_us
    least_us += results.stays_us + (0 if results.leave_early else wait_us)
    return least_us, greatest_us + results.reach_us


def _fields_read_of(plan: Plan, stream: StreamId) -> frozenset[str] | None:
    """Return the fields of a stream's records that the flow reads; ``None`` if unknown."""
    uses = [_fields_read_by(plan, hop) for hop in plan.hops_of(stream)]
    fields = [use for use in uses if use is not None]
    return frozenset[str]().union(*fields) if uses and len(fields) == len(uses) else None


def _fields_read_by(plan: Plan, hop: Hop) -> frozenset[str] | None:
    """Return the fields of an input's records that the next step reads; ``None`` if unknown."""
    if not isinstance(hop, Edge) and isinstance(hop.operator, (Typed, TryTyped)):
        # An error has its whole record.
        has_errors = any(map(plan.hops_of, hop.downs[1:]))
        return None if has_errors else hop.operator.records.fields_read
    filtered = _filter_of(hop)
    if filtered is not None:
        rest = _fields_read_of(plan, filtered[1])
        return None if rest is None else rest | {name for name, *_ in filtered[0].names}
    if isinstance(hop, Edge) or not isinstance(hop.operator, KeyOn):
        return None
    paths, edges = hop.operator.paths, _hops_past_buckets(plan, hop.downs[0])
    fields = [edge.fields for edge in edges if isinstance(edge, Edge) and edge.fields is not None]
    if not paths or not edges or len(fields) < len(edges):
        return None
    return frozenset[str]().union(*(field_path(path).record_fields for path in paths), *fields)


def _first_filter(plan: Plan, stream: StreamId) -> ColumnPredicate | None:
    """Return an expression that all items of a stream meet first; ``None`` if there is none."""
    hops = plan.hops_of(stream)
    filtered = _filter_of(hops[0]) if len(hops) == 1 else None
    if filtered is None:
        return None
    rest = _first_filter(plan, filtered[1])
    return ColumnPredicate(filtered[0].expression & rest.expression) if rest else filtered[0]


def _edges_of_records(plan: Plan, stream: StreamId) -> Iterator[Edge]:
    """Yield the edges that records of a stream reach unchanged."""
    for hop in plan.hops_of(stream):
        if isinstance(hop, Edge):
            yield hop
        elif isinstance(hop.operator, (Bucket, Filter, KeyOn)):
            yield from _edges_of_records(plan, hop.downs[0])


def _time_column(plan: Plan, step_id: str) -> TimeColumn | None:
    lowering = plan.lowered.get(step_id)
    found = lowering.preaggregation if isinstance(lowering, OverColumns) else None
    return None if found is None else found.time_column


def _filter_of(hop: Hop) -> tuple[ColumnPredicate, StreamId] | None:
    """Return the expression by which a step filters items, and its stream of results."""
    if isinstance(hop, Edge) or not isinstance(hop.operator, Filter) or hop.operator.on_value:
        return None
    predicate = hop.operator.predicate
    return (predicate, hop.downs[0]) if isinstance(predicate, ColumnPredicate) else None


def _hops_past_buckets(plan: Plan, stream: StreamId) -> list[Hop]:
    """Return the hops of a stream; those of a bucketed stream in the place of its bucket step."""
    hops: list[Hop] = []
    for hop in plan.hops_of(stream):
        if not isinstance(hop, Edge) and isinstance(hop.operator, Bucket):
            hops += plan.hops_of(hop.downs[0])
        else:
            hops.append(hop)
    return hops


PASSES: tuple[Callable[[Plan], Plan], ...] = (
    check_ends,
    leave_out_unused,
    find_tables,
    assign_levels,
    find_feeds,
    find_reads,
    lower_steps,
    draw_edges,
    route_streams,
    find_fields_read,
    push_predicates,
    find_time_columns,
    find_fields_named,
)


def _is_end(step: Step) -> bool:
    """Return True if the step does its work even when no step reads its stream."""
    return isinstance(step.operator, (Output, Raises, Inspect))


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
