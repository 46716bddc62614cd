"""A pipeline: the fused stateless steps between two shuffles, and the packets that they make.

Items are values: a sibling branch, another window or a replay may have the same object. The driver
of tests compares the items of a step before and after its functions, see `unchanged`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flow.columns.chunks import SOURCE_BITS, Chunk, Pairs, in_order
from flow.dataflow import Step, StreamId
from flow.engine.epoch.context import SourcePartition, TaskContext
from flow.engine.epoch.work import WorkPhase, resident_bytes, worker_name
from flow.engine.packets.packets import (
    PRINTED,
    PROGRESS,
    SLICE_BITS,
    STATS,
    Packet,
    encode_keyed,
    encode_spread,
    encode_whole,
)
from flow.engine.plan.plan import Edge, EdgeKind, Plan
from flow.engine.progress.meter import Growth, HoldMeter, Meter, Partition, stamp_together
from flow.engine.steps.kernels import run_step
from flow.engine.steps.key_by_key import without_stamps
from flow.errors import RAISED, shorten, step_error
from flow.keyed.logic import CONSTANTS
from flow.keyed.step import OverColumns, Stateful


class Pipeline:
    """Stateless steps of a plan in one task, and the packing of chunks that reach edges.

    One pipeline serves one task of stage 0, or one shard of a level. All its output belongs to one
    source partition.

    Attributes:
        shard: the shard by which unkeyed items reach outputs.
        context: the context of the task.
        buffered_items: the number of items that are buffered at edges.
    """

    def __init__(
        self,
        plan: Plan,
        shards: int,
        shard: int,
        origin: int,
        partition: Partition,
        context: TaskContext,
    ) -> None:
        self._plan = plan
        self._shards = shards
        self.shard = shard
        self._origin = origin
        self._partition = partition
        self.context = context
        self._meters: dict[int, Meter | None] = {}
        self._growths: dict[str, Growth] = {}
        self._hold_meters: dict[int, HoldMeter | None] = {}
        self._buffered: dict[int, list[Chunk]] = {}
        self._packet_count = 0
        self.buffered_items = 0

    def push(self, stream: StreamId, chunk: Chunk) -> None:
        """Run a chunk through the steps that follow a stream, up to the edges."""
        with self.context.work.timed(WorkPhase.LEVELS):
            self._push(stream, chunk)

    def _push(self, stream: StreamId, chunk: Chunk) -> None:
        todo: list[tuple[StreamId, Chunk]] = [(stream, chunk)]
        while todo:
            stream, chunk = todo.pop()
            if not len(chunk):
                continue
            arrived: list[tuple[StreamId, Chunk]] = []
            for hop in self._plan.hops_of(stream):
                if isinstance(hop, Edge):
                    self._buffer(hop, chunk)
                else:
                    arrived.extend(self._run(hop, chunk))
            todo.extend(reversed(arrived))

    def flush(self, slice_number: int = 0) -> Iterator[Packet]:
        """Yield the packets of chunks that reached edges since the last flush.

        A level's measured chunks stay in the buffer until `finish`: items are measured in order of
        position, and each step of the level starts at the first position again.
        """
        chunks_of, self._buffered = self._buffered, {}
        if not self._partition.is_source:
            self._buffered = {
                dest: chunks
                for dest, chunks in chunks_of.items()
                if self._is_measured(self._plan.edges[dest])
            }
        ready = {dest: chunks_of[dest] for dest in chunks_of if dest not in self._buffered}
        yield from self._pack(ready, slice_number)
        self.buffered_items = 0

    def finish(self, slice_number: int = 0) -> Iterator[Packet]:
        """Yield the packets of all buffered chunks, and the progress of measured streams.

        No chunk may be pushed afterwards.
        """
        chunks_of, self._buffered, self.buffered_items = self._buffered, {}, 0
        yield from self._pack(chunks_of, slice_number)
        all_marks = [meter.marks() for meter in self._meters.values() if meter is not None]
        for hold_meter in self._hold_meters.values():
            all_marks += [] if hold_meter is None else hold_meter.marks()
        for marks in all_marks:
            payload = marks.encode()
            for shard in range(self._shards):
                yield self._packet(PROGRESS, shard, slice_number, payload)

    def report(self) -> Iterator[Packet]:
        """Yield the packets of counts and of printed lines; the lines are cleared."""
        if self.context.printed:
            lines = "\n".join(self.context.printed).encode()
            yield Packet(PRINTED, self.shard, self._origin, 0, lines)
            self.context.printed.clear()
        stats, worker = self.context.stats, worker_name()
        stats.workers[worker] = resident_bytes()
        stats.work_ns.update(self.context.work.of_worker(worker))
        yield Packet(STATS, self.shard, self._origin, 0, stats.encode())

    def _run(self, step: Step, chunk: Chunk) -> list[tuple[StreamId, Chunk]]:
        name = step.step_id
        self.context.count(name, "in", len(chunk))
        # Of records each step makes objects of its own.
        objects = chunk.values if isinstance(chunk, Pairs) else getattr(chunk, "items", ())
        with unchanged(self._plan, name, objects), self.context.stats.timed(name):
            chunks = run_step(step.operator, name, chunk, self.context)
        pairs = zip(step.downs, chunks, strict=True)
        output = [(down, out) for down, out in pairs if out is not None]
        self.context.count(name, "out", sum(len(out) for _, out in output))
        return output

    def _buffer(self, edge: Edge, chunk: Chunk) -> None:
        if edge.kind is EdgeKind.OUTPUT:
            self.context.count(edge.step_id, "in", len(chunk))
        self._buffered.setdefault(edge.dest, []).append(chunk)
        self.buffered_items += len(chunk)

    def _pack(self, chunks_of: dict[int, list[Chunk]], slice_number: int) -> Iterator[Packet]:
        """Yield the packets of chunks by edge, measured and stamped if their steps need it."""
        packets = self._packed(chunks_of, slice_number)
        return self.context.work.iterated(WorkPhase.LEVELS, packets)

    def _packed(self, chunks_of: dict[int, list[Chunk]], slice_number: int) -> Iterator[Packet]:
        for edge, chunk in self._measured(chunks_of):
            for shard, payload in self._encode(edge, chunk):
                yield self._packet(edge.dest, shard, slice_number, payload)

    def _measured(self, chunks_of: dict[int, list[Chunk]]) -> Iterator[tuple[Edge, Chunk]]:
        """Yield chunks with their edges, stamped if the step needs it.

        The branches of a source partition that reach a step are one partition there, so they are
        measured together.
        """
        of_step: dict[str, list[tuple[Edge, Meter, Chunk]]] = {}
        for dest, chunks in chunks_of.items():
            edge = self._plan.edges[dest]
            meter, hold_meter = self._meter(edge), self._hold_meter(edge)
            for chunk in in_order(chunks):
                if hold_meter is not None:
                    hold_meter.add(chunk)
                if meter is None:
                    yield edge, chunk
                elif self._partition.is_source:
                    of_step.setdefault(edge.step_id, []).append((edge, meter, chunk))
                else:
                    yield edge, meter.stamp(chunk)
        for parts in of_step.values():
            stamped = stamp_together([(meter, chunk) for _, meter, chunk in parts])
            yield from zip((edge for edge, _, _ in parts), stamped, strict=True)

    def _packet(self, dest: int, shard: int, slice_number: int, payload: bytes) -> Packet:
        seq = (slice_number << SLICE_BITS) | self._packet_count
        self._packet_count += 1
        return Packet(dest, shard, self._origin, seq, payload)

    def _is_measured(self, edge: Edge) -> bool:
        return self._meter(edge) is not None or self._hold_meter(edge) is not None

    def _hold_meter(self, edge: Edge) -> HoldMeter | None:
        """Return the meter for the bound of the edge's step; ``None`` if it measures none."""
        if edge.dest not in self._hold_meters:
            self._hold_meters[edge.dest] = self._new_hold_meter(edge)
        return self._hold_meters[edge.dest]

    def _new_hold_meter(self, edge: Edge) -> HoldMeter | None:
        context, operator = self.context, self._plan.steps[edge.step_id].operator
        many = None if context.control is None else context.control.many
        if not isinstance(operator, Stateful) or operator.declared.holds is None:
            return None
        if not self._plan.measures_bound(edge.step_id, many):
            return None
        return HoldMeter(edge, operator.declared.holds, context.moment, self._sources)

    @property
    def _sources(self) -> Sequence[SourcePartition]:
        """The source partitions by the numbers that positions carry."""
        control = self.context.control
        if control is None:
            return self._plan.sources_of(())
        return control.sources or ()

    def _meter(self, edge: Edge) -> Meter | None:
        """Return the meter of an edge; ``None`` if its step does not measure progress."""
        if edge.dest not in self._meters:
            self._meters[edge.dest] = self._new_meter(edge)
        return self._meters[edge.dest]

    def _new_meter(self, edge: Edge) -> Meter | None:
        operator = self._plan.steps[edge.step_id].operator
        if not isinstance(operator, Stateful) or operator.declared.progress is None:
            return None
        in_columns = isinstance(self._plan.lowering_of(edge.step_id), OverColumns)
        control = self.context.control
        many = None if control is None else control.many
        run_bits = SOURCE_BITS if self._plan.has_source_numbers(many) else 0
        growth = Growth.of(self._partition, run_bits)
        if self._partition.is_source:
            growth = self._growths.setdefault(edge.step_id, growth)
        moment = self.context.moment
        return Meter(edge, operator.declared.progress, self._partition, moment, in_columns, growth)

    def _encode(self, edge: Edge, chunk: Chunk) -> Iterator[tuple[int, bytes]]:
        made_by = edge.stream.step_id
        match edge.kind:
            case EdgeKind.KEYED:
                return encode_keyed(chunk, self._shards, edge)
            case EdgeKind.SPREAD:
                return encode_spread(chunk, self._shards, made_by)
            case EdgeKind.OUTPUT:
                return iter([(self.shard, encode_whole(chunk, made_by))])


@contextmanager
def unchanged(plan: Plan, step_id: str, items: Iterable[Any]) -> Iterator[None]:
    """Check that a block, in which the functions of a step run, changes none of its items.

    Items that cannot be pickled are not checked.

    Args:
        plan: the compiled flow; without `Plan.checks_items` nothing is checked.
        step_id: the step.
        items: the items as Python objects, iterated only if they are checked.

    Raises:
        StepError: when an item has changed.
    """
    checked = map(without_stamps, items) if plan.checks_items else ()
    contents = [(item, _content(item)) for item in checked]
    yield
    for item, content in contents:
        if content is not None and content != _content(item):
            given = pickle.loads(content)
            if not _is_same(given, item):
                problem = (
                    f"a function changed an item that it was given, to {shorten(item)}: other "
                    "steps, windows and replays may have the same object, so change a copy of it"
                )
                raise step_error(step_id, problem, item=given)


def _content(item: Any) -> bytes | None:
    """Return an item as bytes; ``None`` if it never changes, or cannot be pickled."""
    try:
        return None if type(item) in CONSTANTS else pickle.dumps(item, 5)
    except RAISED:  # A user's class may raise any exception as it is pickled.
        return None


def _is_same(given: Any, item: Any) -> bool:
    """Return True for equal items of different bytes, of which one has cached an attribute."""
    try:
        return bool(given == item) and repr(given) == repr(item)
    except RAISED:
        return False
