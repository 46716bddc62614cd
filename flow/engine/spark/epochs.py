"""The driver's part of an epoch: commits of sinks, and the statistics of the epoch."""

from __future__ import annotations

import contextlib
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from flow.columns.known_columns import UnknownColumns
from flow.connectors.dataframe import DataFrameSink, check_schema, to_arrow, to_spark
from flow.connectors.sink import CheckpointContext, OutputContext
from flow.dataflow import Step, StreamId
from flow.engine.epoch.failures import user_code
from flow.engine.epoch.phases import EpochTimer
from flow.engine.epoch.statistics import Stats
from flow.engine.packets.packets import Packet
from flow.engine.plan.declared_columns import columns_of
from flow.engine.plan.plan import Edge, Plan
from flow.engine.spark.shipping import Layout
from flow.engine.steps.outputs import rows_of, settled, sink_of, unpacked
from flow.errors import RAISED, FlowBuildError, SinkError, StepError, first_line

_REFUSED = re.compile(rf"^{SinkError.__module__}\.{SinkError.__name__}: (.*)", re.MULTILINE)
"""Message of a `SinkError` of a worker, in Spark's error: an item does not fit the data frame."""

EpochHook = Callable[[int, Stats], None]
"""Function that is called with each epoch's number and statistics after its outputs are written."""


@dataclass
class EpochOutputs:
    """Outputs of a run's epochs: opened, written and committed.

    Attributes:
        plan: the compiled flow, with the sinks of the user.
        layout: shards and partitions of the flow.
        run_id: id of the checkpoint in sinks.
        on_written: called with an epoch's number before its outputs are committed.
        on_epoch: called after the commit with the epoch's number and statistics.
        timer: the durations of the epoch's phases.
        checkpoint: the checkpoint for sinks; ``None`` if the run has none that lasts.
    """

    plan: Plan
    layout: Layout
    run_id: str
    on_written: Callable[[int], None]
    on_epoch: EpochHook
    timer: EpochTimer = field(default_factory=EpochTimer)
    checkpoint: CheckpointContext | None = None
    _schemas: dict[Edge, StructType | str] = field(default_factory=dict, init=False)

    def open(self, resuming: bool) -> None:
        """Open the sinks; if a sink fails to open, close the sinks opened before.

        Raises:
            FlowError: when two outputs write to the same target, or a sink cannot be opened.
        """
        for edge, of_frames in self._frames().items():
            owner = f"step {edge.step_id!r}: its DataFrameSink"
            schema = frame_schema(self.plan.steps, edge.stream, of_frames.schema, owner)
            self._schemas[edge] = schema
        with contextlib.ExitStack() as opened:
            for edge in self.plan.outputs:
                sink = sink_of(self.plan, edge)
                opened.callback(sink.close)
                with user_code(edge.step_id, "opening its sink"):
                    sink.attach(OutputContext(self.plan.flow_id, edge.step_id, self.checkpoint))
                    sink.open(self.run_id, resuming)
            opened.pop_all()

    def close(self) -> None:
        """Close the sinks."""
        for edge in self.plan.outputs:
            sink_of(self.plan, edge).close()

    def left_out(self) -> frozenset[int]:
        """Return the edges that no task writes, because their sinks take Spark data frames."""
        return frozenset(edge.dest for edge in self._frames())

    def write(self, frame: DataFrame, epoch: int) -> None:
        """Compute an epoch and write its outputs in one Spark job, then commit them.

        Args:
            frame: packets of the last stage, which writes the outputs (`shipping.TaskWriting`).
            epoch: the epoch's number.

        Raises:
            FlowError: when a step, a source or a sink fails; no output is committed then.
        """
        self.timer.start_job()
        frames = self._frames()
        if frames:
            frame = frame.persist()
        try:
            to_driver = frame.filter(~F.col("dest").isin(*self.left_out())) if frames else frame
            rows = zip(*(column.to_pylist() for column in to_driver.toArrow().columns), strict=True)
            stats, messages = self._decoded([Packet(*row) for row in rows])
            self.timer.end_job(stats.work_ns)
            self.on_written(epoch)
            for edge, sink in frames.items():
                self._call_function(frame, edge, sink, epoch)
        finally:
            if frames:
                frame.unpersist()
        for edge in self.plan.outputs:
            with user_code(edge.step_id, f"committing epoch {epoch}"):
                sink_of(self.plan, edge).commit(epoch, messages[edge.dest])
        stats.phases = self.timer.end_commit()
        self.on_epoch(epoch, stats)

    def _frames(self) -> dict[Edge, DataFrameSink]:
        """Return the sinks that take Spark data frames, by edge."""
        sinks = {edge: sink_of(self.plan, edge) for edge in self.plan.outputs}
        return {edge: sink for edge, sink in sinks.items() if isinstance(sink, DataFrameSink)}

    def _decoded(self, packets: list[Packet]) -> tuple[Stats, dict[int, list[Any]]]:
        """Print the lines of inspectors; return the statistics, and the sinks' messages by edge.

        Raises:
            FlowError: when a packet has a failure.
        """
        stats = Stats()
        messages: dict[int, list[Any]] = {edge.dest: [] for edge in self.plan.outputs}
        ordered = sorted(packets, key=lambda packet: (packet.origin, packet.seq))
        for packet in settled(ordered, stats):
            messages[packet.dest].append(pickle.loads(packet.payload))
        return stats, messages

    def _call_function(self, frame: DataFrame, edge: Edge, sink: DataFrameSink, epoch: int) -> None:
        """Call the function of a sink with the data frame of an edge's items, if there are any."""
        packets = frame.filter(F.col("dest") == edge.dest)
        if packets.isEmpty() or sink.function is None:
            return
        schema = self._schemas[edge]
        task = partial(_unpack_partition, self.layout, to_arrow(schema), edge.step_id)
        try:
            sink.function(packets.mapInArrow(task, schema), epoch)
        except KeyboardInterrupt:
            raise
        except RAISED as error:
            sink_error = _REFUSED.search(str(error))
            if sink_error:
                raise SinkError(sink_error[1]) from None
            problem = f"its function raised {type(error).__name__}: {first_line(error)}"
            raise StepError(edge.step_id, problem) from error


def frame_schema(
    steps: Mapping[str, Step], stream: StreamId, given: StructType | str | None, owner: str
) -> StructType | str:
    """Return the schema of a stream's items in a data frame: the given one, or the known columns.

    Args:
        steps: the steps of the flow.
        stream: the stream.
        given: the user's schema.
        owner: the class or function that takes the schema, for errors.

    Raises:
        FlowBuildError: there is no schema, and the types of the columns are not known.
        SourceError: a source that takes its columns from its data cannot be read.
    """
    if given is not None:
        return given
    columns = columns_of(steps, stream)
    if isinstance(columns, UnknownColumns):
        raise FlowBuildError(
            f"{owner} needs the schema of stream {str(stream)!r}, such as schema='key string, "
            f"total double': the types of its columns are not known before the flow runs, because "
            f"{columns.reason}"
        )
    schema = to_spark(columns.schema)
    check_schema(owner, schema)
    return schema


def _unpack_partition(
    layout: Layout, schema: pa.Schema, step_id: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the items in the packets of a Spark partition as rows of a schema, in order."""
    packets = list(layout.from_batches(batches))
    yield from rows_of(unpacked(packets, lays_out=True), schema, step_id)
