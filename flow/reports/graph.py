"""The graph of a flow: its steps and streams, as a Mermaid flowchart, or as JSON.

Steps are grouped by level: the number of keyed shuffles before them. Thick arrows are shuffles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from flow.dataflow import Dataflow, Operator, Step
from flow.displays import display_as
from flow.durations import duration_text
from flow.engine.plan.compiler import assign_levels, find_feeds, find_reads
from flow.engine.plan.plan import Plan
from flow.keyed.step import KeyByKey, Stateful
from flow.operators.edges import Input, Output
from flow.operators.keyed_tables import LookupTable, Table


@dataclass(frozen=True)
class GraphStep:
    """A step of a flow.

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

    @property
    def lines(self) -> list[str]:
        """The lines that describe the step: its id, its operator, and its path if it has keys."""
        path = f"{self.runs}: {self.reason}" if self.reason else self.runs
        return [line for line in (self.step_id, self.operator, path) if line]


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
    """The steps of a flow in flow order, and the streams between them."""

    steps: tuple[GraphStep, ...]
    edges: tuple[GraphEdge, ...]

    @property
    def shuffled(self) -> frozenset[str]:
        """The steps that shuffle their items by key, so have a level above those that they read."""
        levels = {step.step_id: step.level for step in self.steps}
        below = dict.fromkeys(levels, 0)
        for edge in self.edges:
            below[edge.down] = max(below[edge.down], levels[edge.up])
        return frozenset(name for name, level in levels.items() if level > below[name])

    def levels(self) -> Iterator[tuple[str, list[GraphStep]]]:
        """Yield the title and the steps of each level that has steps."""
        for level in sorted({step.level for step in self.steps}):
            title = f"after shuffle {level}" if level else "before any shuffle"
            yield title, [step for step in self.steps if step.level == level]


def graph_of(plan: Plan) -> Graph:
    """Return the graph of a compiled flow."""
    level_of = {name: level for level, names in enumerate(plan.levels, 1) for name in names}
    levels: dict[str, int] = {}
    for step in plan.steps.values():
        below = max((levels[up.step_id] for up in step.ups), default=0)
        levels[step.step_id] = level_of.get(step.step_id, below)
    edges = tuple(
        GraphEdge(up.step_id, up.port, step.step_id, _counter(plan, step, number))
        for step in plan.steps.values()
        for number, up in enumerate(step.ups)
    )
    steps = plan.steps.values()
    return Graph(tuple(_graph_step(step, levels[step.step_id]) for step in steps), edges)


def _drawn_plan(flow: Dataflow) -> Plan:
    """Return a plan with levels, and the results that steps read, of a flow without an end too."""
    steps = {step.step_id: step for step in flow.steps}
    inputs = tuple(name for name, step in steps.items() if isinstance(step.operator, Input))
    tables = tuple(name for name, step in steps.items() if isinstance(step.operator, Table))
    plan = assign_levels(Plan(flow.flow_id, "", steps, inputs, tables=tables))
    return find_reads(find_feeds(plan))


def _graph_step(step: Step, level: int) -> GraphStep:
    operator, role, path = step.operator, "stateless", ("", "")
    if isinstance(operator, (Input, LookupTable)):
        role = "input"
    elif isinstance(operator, Output):
        role = "output"
    elif isinstance(operator, Stateful):
        role, path, lowering = "keyed", ("over columns", ""), operator.lower()
        if isinstance(lowering, KeyByKey):
            path = ("key by key", lowering.reason)
    return GraphStep(step.step_id, operator_name(operator), role, level, *path)


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


_NOT_PLAIN = re.compile(r"(?<![^\W_])[._-]|[._-](?![^\W_])|[^\w .-]")
"""Characters with a meaning in Mermaid, or in the Markdown of its labels."""


def to_mermaid(flow: Dataflow) -> str:
    """Draw a flow as a Mermaid flowchart.

    Inputs are rounded, outputs are cylinders, tables are slanted, and edges carry the port's name
    unless that is ``down``. The label of a keyed step has its lowering; a dotted arrow leads from a
    step in event time to the step that it holds. The flow need not be complete, so it may lack an
    output.

    >>> import flow.operators as op
    >>> from flow.testing import TestingSource
    >>> flow = Dataflow("example")
    >>> numbers = op.input("numbers", flow, TestingSource([1, 2]))
    >>> small = op.branch("small", numbers, lambda n: n < 2).trues
    >>> print(to_mermaid(op.map("name", small, str).flow))
    flowchart TD
        subgraph level0["before any shuffle"]
            s0(["numbers<br/>input"])
            s1["small<br/>branch"]
            s2["name<br/>map"]
        end
        s0 --> s1
        s1 -->|"trues"| s2
    """
    plan = _drawn_plan(flow)
    graph = graph_of(plan)
    names = {step.step_id: f"s{number}" for number, step in enumerate(graph.steps)}
    lines = ["flowchart TD"]
    for title, steps in graph.levels():
        lines.append(f'    subgraph level{steps[0].level}["{title}"]')
        lines += [f"        {names[step.step_id]}{_shape(step)}" for step in steps]
        lines.append("    end")
    for edge in graph.edges:
        arrow = "==>" if edge.down in graph.shuffled else "-->"
        port = "" if edge.port == "down" else f'|"{_label(edge.port)}"|'
        lines.append(f"    {names[edge.up]} {arrow}{port} {names[edge.down]}")
    for step_id, (holders, waits_us) in _held_steps(plan).items():
        wait = f", which waits {duration_text(waits_us)}" if waits_us else ""
        lines += [f'    {names[up]} -.->|"holds{wait}"| {names[step_id]}' for up in holders]
    return "\n".join(lines)


# JupyterLab, Notebook 7 and VS Code draw Mermaid in Markdown; others show its text.
display_as(Dataflow, lambda flow: {"text/markdown": f"```mermaid\n{to_mermaid(flow)}\n```"})


def _held_steps(plan: Plan) -> dict[str, tuple[list[str], int]]:
    """Return the steps that other steps in event time hold.

    Returns:
        Each held step with the steps that hold it, and the wait in µs that it needs by the lags of
        what it reads, 0 if that of its clock is long enough.
    """
    return {
        name: (
            sorted({stream.step_id for stream in plan.reads[name].results}),
            plan.waits.get(name, 0),
        )
        for name in plan.timed
        if plan.reads[name].results
    }


def to_json(flow: Dataflow) -> str:
    """Return a flow's graph as JSON: the steps in flow order, each with its upstream ports.

    >>> import flow.operators as op
    >>> from flow.testing import TestingSource
    >>> flow = Dataflow("example")
    >>> _ = op.input("numbers", flow, TestingSource([1, 2]))
    >>> json.loads(to_json(flow))["steps"]
    [{'step_id': 'numbers', 'operator': 'input', 'ups': [], 'level': 0}]
    """
    plan = _drawn_plan(flow)
    held = _held_steps(plan)
    steps = []
    for step in graph_of(plan).steps:
        ups = [{"step_id": up.step_id, "port": up.port} for up in plan.steps[step.step_id].ups]
        shown: dict[str, object] = {
            "step_id": step.step_id,
            "operator": step.operator,
            "ups": ups,
            "level": step.level,
        }
        shown |= {name: text for name in ("runs", "reason") if (text := getattr(step, name))}
        if step.step_id in held:
            shown["held_by"], shown["waits_us"] = held[step.step_id]
        steps.append(shown)
    return json.dumps({"flow_id": flow.flow_id, "steps": steps}, indent=2, ensure_ascii=False)


def operator_name(operator: Operator) -> str:
    """Return the name of the operator function that adds such a step.

    >>> from flow.operators.stateless import KeyOn, Map
    >>> operator_name(KeyOn("origin")), operator_name(Map(str, on_value=True))
    ('key_on', 'map_value')
    """
    if isinstance(operator, Stateful):
        return operator.kind
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(operator).__name__).lower()
    return f"{name}_value" if getattr(operator, "on_value", False) else name


_SHAPES = {"input": "([{}])", "output": "[({})]", "table": "[/{}/]", "lookup_table": "[/{}/]"}
"""The shape of a step in Mermaid, by its operator."""


def _shape(step: GraphStep) -> str:
    label = f'"{"<br/>".join(map(_label, step.lines))}"'
    return _SHAPES.get(step.operator, "[{}]").format(label)


def _label(text: str) -> str:
    """Return text for a Mermaid label: special characters as numbers, lines as ``<br/>``."""
    lines = text.splitlines() or [text]
    return "<br/>".join(_NOT_PLAIN.sub(lambda found: f"#{ord(found[0])};", line) for line in lines)
