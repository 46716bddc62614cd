"""The graph of a flow as a Mermaid flowchart or as JSON.

Steps are grouped by level: the number of keyed shuffles before them. Thick arrows are shuffles.
"""

from __future__ import annotations

import json
import re

from flow.dataflow import Dataflow, Operator, Step
from flow.durations import duration_text
from flow.engine.plan.compiler import assign_levels, find_feeds, find_reads
from flow.engine.plan.plan import Plan
from flow.keyed.step import KeyByKey, Lowering, Stateful
from flow.operators.edges import Input, Output
from flow.operators.keyed_tables import Table

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
        subgraph level0["level 0"]
            s0(["numbers<br/>input"])
            s1["small<br/>branch"]
            s2["name<br/>map"]
        end
        s0 --> s1
        s1 -->|"trues"| s2
    """
    names = {step.step_id: f"s{number}" for number, step in enumerate(flow.steps)}
    levels = levels_of(flow)
    lines = ["flowchart TD"]
    for level in sorted(set(levels.values())):
        title = "level 0" if level == 0 else f"level {level}, after shuffle {level}"
        lines.append(f'    subgraph level{level}["{title}"]')
        steps = [step for step in flow.steps if levels[step.step_id] == level]
        lines += [f"        {names[step.step_id]}{_shape(step)}" for step in steps]
        lines.append("    end")
    thick = shuffled(flow)
    for step in flow.steps:
        arrow = "==>" if step.step_id in thick else "-->"
        for up in step.ups:
            port = "" if up.port == "down" else f'|"{_label(up.port)}"|'
            lines.append(f"    {names[up.step_id]} {arrow}{port} {names[step.step_id]}")
    for step_id, (holders, waits_us) in held_steps(flow).items():
        wait = f", which waits {duration_text(waits_us)}" if waits_us else ""
        lines += [f'    {names[up]} -.->|"holds{wait}"| {names[step_id]}' for up in holders]
    return "\n".join(lines)


def held_steps(flow: Dataflow) -> dict[str, tuple[list[str], int]]:
    """Return the steps that other steps in event time hold.

    Returns:
        Each held step with the steps that hold it, and the wait in µs that it needs by the lags of
        what it reads, 0 if that of its clock is long enough.
    """
    steps = {step.step_id: step for step in flow.steps}
    inputs = tuple(name for name, step in steps.items() if isinstance(step.operator, Input))
    tables = tuple(name for name, step in steps.items() if isinstance(step.operator, Table))
    plan = find_reads(find_feeds(Plan(flow.flow_id, "", steps, inputs, tables=tables)))
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
    levels, held = levels_of(flow), held_steps(flow)
    steps = [
        {
            "step_id": step.step_id,
            "operator": operator_name(step.operator),
            "ups": [{"step_id": up.step_id, "port": up.port} for up in step.ups],
            "level": levels[step.step_id],
            **_lowering_as_json(step),
            **_holds_as_json(held.get(step.step_id)),
        }
        for step in flow.steps
    ]
    return json.dumps({"flow_id": flow.flow_id, "steps": steps}, indent=2, ensure_ascii=False)


def _holds_as_json(held: tuple[list[str], int] | None) -> dict[str, object]:
    return {} if held is None else {"held_by": held[0], "waits_us": held[1]}


def lowering_text(operator: Stateful) -> str:
    """Return the path on which a keyed step runs, over columns or key by key, and the reason.

    >>> lowering_text(Stateful(lambda snapshot: None, "stateful"))
    'key by key: stateful calls Python for each key'
    """
    runs, reason = path_of(operator.lower())
    return f"{runs}: {reason}" if reason else runs


def path_of(lowering: Lowering) -> tuple[str, str]:
    """Return the path on which a keyed step runs, and the reason for key by key, else no text."""
    if isinstance(lowering, KeyByKey):
        return "key by key", lowering.reason
    return "over columns", ""


def _lowering_as_json(step: Step) -> dict[str, str]:
    if not isinstance(step.operator, Stateful):
        return {}
    runs, reason = path_of(step.operator.lower())
    return {"runs": runs, "reason": reason} if reason else {"runs": runs}


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


def levels_of(flow: Dataflow) -> dict[str, int]:
    """Return each step's level: the number of shuffles before it, including its own shuffle."""
    return levels_in(_with_levels(flow))


def levels_in(plan: Plan) -> dict[str, int]:
    """Return each step's level, as `levels_of` does, from a plan with levels."""
    level_of = _shuffled_in(plan)
    levels: dict[str, int] = {}
    for step in plan.steps.values():
        below = max((levels[up.step_id] for up in step.ups), default=0)
        levels[step.step_id] = level_of.get(step.step_id, below)
    return levels


def shuffled(flow: Dataflow) -> dict[str, int]:
    """Return the level, from 1, of each step that shuffles its items by key."""
    return _shuffled_in(_with_levels(flow))


def _with_levels(flow: Dataflow) -> Plan:
    return assign_levels(Plan(flow.flow_id, "", {step.step_id: step for step in flow.steps}))


def _shuffled_in(plan: Plan) -> dict[str, int]:
    return {name: level for level, names in enumerate(plan.levels, 1) for name in names}


def details_of(step: Step) -> list[str]:
    """Return the lines that describe a step: its id, its operator, and its path if it has keys."""
    lines = [step.step_id, operator_name(step.operator)]
    return [*lines, lowering_text(step.operator)] if isinstance(step.operator, Stateful) else lines


def _shape(step: Step) -> str:
    label = f'"{"<br/>".join(map(_label, details_of(step)))}"'
    match step.operator:
        case Table():
            return f"[/{label}/]"
        case Input():
            return f"([{label}])"
        case Output():
            return f"[({label})]"
        case _:
            return f"[{label}]"


def _label(text: str) -> str:
    """Return text for a Mermaid label: special characters as numbers, lines as ``<br/>``."""
    lines = text.splitlines() or [text]
    return "<br/>".join(_NOT_PLAIN.sub(lambda found: f"#{ord(found[0])};", line) for line in lines)
