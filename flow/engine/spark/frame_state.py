"""State that a streaming data frame keeps by itself, for which a flow has no place.

Spark would count it among the state of the flow's own levels, by place alone, so that the next run
finds a checkpoint of another form than it knows; and the end of the input does not reach it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from flow.connectors.dataframe import DataFrameSource
from flow.engine.feed.sources import source_of
from flow.engine.plan.plan import Plan
from flow.errors import FlowBuildError

_OF_ONES_OWN = "op.stateful_map or op.stateful"
_DISTINCT = ("distinct or dropDuplicates", "op.stateful_flat_map, whose state is what it has seen")
_KEEPING = {
    "Aggregate": ("an aggregation", "flow_windowing.aggregate_window or op.stateful_map"),
    "Distinct": _DISTINCT,
    "Deduplicate": _DISTINCT,
    "DeduplicateWithinWatermark": ("dropDuplicatesWithinWatermark", _DISTINCT[1]),
    "Join": ("a join of two streams", "flow_windowing.join_window or op.join"),
    "GlobalLimit": ("limit", "op.stateful_flat_map, whose state is a count"),
    "FlatMapGroupsWithState": ("mapGroupsWithState", _OF_ONES_OWN),
    "FlatMapGroupsInPandasWithState": ("applyInPandasWithState", _OF_ONES_OWN),
    "TransformWithState": ("transformWithState", _OF_ONES_OWN),
    "TransformWithStateInPySpark": ("transformWithState", _OF_ONES_OWN),
}
"""Those of Spark's logical operators that keep state on a stream, by their classes: what they are
to who writes them, and what does the same in a flow. They are what Spark's own check of streaming
plans, its `UnsupportedOperationChecker`, takes for stateful, and two that it does not name: a
Distinct becomes an aggregation, and a limit counts."""


def refuse_stateful_frames(plan: Plan) -> None:
    """See that no streaming data frame that a flow reads keeps state.

    Raises:
        FlowBuildError: when one does, with the step that reads it and what to do instead.
    """
    for step_id in plan.inputs:
        source = source_of(plan.steps[step_id])
        if not isinstance(source, DataFrameSource) or source.frame is None:
            continue
        for operator in _stateful(source.frame):
            what, instead = _KEEPING[operator]
            raise FlowBuildError(
                f"step {step_id!r}: its streaming data frame keeps state of its own, for {what} "
                f"(Spark's {operator}), which a flow can neither go on from nor end. Do that in "
                f"the flow, with {instead}; or let a query of Spark's own write it to a table or "
                "a topic, and read that"
            )


def _stateful(frame: DataFrame) -> Iterator[str]:
    """The operators of a data frame that keep state, by their classes, outermost first."""
    jvm_frame: Any = frame._jdf
    for node in _streaming(jvm_frame.queryExecution().analyzed()):
        operator = str(node.getClass().getSimpleName())
        if operator in _KEEPING and (operator != "Join" or len(_streams_into(node)) > 1):
            yield operator


def _streaming(root: Any) -> Iterator[Any]:
    """The operators that a stream goes through; of what is static nothing is kept."""
    waiting = [root] if root.isStreaming() else []
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(_streams_into(node))


def _streams_into(node: Any) -> list[Any]:
    children = node.children()
    found = (children.apply(place) for place in range(children.size()))
    return [child for child in found if child.isStreaming()]
