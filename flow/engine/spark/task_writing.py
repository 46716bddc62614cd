"""Writing of outputs in Spark tasks: partition and epoch of a task."""

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
"""The property of a Spark task with the number of the micro-batch, which is an epoch."""


@dataclass(frozen=True)
class TaskWriting:
    """Writing of a run's outputs by the tasks of the last stage.

    Attributes:
        run_id: id of the checkpoint in sinks.
        left_out: edges whose sinks take Spark data frames, which no task writes.
        first_epoch: the number of the query's first epoch.
        is_batch: True if the first epoch is the only one.
        rewinds: number of rewinds of the checkpoint.
    """

    run_id: str
    left_out: frozenset[int]
    first_epoch: int = 0
    is_batch: bool = False
    rewinds: int = 0

    def of_task(self) -> Writing:
        """Return the writing of the current task."""
        task = _task()
        number = 0 if self.is_batch else int(task.getLocalProperty(_MICRO_BATCH) or -1)
        if number < 0:
            raise EngineError("Spark did not tell a task which epoch it belongs to")
        epoch = self.first_epoch + number
        return Writing(self.run_id, epoch, task.partitionId(), self.left_out, self.rewinds)


def task_partition() -> int:
    """Return the number of the current task's partition."""
    return int(_task().partitionId())


def _task() -> SparkTask:
    task = SparkTask.get()
    if task is None:
        raise EngineError("a level runs in Spark tasks only: no Spark task runs in this thread")
    return task


def write_partition(
    shipped: ShippedPlan,
    layout: Layout,
    writing: TaskWriting,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write the outputs of a partition of packets in a flow without levels."""
    packets = layout.from_batches(batches)
    return layout.to_batches(write_outputs(shipped.plan(), writing.of_task(), packets))
