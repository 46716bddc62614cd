"""The graph of a flow as it is compiled, for the status of a run."""

from __future__ import annotations

from dataclasses import dataclass

from flow.dataflow import Step
from flow.engine.plan.plan import Plan
from flow.keyed.step import KeyByKey, Stateful
from flow.operators.edges import Input, Output
from flow.operators.tables import LookupTable
from flow.reports.graph import operator_name


@dataclass(frozen=True)
class GraphStep:
    """A step of a compiled flow.

    Attributes:
        step_id: the step.
        operator: the name of the operator function.
        role: ``input``, ``output``, ``keyed`` or ``stateless``.
        level: the number of shuffles before the step, including its own.
        runs: ``over columns`` or ``key by key`` for a keyed step, else empty.
        reason: the reason for running key by key, else empty.
    """

    step_id: str
    operator: str
    role: str
    level: int
    runs: str = ""
    reason: str = ""


@dataclass(frozen=True)
class GraphEdge:
    """A stream between two steps.

    Attributes:
        up: the step that makes the stream.
        port: the stream's name at that step.
        down: the step that reads the stream.
        counter: the step and the name of the counter of the stream's items; ``None`` if no counter
            has them alone, as for one of two streams of `branch` that a merge reads.
    """

    up: str
    port: str
    down: str
    counter: tuple[str, str] | None


@dataclass(frozen=True)
class Graph:
    """The steps of a compiled flow in flow order, and the streams between them."""

    steps: tuple[GraphStep, ...]
    edges: tuple[GraphEdge, ...]


def graph_of(plan: Plan) -> Graph:
    """Return the graph of a compiled flow."""
    shuffled = {name: level for level, names in enumerate(plan.levels, 1) for name in names}
    levels: dict[str, int] = {}
    for step in plan.steps.values():
        below = max((levels[up.step_id] for up in step.ups), default=0)
        levels[step.step_id] = shuffled.get(step.step_id, below)
    steps = tuple(_graph_step(plan, step, levels[step.step_id]) for step in plan.steps.values())
    edges = tuple(
        GraphEdge(up.step_id, up.port, step.step_id, _counter(plan, step, number))
        for step in plan.steps.values()
        for number, up in enumerate(step.ups)
    )
    return Graph(steps, edges)


def _graph_step(plan: Plan, step: Step, level: int) -> GraphStep:
    name = operator_name(step.operator)
    match step.operator:
        case Input() | LookupTable():
            return GraphStep(step.step_id, name, "input", level)
        case Output():
            return GraphStep(step.step_id, name, "output", level)
        case Stateful():
            lowering = plan.lowering_of(step.step_id)
            if isinstance(lowering, KeyByKey):
                return GraphStep(
                    *(step.step_id, name, "keyed", level, "key by key", lowering.reason)
                )
            return GraphStep(step.step_id, name, "keyed", level, "over columns")
        case _:
            return GraphStep(step.step_id, name, "stateless", level)


def _counter(plan: Plan, step: Step, number: int) -> tuple[str, str] | None:
    """Return the counter of a stream that a step reads."""
    up = step.ups[number]
    if up.step_id in plan.tables:  # No items flow from a table.
        return None
    if sum(each.step_id not in plan.tables for each in step.ups) == 1:
        return step.step_id, "in"
    downs = plan.steps[up.step_id].downs
    if len(downs) > 1 and not isinstance(plan.steps[up.step_id].operator, Stateful):
        return None
    return up.step_id, "out" if up == downs[0] else up.port
