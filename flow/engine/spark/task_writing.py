"""What a task of Spark's writes: which partition, of which epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext as SparkTask

from flow.engine.spark.rows import Layout
from flow.engine.spark.shipping import ShippedPlan
from flow.engine.steps.outputs import Writing, write_outputs
from flow.errors import EngineError

_MICRO_BATCH = "streaming.sql.batchId"
"""The property of a task of Structured Streaming that has the number of its micro-batch."""


@dataclass(frozen=True)
class TaskWriting:
    """How the tasks of a run's last stage write its outputs.

    Attributes:
        run_id: what the checkpoint is known by.
        left_out: edges whose sinks are written elsewhere, as Spark data frames.
        first_epoch: the number of the query's first epoch.
        is_batch: whether that is the only one.
        rewinds: how often the checkpoint has been set back.
    """

    run_id: str
    left_out: frozenset[int]
    first_epoch: int = 0
    is_batch: bool = False
    rewinds: int = 0

    def of_task(self) -> Writing:
        """What the task writes that this is called in."""
        task = SparkTask.get()
        if task is None:
            raise EngineError("outputs are written by tasks of Spark, and this is none")
        number = 0 if self.is_batch else int(task.getLocalProperty(_MICRO_BATCH) or -1)
        if number < 0:
            raise EngineError("Spark did not tell a task which epoch it belongs to")
        epoch = self.first_epoch + number
        return Writing(self.run_id, epoch, task.partitionId(), self.left_out, self.rewinds)


def write_partition(
    shipped: ShippedPlan,
    layout: Layout,
    writing: TaskWriting,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write the outputs in a partition of packets, as a task of its own."""
    packets = layout.from_batches(batches)
    return layout.to_batches(write_outputs(shipped.plan(), writing.of_task(), packets))
