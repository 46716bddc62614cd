"""Writes to sinks, and the rows of data frames, in the workers, from the packets of outputs."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import pyarrow as pa

from flow.columns.chunks import Chunk, KeyedRecords, Records, as_items, laid_out
from flow.columns.record_batches import view_of
from flow.connectors.formats.columns import FIX, as_columns, merge_small
from flow.connectors.sink import Sink, SinkBatch, WriteContext
from flow.engine.epoch.failures import decode_failure, encode_failure, user_code
from flow.engine.epoch.statistics import Stats, TaskWork, WorkPhase, worker_name
from flow.engine.packets.packets import ERROR, PRINTED, SLICE_BITS, STATS, Packet, sorted_chunks
from flow.engine.plan.plan import Edge, Plan
from flow.errors import FlowError, SinkError
from flow.operators.edges import Output
from flow.process import print_text


def sink_of(plan: Plan, edge: Edge) -> Sink[Any]:
    """Return the sink of an output's edge."""
    return plan.operator(edge.step_id, Output, "an output").sink


def writing_stage(plan: Plan) -> int:
    """Return the number of the stage that writes the outputs: that of the last level.

    Without levels, it is one of its own: a task writes after it has read, in another process.
    """
    return max(1, len(plan.levels))


def settled(
    packets: Sequence[Packet], stats: Stats, show: Callable[[str], None] = print_text
) -> Iterator[Packet]:
    """Yield the packets for outputs, of all packets that an epoch sends to the driver.

    The lines of inspectors are shown first, as they may show the reason of a failure, which is
    raised. Statistics are added to `stats`.

    Args:
        packets: the packets.
        stats: the statistics of the epoch.
        show: prints lines of inspectors.
    """
    for packet in packets:
        if packet.dest == PRINTED:
            show(packet.payload.decode())
    for packet in packets:
        if packet.dest == ERROR:
            raise decode_failure(packet.payload)
        if packet.dest == STATS:
            stats.add(Stats.decode(packet.payload))
        elif packet.dest >= 0:
            yield packet


class OutputTask:
    """Buffer of packets for sinks, which a task writes after its last packet.

    Args:
        plan: the compiled flow.
        context: the context of each sink's write, but for the step.
        left_out: numbers of edges whose sinks Spark writes as data frames.
    """

    def __init__(
        self, plan: Plan, context: WriteContext, left_out: frozenset[int] = frozenset()
    ) -> None:
        self._plan = plan
        self._context = context
        self._left_out = left_out
        self._buffered: dict[int, list[Packet]] = {}
        self._failed = False

    def keep(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """Buffer the packets for sinks, and yield all others."""
        for packet in packets:
            if packet.dest >= 0 and packet.dest not in self._left_out:
                self._buffered.setdefault(packet.dest, []).append(packet)
            else:
                self._failed = self._failed or packet.dest == ERROR
                yield packet

    def write(self) -> Iterator[Packet]:
        """Write the buffered packets unless the task has failed.

        Yields:
            Each sink's message, and the time that the sinks needed.
        """
        packets_of, self._buffered = self._buffered, {}
        stats, work = Stats(), TaskWork(writing_stage(self._plan))
        for dest, packets in sorted(packets_of.items()):
            if not self._failed:
                edge = self._plan.edges[dest]
                with work.timed(WorkPhase.SINKS), stats.timed(edge.step_id):
                    message = _write(self._plan, edge, self._context, packets)
                yield message
        if stats.busy_ns:
            stats.work_ns = work.of_worker(worker_name())
            yield Packet(STATS, 0, self._context.partition, 0, stats.encode())

    def write_all(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """Write the packets for sinks, and yield each sink's message and all other packets."""
        yield from self.keep(packets)
        yield from self.write()

    @property
    def is_done(self) -> bool:
        """True if no packet is buffered."""
        return not self._buffered


def _write(plan: Plan, edge: Edge, context: WriteContext, packets: list[Packet]) -> Packet:
    try:
        with user_code(edge.step_id, "its sink", passes=()):
            sink = sink_of(plan, edge)
            context = replace(context, step_id=edge.step_id)
            message = sink.write(context, unpacked(packets, sink.lays_out))
        return Packet(edge.dest, 0, context.partition, 0, pickle.dumps(message, 5))
    except FlowError as error:
        return Packet(ERROR, 0, context.partition, 0, encode_failure(error))


def unpacked(packets: list[Packet], lays_out: bool = False) -> Iterator[SinkBatch]:
    """Yield the items of one output, by slice, and in order of position within a slice.

    Args:
        packets: the packets.
        lays_out: True if keyed records may come as one batch with the key in a column, instead of
            as objects.
    """
    by_slice: dict[int, list[Packet]] = {}
    for packet in packets:
        by_slice.setdefault(packet.seq >> SLICE_BITS, []).append(packet)
    for _, of_slice in sorted(by_slice.items()):
        for chunk in sorted_chunks(of_slice):
            yield _written(chunk, lays_out)


def _written(chunk: Chunk, lays_out: bool) -> SinkBatch:
    if isinstance(chunk, Records) and view_of(chunk.batch) is None:
        return chunk.batch
    if lays_out and isinstance(chunk, (Records, KeyedRecords)):
        return laid_out(chunk)
    return as_items(chunk).items


FRAME_FIX = "give a schema with types that fit, or map the items before"


def rows_of(
    items: Iterable[SinkBatch], schema: pa.Schema, step_id: str
) -> Iterator[pa.RecordBatch]:
    """Yield items as rows, in their order.

    Args:
        items: the items, in batches.
        schema: the columns.
        step_id: the output's step, for errors.

    Raises:
        SinkError: a value does not fit its column.
    """
    try:
        for written in merge_small(items):
            yield as_columns(written, schema, step_id)
    except SinkError as error:
        raise SinkError(str(error).replace(FIX, FRAME_FIX)) from error.__cause__


def unpacked_by_slice(packets: Iterable[Packet]) -> Iterator[SinkBatch]:
    """Yield the items of one output in order within each shard and slice, one slice in memory.

    Args:
        packets: the packets, those of a shard and slice together.
    """
    for _, of_slice in groupby(packets, lambda one: (one.shard, one.seq >> SLICE_BITS)):
        yield from unpacked(list(of_slice), lays_out=True)
