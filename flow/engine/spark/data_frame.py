"""A stream of a flow as a lazy Spark data frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from typing_extensions import override

from flow.connectors.dataframe import to_arrow
from flow.connectors.sink import Sink, WriteContext, Written
from flow.engine.epoch.context import Stats
from flow.engine.packets.packets import PRINTED, STATS, Packet
from flow.engine.plan.plan import Plan
from flow.engine.spark.batch import BatchJob, BatchSettings, check_bounded
from flow.engine.spark.epochs import frame_schema
from flow.engine.spark.session.access import is_remote
from flow.engine.spark.session.failures import jvm_needed
from flow.engine.spark.shipping import FailingLayout, LastStage, Layout, raising
from flow.engine.steps.outputs import rows_of, unpacked_by_slice
from flow.errors import EngineError
from flow.process import print_text

OnStats = Callable[[Stats], None]
"""A function that gets the statistics of each task of a data frame's last stage."""


class FrameSink(Sink[Any]):
    """The end of a stream that becomes a data frame."""

    lays_out = True

    @override
    def write(self, context: WriteContext, batches: Iterator[Written]) -> Any:
        raise EngineError(f"step {context.step_id!r}: the items are rows of a data frame")


def lazy_frame(
    plan: Plan,
    spark: SparkSession,
    settings: BatchSettings,
    schema: StructType | str | None,
    on_stats: OnStats,
) -> DataFrame:
    """Return the stream that a flow's only output reads as a data frame.

    Inputs are planned now. The flow runs when Spark computes the data frame, with the configuration
    that the session has then.

    Args:
        plan: the flow, with one output, to a `FrameSink`.
        spark: the session.
        settings: the settings of the batch.
        schema: the columns; ``None`` for all, if they are known.
        on_stats: called on the driver with the statistics of each task, except with Spark Connect.

    Raises:
        FlowBuildError: a source cannot be read in a batch, or the columns are not known.
        FlowError: the planning of a source fails.
    """
    check_bounded(plan, "a data frame", "run the flow with a DataFrameSink, for each epoch")
    (edge,) = plan.outputs
    with jvm_needed(spark):
        columns = frame_schema(plan.steps, edge.stream, schema, "to_dataframe")
        job = BatchJob.of(plan, spark, settings, FailingLayout)
        stats = None
        if not is_remote(spark):  # Spark Connect has no accumulators.
            stats = spark.sparkContext.accumulator(Stats(), StatsParam(on_stats))
        return job.frame(RowsStage(columns, to_arrow(columns), edge.dest, edge.step_id, stats))


@dataclass(frozen=True)
class RowsStage(LastStage):
    """The last stage of a data frame: items become rows, and Spark carries the statistics.

    Attributes:
        columns: the columns of the rows.
        schema: the same columns as an Arrow schema.
        dest: the number of the output's edge.
        step_id: the output's step, for errors.
        stats: the accumulator of statistics; ``None`` to leave them out.
    """

    columns: StructType | str
    schema: pa.Schema
    dest: int
    step_id: str
    stats: Accumulator[Stats] | None

    @override
    def batches(
        self, plan: Plan, layout: Layout, packets: Iterator[Packet]
    ) -> Iterator[pa.RecordBatch]:
        items = unpacked_by_slice(self._items_in(packets))
        yield from rows_of(items, self.schema, self.step_id)

    def _items_in(self, packets: Iterator[Packet]) -> Iterator[Packet]:
        """Yield the packets of the output; count statistics and print the lines of inspectors.

        Raises:
            FlowError: when a packet has a failure.
        """
        for packet in raising(packets):
            if packet.dest == self.dest:
                yield packet
            elif packet.dest == STATS and self.stats is not None:
                self.stats.add(Stats.decode(packet.payload))
            elif packet.dest == PRINTED:
                print_text(packet.payload.decode())


class StatsParam(AccumulatorParam[Stats]):
    """Sum of statistics in one of Spark's accumulators.

    Args:
        on_stats: called on the driver with the statistics of each task.
    """

    def __init__(self, on_stats: OnStats | None) -> None:
        self._on_stats = on_stats

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the function, which runs on the driver, from the copies of workers."""
        return {"_on_stats": None}

    def zero(self, value: Stats) -> Stats:  # noqa: ARG002
        return Stats()

    def addInPlace(self, value1: Stats, value2: Stats) -> Stats:
        value1.add(value2)
        if self._on_stats is not None:
            self._on_stats(value2)
        return value1
