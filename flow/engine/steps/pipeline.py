"""A pipeline: the fused stateless steps between two shuffles, and the packets that they make.

Items are values: a sibling branch, another window or a replay may have the same object. The driver
of tests compares the items of a step before and after its functions, see `unchanged`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from flow.columns.chunks import SOURCE_BITS, Chunk, KeyedRecords, Pairs, in_order
from flow.dataflow import Step, StreamId
from flow.engine.epoch.context import TaskContext
from flow.engine.epoch.seen_fields import see_fields
from flow.engine.epoch.statistics import WorkPhase, resident_bytes, worker_name
from flow.engine.packets.packets import (
    PRINTED,
    PROGRESS,
    SLICE_BITS,
    STATS,
    Packet,
    encode_keyed,
    encode_partials,
    encode_spread,
    encode_whole,
    narrowed,
    with_coded_keys,
)
from flow.engine.plan.plan import Edge, EdgeKind, Plan
from flow.engine.progress.meter import Growth, HoldMeter, Meter, Partition, stamp_together
from flow.engine.steps.kernels import run_step
from flow.engine.steps.key_by_key import without_stamps
from flow.errors import RAISED, shorten, step_error
from flow.instants import NEVER
from flow.keyed.logic import CONSTANTS
from flow.keyed.step import Capabilities, OverColumns


@dataclass(eq=False)
class Pipeline:
    """Stateless steps of a plan in one task, and the packing of chunks that reach edges.

    One pipeline serves one task of stage 0, or one shard of a level. All its output belongs to one
    source partition.

    Attributes:
        plan: the compiled flow.
        shards: the number of shards.
        shard: the shard by which unkeyed items reach outputs.
        origin: the number of the task among those that make packets.
        partition: the source partition of the output.
        context: the context of the task.
        fronts_us: the front of each step that may aggregate before the shuffle, see
            `flow.keyed.step.Preaggregation`, so far.
        buffered_items: the number of items that are buffered at edges.
    """

    plan: Plan
    shards: int
    shard: int
    origin: int
    partition: Partition
    context: TaskContext
    fronts_us: dict[str, int] = field(default_factory=dict)
    buffered_items: int = field(default=0, init=False)
    _meters: dict[int, tuple[Meter | None, HoldMeter | None]] = field(
        default_factory=dict, init=False
    )
    _growths: dict[str, Growth] = field(default_factory=dict, init=False)
    _buffered: dict[int, list[Chunk]] = field(default_factory=dict, init=False)
    _packet_count: int = field(default=0, init=False)

    def push(self, stream: StreamId, chunk: Chunk) -> None:
        """Run a chunk through the steps that follow a stream, up to the edges."""
        with self.context.work.timed(WorkPhase.STEPS):
            self._push(stream, chunk)

    def _push(self, stream: StreamId, chunk: Chunk) -> None:
        todo: list[tuple[StreamId, Chunk]] = [(stream, chunk)]
        while todo:
            stream, chunk = todo.pop()
            if not len(chunk):
                continue
            arrived: list[tuple[StreamId, Chunk]] = []
            for hop in self.plan.hops_of(stream):
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
        if not self.partition.made_by:
            self._buffered = {
                dest: chunks
                for dest, chunks in chunks_of.items()
                if self._meters_of(self.plan.edges[dest]) != (None, None)
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
        meters = self._meters.values()
        all_marks = [meter.marks() for meter, _ in meters if meter is not None]
        for _, hold_meter in meters:
            all_marks += [] if hold_meter is None else hold_meter.marks()
        for marks in all_marks:
            payload = marks.encode()
            for shard in range(self.shards):
                yield self._packet(PROGRESS, shard, slice_number, payload)

    def report(self) -> Iterator[Packet]:
        """Yield the packets of counts and of printed lines; the lines are cleared."""
        if self.context.printed:
            lines = "\n".join(self.context.printed).encode()
            yield Packet(PRINTED, self.shard, self.origin, 0, lines)
            self.context.printed.clear()
        stats, worker = self.context.stats, worker_name()
        stats.workers[worker] = resident_bytes()
        stats.work_ns.update(self.context.work.of_worker(worker))
        yield Packet(STATS, self.shard, self.origin, 0, stats.encode())

    def _run(self, step: Step, chunk: Chunk) -> list[tuple[StreamId, Chunk]]:
        name = step.step_id
        self.context.count(name, "in", len(chunk))
        # Of records each step makes objects of its own.
        objects = chunk.values if isinstance(chunk, Pairs) else getattr(chunk, "items", ())
        with unchanged(self.plan, name, objects), self.context.stats.timed(name):
            chunks = run_step(step.operator, name, chunk, self.context)
        pairs = zip(step.downs, chunks, strict=True)
        output = [(down, out) for down, out in pairs if out is not None]
        self.context.count(name, "out", sum(len(out) for _, out in output))
        return output

    def _buffer(self, edge: Edge, chunk: Chunk) -> None:
        if edge.kind is EdgeKind.OUTPUT:
            self.context.count(edge.step_id, "in", len(chunk))
        elif paths := self.plan.named.get((edge.step_id, edge.side)):
            see_fields(self.context.stats.seen, edge.step_id, paths, chunk)
        self._buffered.setdefault(edge.dest, []).append(chunk)
        self.buffered_items += len(chunk)

    def _pack(self, chunks_of: dict[int, list[Chunk]], slice_number: int) -> Iterator[Packet]:
        """Yield the packets of chunks by edge, measured and stamped if their steps need it."""
        packets = self._packed(chunks_of, slice_number)
        return self.context.work.iterated(WorkPhase.STEPS, packets)

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
            edge = self.plan.edges[dest]
            meter, hold_meter = self._meters_of(edge)
            for chunk in in_order(chunks):
                if hold_meter is not None:
                    hold_meter.add(chunk)
                if meter is None:
                    yield edge, chunk
                elif self.partition.made_by:
                    of_step.setdefault(edge.step_id, []).append((edge, meter, chunk))
                else:
                    yield edge, meter.stamp(chunk)
        for parts in of_step.values():
            stamped = stamp_together([(meter, chunk) for _, meter, chunk in parts])
            yield from zip((edge for edge, _, _ in parts), stamped, strict=True)

    def _packet(self, dest: int, shard: int, slice_number: int, payload: bytes) -> Packet:
        seq = (slice_number << SLICE_BITS) | self._packet_count
        self._packet_count += 1
        return Packet(dest, shard, self.origin, seq, payload)

    def _meters_of(self, edge: Edge) -> tuple[Meter | None, HoldMeter | None]:
        """Return the meters of an edge, for its step's stream progress and for its bound."""
        if edge.dest not in self._meters:
            of = self.plan.capabilities.get(edge.step_id, Capabilities())
            self._meters[edge.dest] = self._meter(edge, of), self._hold_meter(edge, of)
        return self._meters[edge.dest]

    def _hold_meter(self, edge: Edge, of: Capabilities) -> HoldMeter | None:
        control = self.context.control
        if of.holds is None or not self.plan.measures_bound(edge.step_id, self._many):
            return None
        # The source partitions by the numbers that positions carry.
        sources = self.plan.sources_of(()) if control is None else control.sources or ()
        return HoldMeter(edge, of.holds, self.context.moment, sources)

    def _meter(self, edge: Edge, of: Capabilities) -> Meter | None:
        if of.progress is None:
            return None
        in_columns = isinstance(self.plan.lowered[edge.step_id], OverColumns)
        run_bits = SOURCE_BITS if self.plan.has_source_numbers(self._many) else 0
        growth = Growth.of(self.partition, run_bits)
        if self.partition.made_by:
            growth = self._growths.setdefault(edge.step_id, growth)
        return Meter(edge, of.progress, self.partition, self.context.moment, in_columns, growth)

    @property
    def _many(self) -> frozenset[str] | None:
        """The inputs of many partitions; ``None`` in a task that does not know the epoch."""
        return None if self.context.control is None else self.context.control.many

    def _encode(self, edge: Edge, chunk: Chunk) -> Iterator[tuple[int, bytes]]:
        made_by = edge.stream.step_id
        match edge.kind:
            case EdgeKind.KEYED:
                return self._encode_keyed(edge, chunk)
            case EdgeKind.SPREAD:
                return encode_spread(chunk, self.shards, made_by)
            case EdgeKind.OUTPUT:
                return iter([(self.shard, encode_whole(chunk, made_by))])

    def _encode_keyed(self, edge: Edge, chunk: Chunk) -> Iterator[tuple[int, bytes]]:
        chunk, partials = self._preaggregated(edge, chunk)
        items = encode_keyed(chunk, self.shards, edge) if len(chunk) else ()
        return chain(items, () if partials is None else encode_partials(partials, self.shards))

    def _preaggregated(self, edge: Edge, chunk: Chunk) -> tuple[Chunk, KeyedRecords | None]:
        """Return the items that are not aggregated, and partial rows; ``None`` without such rows.

        The front advances past the chunk; it is unknown after items that are no records.
        """
        name, lowering = edge.step_id, self.plan.lowered[edge.step_id]
        preaggregation = lowering.preaggregation if isinstance(lowering, OverColumns) else None
        if preaggregation is None or not self._may_preaggregate(edge):
            return chunk, None
        if not isinstance(chunk, KeyedRecords):
            self.fronts_us[name] = NEVER
            return chunk, None
        front_us = self.fronts_us.get(name, NEVER)
        records = with_coded_keys(narrowed(chunk, edge.fields))
        if front_us < NEVER:
            self.fronts_us[name] = max(front_us, preaggregation.greatest_us(records))
        return preaggregation.split(records, front_us) or (records, None)

    def _may_preaggregate(self, edge: Edge) -> bool:
        """Return True if the step reads the items of one source, and none hold its watermarks."""
        is_held = self.plan.has_bound(edge.step_id, self._many)
        is_alone = len(self.plan.edges_into(edge.step_id)) == 1
        return bool(self.partition.made_by) and is_alone and not is_held


MOST_CHECKED = 250
"""The number of items, evenly spread, that are checked of twice as many and more."""


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
    every = list(items) if plan.checks_items else []
    checked = map(without_stamps, every[:: len(every) // MOST_CHECKED or 1])
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
