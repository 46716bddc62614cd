"""The batch engine: a flow of bounded inputs as one Spark job, without a state store.

All slices are planned before the job. Each shard of a level processes the slices in order, with its
state in memory, and drains at the end of input. System time is constant.

The job writes the outputs (`run_batch`), or its last stage makes rows of a lazy data frame
(`lazy_frame`).
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from typing_extensions import override

from flow.connectors.dataframe import to_arrow
from flow.connectors.sink import Sink, SinkBatch, WriteContext
from flow.dataflow import Step
from flow.engine.epoch.context import Control
from flow.engine.epoch.statistics import SourcePartition, Stats
from flow.engine.epoch.summary import Summary, late_sources, source_name
from flow.engine.feed.clocks import SystemTime, wall_time
from flow.engine.feed.feed import StopFlag
from flow.engine.feed.run_tables import read_all
from flow.engine.feed.slices import BatchPlan, batch_plan, plan_everything, planners_of
from flow.engine.packets.packets import CONTROL, PACKET_DDL, PRINTED, SLICE_BITS, STATS, Packet
from flow.engine.packets.shards import DEFAULT_SHARDS
from flow.engine.plan.plan import Plan
from flow.engine.progress.step_time import HoldRelay, KnownHolds
from flow.engine.spark.epochs import EpochOutputs, EpochTimer, frame_schema, left_out
from flow.engine.spark.input_frames import with_frames
from flow.engine.spark.session.jvm import SPARK_LOG
from flow.engine.spark.session.session import query_conf
from flow.engine.spark.session.session_settings import cores_of, is_remote, job_tags
from flow.engine.spark.session.spark_failures import JVM_ERRORS, disks_of, jvm_needed, spark_problem
from flow.engine.spark.shipping import (
    FailingLayout,
    LastStage,
    Layout,
    ShippedPlan,
    TaskWriting,
    end_partition,
    raising,
)
from flow.engine.state.key_states import KeyStates
from flow.engine.state.step_state import ShardTable
from flow.engine.steps.level import live_states, run_level
from flow.engine.steps.outputs import rows_of, unpacked_by_slice
from flow.engine.steps.reading import Reading, check_bounded, read_split, share
from flow.errors import EngineError, FlowError
from flow.instants import Moment
from flow.process import print_text

_CANCEL_SECONDS = 0.1
"""Time between two calls that cancel the jobs of a batch."""


@dataclass(frozen=True)
class BatchSettings:
    """Settings of a batch run.

    Attributes:
        drain: True to end the input after the last slice.
        system_time: the clock, read once.
        shards: number of shards of the key space; ``None`` for the default.
        partitions: number of partitions of each level; ``None`` for one per core.
    """

    drain: bool = True
    system_time: SystemTime = wall_time
    shards: int | None = None
    partitions: int | None = None


@dataclass(frozen=True)
class BatchJob:
    """A batch job whose inputs are planned.

    Attributes:
        plan: the compiled flow.
        shipped: the same flow for workers.
        spark: the session.
        layout: shards and partitions of the flow.
        planned: the plan of what to read.
        names: the names of source partitions, for messages.
        cores: the number of tasks that run at a time.
    """

    plan: Plan
    shipped: ShippedPlan
    spark: SparkSession
    layout: Layout
    planned: BatchPlan
    names: Mapping[SourcePartition, str]
    cores: int

    @classmethod
    def of(
        cls,
        plan: Plan,
        spark: SparkSession,
        settings: BatchSettings,
        layout_class: type[Layout] = Layout,
    ) -> BatchJob:
        """Plan all inputs of a flow.

        Raises:
            FlowBuildError: when a step cannot be sent to workers.
            FlowError: when the planning of a source fails.
        """
        cores = cores_of(spark)
        partitions = settings.partitions or cores
        shards = settings.shards or max(DEFAULT_SHARDS, partitions)
        control = Control(Moment(settings.system_time()), settings.drain)
        if plan.tables:
            plan, control = read_all(plan, control, cores)
        shipped = ShippedPlan.pack(plan.for_workers())
        planned, names = _planned(plan, cores, control)
        layout = layout_class(shards, partitions, len(plan.levels))
        return cls(plan, shipped, spark, layout, planned, names, cores)

    def frame(self, last_stage: LastStage) -> DataFrame:
        """Return the data frame of the job: inputs, all levels and the last stage."""
        shipped, layout, last = self.shipped, self.layout, self.layout.levels
        frame = self._read()
        if self.plan.frames:
            frame = with_frames(frame, self.plan, shipped, layout)
        if not last:
            end = partial(end_partition, shipped, layout, last_stage)
            return frame.mapInArrow(end, last_stage.columns)
        controls = replace(self.planned, readings=[])
        for level in range(1, last + 1):
            end_of_level = last_stage if level == last else None
            task = partial(_level_partition, shipped, layout, level, controls, end_of_level)
            columns = PACKET_DDL if end_of_level is None else end_of_level.columns
            by_shard = frame.repartition(layout.partitions, "shard")
            frame = by_shard.sortWithinPartitions("shard", "seq").mapInArrow(task, columns)
        return frame

    def _read(self) -> DataFrame:
        """Return the packets of the inputs that Python reads."""
        readings = self.planned.readings
        tasks = max(1, min(len(readings), max(self.cores * 4, 32)))
        of_tasks = [tuple(readings[share(number, tasks, len(readings))]) for number in range(tasks)]
        task = partial(_read_partition, self.shipped, self.layout, of_tasks, self.planned.last)
        return self.spark.range(0, tasks, 1, tasks).mapInArrow(task, PACKET_DDL)


def run_batch(
    plan: Plan,
    spark: SparkSession,
    settings: BatchSettings,
    on_epoch: Callable[[int, Stats], None] = lambda *_: None,
    stop: StopFlag | None = None,
) -> Summary:
    """Run a flow of bounded inputs as one Spark job.

    A run that is asked to stop before its outputs are committed cancels the job and writes nothing.

    Raises:
        FlowBuildError: when a source cannot be read in a batch.
        FlowError: when a step, a source, a sink or Spark fails.
    """
    summary = Summary(plan.flow_id, "batch")
    with jvm_needed(spark):
        disks = disks_of(spark)
        timer = EpochTimer(slots=cores_of(spark))
        timer.start_planning()
        job = BatchJob.of(plan, spark, settings)
        timer.end_planning()

    def count(epoch: int, stats: Stats) -> None:
        stats.late_sources = late_sources(stats, plan.feeds, stats.reached, job.names.__getitem__)
        summary.add(stats)
        on_epoch(epoch, stats)

    run_id = uuid.uuid4().hex
    outputs = EpochOutputs(plan, job.layout, run_id, lambda _: None, count, timer)
    writing = TaskWriting(outputs.run_id, left_out(outputs.plan), is_batch=True)
    frame_conf = query_conf(spark, job.layout.partitions, is_batch=True)
    outputs.open(resuming=False)
    stop = stop or StopFlag()
    try:
        with jvm_needed(spark), frame_conf, _cancelled_by(spark, stop):
            if not stop.asked.is_set():
                outputs.write(job.frame(writing), 0)
    except FlowError:
        raise
    except Exception as error:
        if not stop.asked.is_set():
            cause = spark_problem(error, disks)
            problem = f"the Spark job failed: {cause} (Spark's log: {SPARK_LOG})"
            raise EngineError(problem) from error
    finally:
        outputs.close()
    summary.stopped = stop.asked.is_set() and not summary.epochs
    return summary


@contextlib.contextmanager
def _cancelled_by(spark: SparkSession, stop: StopFlag) -> Iterator[None]:
    """Cancel the Spark jobs that this thread runs in the block, when a stop is asked for."""
    tag, ended = f"flow-{uuid.uuid4().hex}", threading.Event()
    add_tag, remove_tag, cancel_jobs = job_tags(spark)

    def cancel() -> None:
        with contextlib.suppress(*JVM_ERRORS):  # The JVM has ended, and its jobs with it.
            # A job of the block may start after the first call.
            while not ended.wait(_CANCEL_SECONDS):
                cancel_jobs(tag)

    # Signal handlers may ask, and must not call the JVM, which this thread may be calling.
    stop.on_ask(lambda: threading.Thread(target=cancel, name="flow-cancel", daemon=True).start())
    add_tag(tag)
    try:
        yield
    finally:
        ended.set()
        with contextlib.suppress(*JVM_ERRORS):
            remove_tag(tag)


def _planned(
    plan: Plan, cores: int, control: Control
) -> tuple[BatchPlan, dict[SourcePartition, str]]:
    """Return the plan of the batch, and the names of its source partitions."""
    with planners_of(plan, plan.inputs, cores) as planners:
        planned = batch_plan(plan, plan_everything(planners), control)
        sources = planned.last.sources or ()
        return planned, {partition: source_name(planners, partition) for partition in sources}


def _read_partition(
    shipped: ShippedPlan,
    layout: Layout,
    readings: list[tuple[Reading, ...]],
    control: Control,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    def packets() -> Iterator[Packet]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if number == 0 and layout.levels:
                    for shard in range(layout.shards):
                        yield Packet(CONTROL, shard, -1, _LAST, control.encode())
                for reading in readings[number]:
                    yield from read_split(shipped.plan(), layout.shards, reading, control)

    return layout.to_batches(packets())


_LAST = (1 << 62) - 1
"""Sequence number of control packets, after those of all slices."""


def _level_partition(
    shipped: ShippedPlan,
    layout: Layout,
    level: int,
    planned: BatchPlan,
    last_stage: LastStage | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Run a level over the shards of a Spark partition, which are sorted by shard and slice."""
    plan = shipped.plan()
    packets = layout.from_batches(batches)

    def output() -> Iterator[Packet]:
        relay: HoldRelay | None = None
        for shard, of_shard in itertools.groupby(packets, key=lambda packet: packet.shard):
            # The first shard of a task is in no other task.
            relay = relay or HoldRelay(layout.shards, shard)
            made = _run_shard(plan, layout, level, planned, shard, of_shard)
            yield from relay.forward(made)
        if relay is not None:
            yield from relay.finish()

    if last_stage is None:
        return layout.to_batches(output())
    return last_stage.batches(plan, layout, output())


def _run_shard(
    plan: Plan,
    layout: Layout,
    level: int,
    planned: BatchPlan,
    shard: int,
    packets: Iterator[Packet],
) -> Iterator[Packet]:
    """Run a shard of a level: slices in order, then the end of input at the control packet."""
    states: dict[str, KeyStates | ShardTable] = {}

    def states_of(step: Step) -> KeyStates | ShardTable:
        if step.step_id not in states:
            states[step.step_id] = live_states(plan, step.step_id)
        return states[step.step_id]

    known = KnownHolds()
    for number, of_slice in itertools.groupby(packets, key=_slice_of):
        # The control packet, after all slices, has a number that no slice has.
        control = planned.controls[number] if number < len(planned.controls) else planned.last
        for packet in run_level(
            plan, level, layout.shards, shard, of_slice, states_of, number, control, known
        ):
            if packet.dest != CONTROL:
                yield packet
    if level < layout.levels:
        yield Packet(CONTROL, shard, shard, _LAST, planned.last.encode())


def _slice_of(packet: Packet) -> int:
    return packet.seq >> SLICE_BITS


OnStats = Callable[[Stats], None]
"""A function that gets the statistics of each task of a data frame's last stage."""


class FrameSink(Sink[Any]):
    """The end of a stream that becomes a data frame."""

    lays_out = True

    @override
    def write(self, context: WriteContext, batches: Iterator[SinkBatch]) -> Any:
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
