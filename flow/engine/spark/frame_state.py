"""Checks of the data frames that Spark reads: that none is stateful, and that none needs a table.

Spark numbers stateful operators by position only. A stateful data frame would shift the numbers of
the flow's levels, so a later run could not restore their state, and the end of input could not
drain the frame's own state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from flow.connectors.dataframe import DataFrameSource
from flow.engine.plan.plan import Plan
from flow.engine.steps.reading import source_of
from flow.errors import FlowBuildError
from flow.operators.tables import TableReader

_STATEFUL_STEP = "op.stateful_map or op.stateful"
_DISTINCT = ("distinct or dropDuplicates", "op.stateful_flat_map, whose state is what it has seen")
_STATEFUL = {
    "Aggregate": ("an aggregation", "flow_windowing.aggregate_window or op.stateful_map"),
    "Distinct": _DISTINCT,
    "Deduplicate": _DISTINCT,
    "DeduplicateWithinWatermark": ("dropDuplicatesWithinWatermark", _DISTINCT[1]),
    "Join": ("a join of two streams", "flow_windowing.join_interval, join_window or op.join"),
    "GlobalLimit": ("limit", "op.stateful_flat_map, whose state is a count"),
    "FlatMapGroupsWithState": ("mapGroupsWithState", _STATEFUL_STEP),
    "FlatMapGroupsInPandasWithState": ("applyInPandasWithState", _STATEFUL_STEP),
    "TransformWithState": ("transformWithState", _STATEFUL_STEP),
    "TransformWithStateInPySpark": ("transformWithState", _STATEFUL_STEP),
}
"""Spark's stateful logical operators by class: the user's name and the replacement in a flow.

These are the operators that Spark's `UnsupportedOperationChecker` treats as stateful, and two more:
a Distinct becomes an aggregation, and a limit counts."""


def check_frames_with_tables(plan: Plan) -> None:
    """Check that no step looks up a table for items of a streaming data frame before a shuffle.

    The tasks that read data frames do not know the epoch, nor the versions of tables.

    Raises:
        FlowBuildError: when a step does.
    """
    frames = {*plan.frames}
    if not plan.tables or not frames:
        return
    before_shuffle = {*frames}
    for name, step in plan.steps.items():
        is_shuffled = any(name in names for names in plan.levels)
        if not is_shuffled and any(up.step_id in before_shuffle for up in step.ups):
            before_shuffle.add(name)
            if isinstance(step.operator, TableReader):
                raise FlowBuildError(
                    f"step {name!r} reads a table for items of a data frame that Spark streams, "
                    "in tasks that do not know the epoch: put op.redistribute, or a keyed step, "
                    "between the input and this step"
                )


def refuse_stateful_frames(plan: Plan) -> None:
    """Check that no streaming data frame of a flow is stateful.

    Raises:
        FlowBuildError: when a frame is stateful; the error names the step and a replacement.
    """
    for step_id in plan.inputs:
        source = source_of(plan.steps[step_id])
        if not isinstance(source, DataFrameSource) or source.frame is None:
            continue
        for operator in _stateful(source.frame):
            what, instead = _STATEFUL[operator]
            raise FlowBuildError(
                f"step {step_id!r}: its streaming data frame keeps state of its own, for {what} "
                f"(Spark's {operator}), which a flow can neither go on from nor end. Do that in "
                f"the flow, with {instead}; or let a query of Spark's own write it to a table or "
                "a topic, and read that"
            )


def _stateful(frame: DataFrame) -> Iterator[str]:
    """Yield the classes of a data frame's stateful operators, outermost first."""
    jvm_frame: Any = frame._jdf
    for node in _streaming(jvm_frame.queryExecution().analyzed()):
        operator = str(node.getClass().getSimpleName())
        if operator in _STATEFUL and (operator != "Join" or len(_streams_into(node)) > 1):
            yield operator


def _streaming(root: Any) -> Iterator[Any]:
    """Yield the streaming operators of a plan; static operators have no state."""
    pending = [root] if root.isStreaming() else []
    while pending:
        node = pending.pop()
        yield node
        pending += reversed(_streams_into(node))


def _streams_into(node: Any) -> list[Any]:
    """Return the streaming children of a node of Spark's plan."""
    children = node.children()
    nodes = (children.apply(index) for index in range(children.size()))
    return [child for child in nodes if child.isStreaming()]
