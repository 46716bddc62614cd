"""The driver's part of an epoch: commits of sinks, the statistics and the phases of the epoch.

The phases follow each other without a gap, but for those of the job:

- ``waiting``: from the commit of the last epoch to the planning: Spark's commit of the state, the
  trigger's interval, and the time without new items.
- ``planning``: the sources plan the epoch.
- ``starting``: Spark logs the offsets, and plans the job.
- ``reading``, ``steps``, ``sinks``: the tasks of the job read, run the steps, and write to sinks.
- ``spark``: the rest of the job's duration: scheduling, shuffles, the JVM, the start of Python, and
  the way of items between the JVM and Python.
- ``commit``: the sinks commit, after the functions of sinks that take data frames.

A phase that an epoch does not have is missing: a replayed epoch is not planned again, and the first
epoch of a run follows no other.

The tasks of a job run side by side, and each alternates between phases, so `split_job` estimates
the duration of ``reading``, ``steps`` and ``sinks`` from the time that tasks worked in them. A job
is a sequence of stages: one that reads, and one for each level. A stage lasts at least as long as
its busiest worker works, and at least as long as all of its work takes on all slots of the session,
which is the number of tasks that run at a time::

    max(greatest work of a worker, work of all workers / slots)

The longer of the two is taken: each phase gets what the busiest worker worked in it, or the work of
all workers in it by the slots. The duration of a phase is the sum over stages, and ``spark`` is
what remains of the job. If the sum is longer than the job, as where one task writes while another
one still reads, the three phases are scaled down to the job, and nothing remains. So no phase is
negative, and the four have the job's duration as their sum.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from flow.columns.known_columns import UnknownColumns
from flow.connectors.dataframe import DataFrameSink, check_schema, to_arrow, to_spark
from flow.connectors.sink import CheckpointContext, OutputContext
from flow.dataflow import Step, StreamId
from flow.engine.epoch.failures import user_code
from flow.engine.epoch.statistics import Stats, Work, WorkPhase
from flow.engine.packets.packets import Packet
from flow.engine.plan.declared_columns import columns_of
from flow.engine.plan.plan import Edge, Plan
from flow.engine.spark.shipping import Layout
from flow.engine.steps.outputs import rows_of, settled, sink_of, unpacked
from flow.errors import RAISED, FlowBuildError, SinkError, StepError, first_line
from flow.process import print_text

PHASES = ("waiting", "planning", "starting", "reading", "steps", "sinks", "spark", "commit")
"""The phases in order."""


class EpochTimer:
    """The start and the end of each phase; one epoch at a time.

    Args:
        clock: returns the time in seconds.
        slots: the number of tasks that run at a time.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, slots: int = 1) -> None:
        self._clock = clock
        self._slots = slots
        self._committed: float | None = None
        self._asked = 0.0
        self._phases: dict[str, float] = {}
        self._planned: float | None = None
        self._job_started = self._job_ended = 0.0

    def start_planning(self) -> None:
        """Begin the planning; a planning that finds no work is begun again."""
        self._asked = self._clock()

    def end_planning(self) -> None:
        """End the planning of an epoch."""
        self._planned = self._clock()
        self._phases["planning"] = self._planned - self._asked
        if self._committed is not None:
            self._phases["waiting"] = self._asked - self._committed

    def start_job(self) -> None:
        """Begin the job of an epoch."""
        self._job_started = self._clock()

    def end_job(self, work_ns: Mapping[Work, int]) -> None:
        """End the job of an epoch.

        Args:
            work_ns: the time that tasks worked, in ns.
        """
        self._job_ended = self._clock()
        self._phases |= split_job(self._job_ended - self._job_started, work_ns, self._slots)

    def complete(
        self, phases: Mapping[str, float], job_started: float, committed: float
    ) -> dict[str, float]:
        """End an epoch whose job another process of this machine has timed.

        Args:
            phases: the phases from the start of the job on, in seconds.
            job_started: the time of the job's start.
            committed: the time of the commit.

        Returns:
            The duration of each phase in seconds, in order.
        """
        if self._planned is not None:
            self._phases["starting"] = job_started - self._planned
        ended = {**self._phases, **phases}
        self._committed, self._phases, self._planned = committed, {}, None
        return {name: ended[name] for name in PHASES if name in ended}

    @property
    def job_span(self) -> tuple[float, float]:
        """The time of the last job's start, and that of the commit after it."""
        return self._job_started, self._committed or self._job_ended

    def end_commit(self) -> dict[str, float]:
        """End the epoch, and return the duration of each phase in seconds, in order."""
        committed = self._clock()
        phases = {"commit": committed - self._job_ended}
        return self.complete(phases, self._job_started, committed)


def split_job(seconds: float, work_ns: Mapping[Work, int], slots: int) -> dict[str, float]:
    """Return the duration of each phase of a job in seconds; their sum is that of the job.

    Args:
        seconds: the duration of the job.
        work_ns: the time that tasks worked, in ns.
        slots: the number of tasks that run at a time.
    """
    found = dict.fromkeys(WorkPhase, 0.0)
    for of_workers in _by_stage(work_ns).values():
        for phase, ns in _longest(list(of_workers.values()), slots).items():
            found[phase] += ns / 1e9
    bound = sum(found.values())
    scale = seconds / bound if bound > seconds else 1.0
    split = {phase.value: duration * scale for phase, duration in found.items()}
    return {**split, "spark": max(0.0, seconds - sum(split.values()))}


def _by_stage(work_ns: Mapping[Work, int]) -> dict[int, dict[str, Counter[WorkPhase]]]:
    """Return the work in each phase by stage, and then by worker."""
    by_stage: dict[int, dict[str, Counter[WorkPhase]]] = {}
    for (stage, worker, phase), ns in work_ns.items():
        by_stage.setdefault(stage, {}).setdefault(worker, Counter())[phase] += ns
    return by_stage


def _longest(workers: Sequence[Counter[WorkPhase]], slots: int) -> dict[WorkPhase, float]:
    """Return the work of the busiest worker or a slot's share of all work, whichever is longer."""
    busiest = max(workers, key=Counter.total)
    total = sum(workers, Counter[WorkPhase]())
    if busiest.total() * slots >= total.total():
        return {phase: float(ns) for phase, ns in busiest.items()}
    return {phase: ns / slots for phase, ns in total.items()}


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
        show: prints lines of inspectors.
        in_program: takes the messages of sinks by edge that commit in the program
            (`Sink.commits_in_program`), where that is another process; ``None`` in the program.
    """

    plan: Plan
    layout: Layout
    run_id: str
    on_written: Callable[[int], None]
    on_epoch: EpochHook
    timer: EpochTimer = field(default_factory=EpochTimer)
    checkpoint: CheckpointContext | None = None
    show: Callable[[str], None] = print_text
    in_program: Callable[[Mapping[int, list[Any]]], None] | None = None
    _schemas: dict[Edge, StructType | str] = field(default_factory=dict, init=False)

    def open(self, resuming: bool) -> None:
        """Open the sinks; if a sink fails to open, close the sinks opened before.

        Raises:
            FlowError: when two outputs write to the same target, or a sink cannot be opened.
        """
        for edge, of_frames in frame_sinks(self.plan).items():
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

    def write(self, frame: DataFrame, epoch: int) -> None:
        """Compute an epoch and write its outputs in one Spark job, then commit them.

        Args:
            frame: packets of the last stage, which writes the outputs (`shipping.TaskWriting`).
            epoch: the epoch's number.

        Raises:
            FlowError: when a step, a source or a sink fails; no output is committed then.
        """
        self.timer.start_job()
        frames = frame_sinks(self.plan)
        if frames:
            frame = frame.persist()
        try:
            to_driver = frame.filter(~frame["dest"].isin(*left_out(self.plan))) if frames else frame
            rows = zip(*(column.to_pylist() for column in to_driver.toArrow().columns), strict=True)
            stats, messages = self._decoded([Packet(*row) for row in rows])
            self.timer.end_job(stats.work_ns)
            self.on_written(epoch)
            for edge, sink in frames.items():
                self._call_function(frame, edge, sink, epoch)
        finally:
            if frames:
                frame.unpersist()
        commit_outputs(self.plan, self._own_edges(), epoch, messages)
        if self.in_program is not None:
            self.in_program({edge.dest: messages[edge.dest] for edge in program_edges(self.plan)})
        stats.phases = self.timer.end_commit()
        self.on_epoch(epoch, stats)

    def _own_edges(self) -> list[Edge]:
        """Return the edges whose sinks commit in this process."""
        others = () if self.in_program is None else program_edges(self.plan)
        return [edge for edge in self.plan.outputs if edge not in others]

    def _decoded(self, packets: list[Packet]) -> tuple[Stats, dict[int, list[Any]]]:
        """Print the lines of inspectors; return the statistics, and the sinks' messages by edge.

        Raises:
            FlowError: when a packet has a failure.
        """
        stats = Stats()
        messages: dict[int, list[Any]] = {edge.dest: [] for edge in self.plan.outputs}
        ordered = sorted(packets, key=lambda packet: (packet.origin, packet.seq))
        for packet in settled(ordered, stats, self.show):
            messages[packet.dest].append(pickle.loads(packet.payload))
        return stats, messages

    def _call_function(self, frame: DataFrame, edge: Edge, sink: DataFrameSink, epoch: int) -> None:
        """Call the function of a sink with the data frame of an edge's items, if there are any."""
        packets = frame.filter(frame["dest"] == edge.dest)
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


def frame_sinks(plan: Plan) -> dict[Edge, DataFrameSink]:
    """Return the sinks of a flow that take Spark data frames, by edge."""
    sinks = {edge: sink_of(plan, edge) for edge in plan.outputs}
    return {edge: sink for edge, sink in sinks.items() if isinstance(sink, DataFrameSink)}


def left_out(plan: Plan) -> frozenset[int]:
    """Return the edges that no task writes, because their sinks take Spark data frames."""
    return frozenset(edge.dest for edge in frame_sinks(plan))


def program_edges(plan: Plan) -> list[Edge]:
    """Return the edges whose sinks commit in the program, wherever the others do."""
    return [edge for edge in plan.outputs if sink_of(plan, edge).commits_in_program]


def commit_outputs(
    plan: Plan, edges: Iterable[Edge], epoch: int, messages: Mapping[int, list[Any]]
) -> None:
    """Commit an epoch of some outputs.

    Args:
        plan: the flow.
        edges: the outputs.
        epoch: the epoch's number.
        messages: the messages of the outputs' tasks, by the number of an edge.

    Raises:
        FlowError: when a sink fails.
    """
    for edge in edges:
        with user_code(edge.step_id, f"committing epoch {epoch}"):
            sink_of(plan, edge).commit(epoch, messages[edge.dest])


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
