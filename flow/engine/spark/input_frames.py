"""Data frames that Spark itself reads: checks of a flow's frames, and their rows as packets.

Spark numbers stateful operators by position only. A stateful data frame would shift the numbers of
the flow's levels, so a later run could not restore their state, and the end of input could not
drain the frame's own state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext as SparkTask
from pyspark.sql import DataFrame

from flow.columns.arrow_types import with_leaves
from flow.connectors.dataframe import DataFrameSource
from flow.connectors.files.parquet_source import WrittenDownFrame
from flow.engine.epoch.statistics import TaskWork, WorkPhase
from flow.engine.packets.packets import PACKET_DDL
from flow.engine.plan.plan import Plan
from flow.engine.spark.session.spark_failures import is_stopped, spark_problem
from flow.engine.spark.shipping import Layout, ShippedPlan
from flow.engine.steps.reading import read_batches, source_of
from flow.errors import FlowBuildError, SourceError
from flow.instants import NEVER
from flow.operators.edges import Input
from flow.operators.keyed_tables import TableReader

_ORIGINS = 1 << 16
"""The number of origins for the tasks of each data frame, which follow those of other inputs."""

_NOW = "unix_micros(current_timestamp()) AS now"
"""The time column, as text: PySpark's functions for columns are those of one kind of session."""

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
    "TransformWithStateInPandas": ("transformWithState", _STATEFUL_STEP),
    "TransformWithStateInPySpark": ("transformWithState", _STATEFUL_STEP),
}
"""Spark's stateful logical operators by class: the user's name and the replacement in a flow.

These are the operators that Spark's `UnsupportedOperationChecker` treats as stateful, and two more:
a Distinct becomes an aggregation, and a limit counts."""


def frames_of(plan: Plan) -> dict[str, DataFrame]:
    """Return the data frames that a flow reads, by input step."""
    sources = {step_id: source_of(plan.steps[step_id]) for step_id in plan.frames}
    return {
        step_id: source.frame
        for step_id, source in sources.items()
        if isinstance(source, DataFrameSource) and source.frame is not None
    }


def with_frames(packets: DataFrame, plan: Plan, shipped: ShippedPlan, layout: Layout) -> DataFrame:
    """Return packets with those of all data frames, of the columns that the flow reads."""
    for number, (step_id, frame) in enumerate(frames_of(plan).items()):
        fields = plan.fields_read.get(step_id)
        names = [name for name in frame.columns if fields is None or name in fields]
        # Columns have numbers as names, because PySpark reads a dot in a name as a field's path.
        numbered = frame.toDF(*(f"c{index}" for index in range(len(frame.columns))))
        columns = [f"c{index}" for index, name in enumerate(frame.columns) if name in names]
        task = partial(_read_partition, shipped, layout, step_id, number, names)
        packets = packets.union(numbered.selectExpr(_NOW, *columns).mapInArrow(task, PACKET_DDL))
    return packets


def session_of_frames(plan: Plan) -> Any | None:
    """Return the session of the first data frame that a flow reads; ``None`` without data frames.

    Raises:
        FlowBuildError: if that session was stopped.
    """
    for step_id, frame in frames_of(plan).items():
        if is_stopped(frame.sparkSession):
            raise FlowBuildError(
                f"step {step_id!r}: the session of its data frame was stopped: make the data "
                "frame in a session that runs"
            )
        return frame.sparkSession
    return None


def _read_partition(
    shipped: ShippedPlan,
    layout: Layout,
    step_id: str,
    number: int,
    names: list[str],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition of a data frame as packets."""
    work = TaskWork()
    waited = work.iterated(WorkPhase.READING, batches)
    first = next(waited, None)
    if first is None:
        return
    now_us = first.column(0)[0].as_py() if first.num_rows else 0
    named = (_named(batch, names) for batch in chain([first], waited))
    plan, task = shipped.plan(), SparkTask.get()
    number_of_task = task.partitionId() if task else 0
    origin = _ORIGINS * (number + 1) + number_of_task
    source = source_of(plan.steps[step_id])
    # The partitions of a stream are concurrent, those of a batch in sequence.
    is_stream = isinstance(source, DataFrameSource) and source.streaming
    order = 0 if is_stream else number_of_task
    # A batch has no state of an earlier run.
    fronts_us = (
        {} if is_stream else {name: -NEVER for name, (of, _) in plan.timed_by.items() if not of}
    )
    yield from layout.to_batches(
        read_batches(plan, layout.shards, step_id, origin, order, named, now_us, work, fronts_us)
    )


def _named(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """Return a batch without its time column, with the frame's own column names.

    Spark passes timestamps in the time zone of its session; they become UTC, as from other sources.
    """
    if not names:  # The time column has the number of rows, which a batch without columns loses.
        return batch
    columns = batch.select(range(1, batch.num_columns))
    fields = [
        pa.field(name, with_leaves(kind, _in_utc))
        for name, kind in zip(names, columns.schema.types, strict=True)
    ]
    return columns.rename_columns(names).cast(pa.schema(fields))


def _in_utc(kind: Any) -> Any:
    instant = pa.types.is_timestamp(kind) and kind.tz is not None
    return pa.timestamp(kind.unit, "UTC") if instant else kind


def check_frames_with_tables(plan: Plan) -> None:
    """Check that no step looks up a table for items of a streaming data frame before a shuffle.

    The tasks that read data frames do not know the epoch, nor the versions of tables.

    Raises:
        FlowBuildError: when a step does.
    """
    before_shuffle = {*plan.frames}
    if not plan.tables:
        return
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
    for step_id, frame in frames_of(plan).items():
        for operator in _stateful(frame):
            what, instead = _STATEFUL[operator]
            raise FlowBuildError(
                f"step {step_id!r}: its streaming data frame keeps state of its own, for {what} "
                f"(Spark's {operator}), which a flow can neither continue nor end. Do that in "
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


def keep_static_frames(plan: Plan, root: str, exists: Callable[[str], bool]) -> Plan:
    """Write static data frames below the checkpoint, so that every epoch can be replayed.

    Args:
        plan: the flow.
        root: the checkpoint's directory, a path or a URI.
        exists: returns True for a file that the checkpoint has.

    Returns:
        The plan, in which the inputs of those frames read the files.

    Raises:
        SourceError: when Spark cannot read or write a frame; the error gives Spark's reason.
    """
    steps = dict(plan.steps)
    for step_id in plan.inputs:
        source = source_of(plan.steps[step_id])
        if isinstance(source, DataFrameSource) and not source.streaming:
            name = f"inputs/{plan.file_of(step_id)}"
            if not exists(f"{name}/_SUCCESS") and source.frame is not None:
                _keep(step_id, source.frame, f"{root}/{name}")
            kept = WrittenDownFrame(f"{root}/{name}")
            steps[step_id] = replace(plan.steps[step_id], operator=Input(kept))
    return plan.with_steps(steps)


def _keep(step_id: str, frame: DataFrame, path: str) -> None:
    try:
        frame.write.mode("overwrite").parquet(path)
    except Exception as error:
        problem = f"its data frame cannot be read and written to {path}: {spark_problem(error)}"
        raise SourceError(f"step {step_id!r}: {problem}") from error
