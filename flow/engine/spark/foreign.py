"""Stage 0 of data frames: packets of rows that Spark itself reads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext as SparkTask
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from flow.columns.arrow_types import with_leaves
from flow.connectors.dataframe import DataFrameSource
from flow.engine.epoch.work import TaskWork, WorkPhase
from flow.engine.packets.packets import PACKET_DDL, Packet
from flow.engine.plan.plan import Plan
from flow.engine.spark.rows import Layout
from flow.engine.spark.session.jvm import is_stopped
from flow.engine.spark.shipping import ShippedPlan
from flow.engine.steps.reading import read_batches, source_of
from flow.errors import EngineError, FlowBuildError

_ORIGINS = 1 << 16
"""The number of origins for the tasks of each data frame, which follow those of other inputs."""


def foreign_packets(
    plan: Plan, step_id: str, number: int, shipped: ShippedPlan, layout: Layout
) -> DataFrame:
    """Return the packets of a data frame, with only the columns that the flow reads."""
    source = source_of(plan.steps[step_id])
    if not isinstance(source, DataFrameSource) or source.frame is None:
        raise EngineError(f"step {step_id!r} has no data frame")
    names = source.frame.columns
    fields = plan.fields_read.get(step_id)
    columns = [index for index, name in enumerate(names) if fields is None or name in fields]
    # Columns have numbers as names, because PySpark reads a dot in a name as a field's path.
    numbered = source.frame.toDF(*(f"c{index}" for index in range(len(names))))
    now = F.unix_micros(F.current_timestamp())
    names_read = [names[index] for index in columns]
    task = partial(_read_partition, shipped, layout, step_id, number, names_read)
    return numbered.select(now, *(f"c{index}" for index in columns)).mapInArrow(task, PACKET_DDL)


def session_of_frames(plan: Plan) -> Any | None:
    """Return the session of the first data frame that a flow reads; ``None`` without data frames.

    Raises:
        FlowBuildError: if that session was stopped.
    """
    for step_id in plan.inputs:
        source = source_of(plan.steps[step_id])
        if isinstance(source, DataFrameSource) and source.frame is not None:
            session = source.frame.sparkSession
            if is_stopped(session):
                raise FlowBuildError(
                    f"step {step_id!r}: the session of its data frame was stopped: make the data "
                    "frame in a session that runs"
                )
            return session
    return None


def _read_partition(
    shipped: ShippedPlan,
    layout: Layout,
    step_id: str,
    number: int,
    names: list[str],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    task = SparkTask.get()
    number_of_task = task.partitionId() if task else 0
    origin = _ORIGINS * (number + 1) + number_of_task
    plan = shipped.plan()
    order = 0 if _is_streaming(plan, step_id) else number_of_task
    return layout.to_batches(_foreign_task(plan, layout, step_id, origin, order, names, batches))


def _is_streaming(plan: Plan, step_id: str) -> bool:
    """Return True for a stream: its partitions are concurrent, those of a batch in sequence."""
    source = source_of(plan.steps[step_id])
    return isinstance(source, DataFrameSource) and source.streaming


def _foreign_task(
    plan: Plan,
    layout: Layout,
    step_id: str,
    origin: int,
    order: int,
    names: list[str],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[Packet]:
    work = TaskWork()
    waited = work.iterated(WorkPhase.READING, batches)
    first = next(waited, None)
    if first is None:
        return
    now_us = first.column(0)[0].as_py() if first.num_rows else 0
    plain = (_named(batch, names) for batch in chain([first], waited))
    yield from read_batches(plan, layout.shards, step_id, origin, order, plain, now_us, work)


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
