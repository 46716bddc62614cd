"""Stage 0 for data frames: rows that Spark itself has read become packets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext as SparkTask
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from flow.connectors.dataframe import DataFrameSource
from flow.dataflow import Step
from flow.engine.packets import PACKET_DDL, Packet
from flow.engine.plan import Plan
from flow.engine.reading import read_batches
from flow.engine.rows import Layout
from flow.engine.shipping import ShippedPlan
from flow.engine.sources import source_of
from flow.errors import EngineError

_NOW = "__flow_now__"
_ORIGINS = 1 << 16
"""Origins of data frames' tasks start here, each input's after those of the one before."""


def foreign_packets(step: Step, number: int, shipped: ShippedPlan, layout: Layout) -> DataFrame:
    """The packets of a data frame that Spark reads."""
    source = source_of(step)
    if not isinstance(source, DataFrameSource) or source.frame is None:
        raise EngineError(f"step {step.step_id!r} has no data frame")
    now = F.unix_micros(F.current_timestamp())
    task = partial(_read_partition, shipped, layout, step.step_id, number)
    return source.frame.withColumn(_NOW, now).mapInArrow(task, PACKET_DDL)


def _read_partition(
    shipped: ShippedPlan,
    layout: Layout,
    step_id: str,
    number: int,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    task = SparkTask.get()
    origin = _ORIGINS * (number + 1) + (task.partitionId() if task else 0)
    return layout.to_batches(_foreign_task(shipped.plan(), layout, step_id, origin, batches))


def _foreign_task(
    plan: Plan, layout: Layout, step_id: str, origin: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[Packet]:
    first = next(batches, None)
    if first is None:
        return
    now_us = first.column(_NOW)[0].as_py() if first.num_rows else 0
    plain = (batch.drop_columns([_NOW]) for batch in chain([first], batches))
    yield from read_batches(plan, layout.shards, step_id, origin, plain, now_us)
