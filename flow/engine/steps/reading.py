"""Stage 0: tasks that read splits of a source and run the stateless steps after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from flow.columns.arrow_types import entering
from flow.columns.chunks import Chunk, Items, Positions, Records, positions, source_positions
from flow.connectors.source import Batch, Invalid, Source, Split
from flow.dataflow import Step, StreamId
from flow.engine.epoch.context import Control, TaskContext
from flow.engine.epoch.failures import encode_failure, naming, user_code
from flow.engine.epoch.statistics import TaskWork, WorkPhase
from flow.engine.packets.packets import ERROR, Packet
from flow.engine.plan.plan import Plan
from flow.engine.progress.meter import Partition
from flow.engine.steps.pipeline import Pipeline
from flow.errors import EngineError, FlowBuildError, FlowError
from flow.instants import Moment
from flow.operators.edges import Input

FLUSH_ITEMS = 262_144
"""The number of items that a task buffers before it sends them as packets."""


@dataclass(frozen=True)
class Reading:
    """One task of stage 0.

    Attributes:
        step_id: the input.
        split: the part of the source to read.
        origin: the number of the task in the epoch, which orders items of equal position.
        slice_number: the slice of a batch run, from 0; 0 when streaming.
        source: the number of the source partition in the epoch, where positions carry it.
        fronts_us: the front of each step of which it is known, before the split.
    """

    step_id: str
    split: Split
    origin: int
    slice_number: int = 0
    source: int | None = None
    fronts_us: Mapping[str, int] = field(default_factory=dict)

    def positions(self, row: int, count: int) -> Positions:
        """Return the positions of `count` items of the split, from item number `row` on."""
        order = self.split.order
        if self.source is None:
            return positions(self.slice_number, order, row, count)
        return source_positions(self.source, order, row, count)


def share(number: int, count: int, total: int) -> slice:
    """Return the slice of part `number` of `total` elements in `count` nearly equal parts."""
    return slice(number * total // count, (number + 1) * total // count)


def read_split(plan: Plan, shards: int, reading: Reading, control: Control) -> Iterator[Packet]:
    """Read a split, run the stateless steps, and yield packets; a failure becomes a packet."""
    pipeline = pipeline_of(plan, shards, reading, control)
    step = plan.steps[reading.step_id]
    fields = plan.fields_read.get(reading.step_id)
    return _packets(pipeline, reading, read_chunks(step, reading, pipeline.context, fields))


def _packets(
    pipeline: Pipeline, reading: Reading, chunks: Iterable[tuple[StreamId, Chunk]]
) -> Iterator[Packet]:
    """Push the chunks of a split, and yield packets; a failure becomes a packet."""
    try:
        for chunk in chunks:
            pipeline.push(*chunk)
            if pipeline.buffered_items >= FLUSH_ITEMS:
                yield from pipeline.flush(reading.slice_number)
        yield from pipeline.finish(reading.slice_number)
    except FlowError as error:
        yield Packet(ERROR, pipeline.shard, reading.origin, 0, encode_failure(error))
    yield from pipeline.report()


def pipeline_of(plan: Plan, shards: int, reading: Reading, control: Control) -> Pipeline:
    """Return the pipeline of a task that reads a split of an input in an epoch.

    Unkeyed items of a source partition reach outputs by one shard, in all splits and slices, so
    that sinks get items in order.
    """
    step_id, number = reading.step_id, reading.split.partition
    context = TaskContext(
        control.moment,
        run_id=plan.plan_id,
        control=control,
        place=(step_id, number, reading.slice_number),
        table_store=plan.table_store,
    )
    shard = (plan.inputs.index(step_id) + number) % shards
    partition, fronts_us = Partition(step_id, number), dict(reading.fronts_us)
    return Pipeline(plan, shards, shard, reading.origin, partition, context, fronts_us)


def read_changes(plan: Plan, reading: Reading, control: Control) -> TaskContext:
    """Read a split of a control input, up to the tables, in the process that plans epochs.

    Returns:
        The context with the changes of tables, the statistics and the printed lines.

    Raises:
        FlowError: when the source or a step fails.
    """
    context = TaskContext(control.moment, run_id=plan.plan_id, control=control)
    step, partition = plan.steps[reading.step_id], Partition(reading.step_id, 0)
    pipeline = Pipeline(plan, 1, 0, reading.origin, partition, context)
    for chunk in read_chunks(step, reading, context):
        pipeline.push(*chunk)
    return context


def push_changes(
    plan: Plan, step_id: str, chunks: Iterable[Chunk], control: Control
) -> TaskContext:
    """Run items of a control input, up to the tables; compare `read_changes`."""
    context = TaskContext(control.moment, run_id=plan.plan_id, control=control)
    pipeline = Pipeline(plan, 1, 0, 0, Partition(step_id, 0), context)
    for chunk in chunks:
        context.count(step_id, "out", len(chunk))
        pipeline.push(plan.steps[step_id].downs[0], chunk)
    return context


def read_chunks(
    step: Step, reading: Reading, context: TaskContext, fields: frozenset[str] | None = None
) -> Iterator[tuple[StreamId, Items | Records]]:
    """Yield the chunks of a split, each with its stream.

    Args:
        step: the input.
        reading: the split.
        context: the context that counts the items.
        fields: the fields of records that the flow reads; ``None`` for all.

    Raises:
        FlowError: when the source fails.
    """
    source = source_of(step)
    return _chunks(_guarded(source, reading, fields), reading, source, step, context)


def source_of(step: Step) -> Source[object]:
    """Return the source of an input.

    Raises:
        EngineError: when the step is not an input.
    """
    if not isinstance(step.operator, Input):
        raise EngineError(f"step {step.step_id!r} is not an input")
    return step.operator.source


def check_bounded(
    plan: Plan,
    what: str = "a batch",
    instead: str = "run the flow with engine='streaming'",
) -> None:
    """Check that a batch can read the inputs of a flow.

    Args:
        plan: the flow.
        what: the kind of batch, for errors.
        instead: the advice in errors.

    Raises:
        FlowBuildError: when an input has no end, or needs the streaming engine.
    """
    for step_id in plan.sources:
        source = source_of(plan.steps[step_id])
        if not source.bounded:
            raise FlowBuildError(
                f"step {step_id!r}: {source!r} has no end, and {what} needs one: {instead}"
            )
        if source.needs_streaming:
            raise FlowBuildError(
                f"step {step_id!r}: its source moves system time or ends in a crash, which only "
                f"the streaming engine can do: {instead}"
            )


def read_batches(
    plan: Plan,
    shards: int,
    step_id: str,
    origin: int,
    order: int,
    batches: Iterable[pa.RecordBatch],
    now_us: int,
    work: TaskWork,
    fronts_us: Mapping[str, int],
) -> Iterator[Packet]:
    """Run the stateless steps over Arrow batches that Spark itself has read.

    Args:
        plan: the flow.
        shards: the number of shards.
        step_id: the input.
        origin: the number of the task in the epoch.
        order: the rank of these rows among those of other tasks.
        batches: the rows.
        now_us: the system time.
        work: the task's work, to which the caller adds that of reading.
        fronts_us: as in `Reading`.
    """
    context = TaskContext(
        Moment(now_us),
        run_id=plan.plan_id,
        place=(step_id, origin),
        table_store=plan.table_store,
        work=work,
    )
    shard = origin % shards
    partition = Partition(step_id, 0)
    pipeline = Pipeline(plan, shards, shard, origin, partition, context, dict(fronts_us))
    stream = plan.steps[step_id].downs[0]
    source = plan.frames.index(step_id) if plan.has_source_numbers() else None
    reading = Reading(step_id, Split(None, order=order), origin, source=source)
    chunks = ((stream, chunk) for chunk in _records(batches, reading, context))
    return _packets(pipeline, reading, chunks)


def _records(
    batches: Iterable[pa.RecordBatch], reading: Reading, context: TaskContext
) -> Iterator[Records]:
    row = 0
    for batch in batches:
        context.count(reading.step_id, "out", batch.num_rows)
        yield Records(entering(batch, reading.step_id), reading.positions(row, batch.num_rows))
        row += batch.num_rows


def _guarded(
    source: Source[object], reading: Reading, fields: frozenset[str] | None
) -> Iterator[Batch]:
    """Yield the batches of a split; any other exception of a source becomes a `StepError`."""
    split, passes = reading.split, (GeneratorExit,)  # The reader closes this generator.
    with user_code(reading.step_id, "reading", passes, split.what):
        yield from source.read(split) if fields is None else source.read_fields(split, fields)


def _chunks(
    batches: Iterable[Batch],
    reading: Reading,
    source: Source[object],
    step: Step,
    context: TaskContext,
) -> Iterator[tuple[StreamId, Items | Records]]:
    row = 0
    for batch in _timed(batches, step.step_id, context):
        count = len(batch.inputs) if isinstance(batch, Invalid) else len(batch)
        pos = reading.positions(row, count)
        row += count
        if isinstance(batch, Invalid):
            _handle_invalid(source, batch, step.step_id, context)
            if source.on_invalid == "errors":
                yield step.downs[1], Items(list(batch.inputs), pos)
            continue
        context.count(step.step_id, "out", count)
        yield step.downs[0], arriving(batch, pos, step.step_id)


def arriving(batch: list[Any] | pa.RecordBatch, pos: Positions, step_id: str) -> Items | Records:
    """Return the items that an input reads as a chunk.

    Raises:
        StepError: steps cannot process the columns.
    """
    if isinstance(batch, pa.RecordBatch):
        return Records(entering(batch, step_id), pos)
    return Items(batch, pos)


def _timed(batches: Iterable[Batch], step_id: str, context: TaskContext) -> Iterator[Batch]:
    """Yield the batches of an input; the time that its source needs is the step's."""
    remaining = context.work.iterated(WorkPhase.READING, batches)
    while True:
        with context.stats.timed(step_id):
            batch = next(remaining, None)
        if batch is None:
            return
        yield batch


def _handle_invalid(
    source: Source[object], batch: Invalid, step_id: str, context: TaskContext
) -> None:
    if not batch.inputs:
        return
    if source.on_invalid == "fail":
        raise naming(step_id, batch.error())
    context.count(step_id, "invalid", len(batch.inputs))
    if source.on_invalid == "drop":
        for bad in batch.inputs:
            context.stats.note(f"step {step_id!r} dropped {bad}")
