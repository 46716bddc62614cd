"""A pipeline: the stateless steps between two shuffles, fused, and the packets that leave them."""

from __future__ import annotations

from collections.abc import Iterator

from flow.dataflow import Step, StreamId
from flow.engine.chunks import Chunk, in_order
from flow.engine.context import TaskContext
from flow.engine.kernels import run_step
from flow.engine.meter import Meter, Partition
from flow.engine.packets import (
    PRINTED,
    PROGRESS,
    STATS,
    Packet,
    encode_keyed,
    encode_spread,
    encode_whole,
)
from flow.engine.plan import Edge, EdgeKind, Plan
from flow.operators.logic import Stateful

SLICE_BITS = 24
"""How many packets an origin can make in a slice: the slice's number stands above these bits."""


class Pipeline:
    """Pushes chunks through the stateless steps of a plan, and packs what arrives at edges.

    One pipeline serves one task (in stage 0) or one shard of a level. All that it sends belongs to
    one source partition.
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
        self._shard = shard
        self._origin = origin
        self._partition = partition
        self._context = context
        self._meters: dict[int, Meter | None] = {}
        self._waiting: dict[int, list[Chunk]] = {}
        self._made = 0
        self.waiting_items = 0

    def push(self, stream: StreamId, chunk: Chunk) -> None:
        """Send a chunk down a stream, through every step it meets, up to the edges."""
        todo: list[tuple[StreamId, Chunk]] = [(stream, chunk)]
        while todo:
            stream, chunk = todo.pop()
            if not len(chunk):
                continue
            arrived: list[tuple[StreamId, Chunk]] = []
            for hop in self._plan.hops_of(stream):
                if isinstance(hop, Edge):
                    self._wait(hop, chunk)
                else:
                    arrived.extend(self._run(hop, chunk))
            todo.extend(reversed(arrived))

    def flush(self, slice_number: int = 0) -> Iterator[Packet]:
        """The packets of all that has arrived at edges since the last flush.

        Of what a level makes, what is to be measured stays: it has to be measured in order of
        position, and each step of the level starts at the first again.
        """
        waiting, self._waiting = self._waiting, {}
        for dest, chunks in waiting.items():
            edge = self._plan.edges[dest]
            if self._partition.is_source or self._meter(edge) is None:
                yield from self._packed(edge, chunks, slice_number)
            else:
                self._waiting[dest] = chunks
        self.waiting_items = 0

    def finish(self, slice_number: int = 0) -> Iterator[Packet]:
        """The packets of all that is left, and of how far the streams have come that are measured.

        Nothing can be pushed afterwards.
        """
        waiting, self._waiting, self.waiting_items = self._waiting, {}, 0
        for dest, chunks in waiting.items():
            yield from self._packed(self._plan.edges[dest], chunks, slice_number)
        for meter in self._meters.values():
            if meter is not None:
                payload = meter.marks().encode()
                for shard in range(self._shards):
                    yield self._packet(PROGRESS, shard, slice_number, payload)

    def report(self) -> Iterator[Packet]:
        """The packets of what was counted and printed; the counts start afresh."""
        if self._context.printed:
            lines = "\n".join(self._context.printed).encode()
            yield Packet(PRINTED, self._shard, self._origin, 0, lines)
            self._context.printed.clear()
        yield Packet(STATS, self._shard, self._origin, 0, self._context.stats.encode())

    def _run(self, step: Step, chunk: Chunk) -> list[tuple[StreamId, Chunk]]:
        self._context.count(step.step_id, "in", len(chunk))
        made = run_step(step.operator, step.step_id, chunk, self._context)
        sent = [(down, one) for down, one in zip(step.downs, made, strict=True) if one is not None]
        self._context.count(step.step_id, "out", sum(len(one) for _, one in sent))
        return sent

    def _wait(self, edge: Edge, chunk: Chunk) -> None:
        if edge.kind is EdgeKind.OUTPUT:
            self._context.count(edge.step_id, "in", len(chunk))
        self._waiting.setdefault(edge.dest, []).append(chunk)
        self.waiting_items += len(chunk)

    def _packed(self, edge: Edge, chunks: list[Chunk], slice_number: int) -> Iterator[Packet]:
        meter = self._meter(edge)
        for chunk in in_order(chunks):
            measured = chunk if meter is None else meter.stamp(chunk)
            for shard, payload in self._encode(edge, measured):
                yield self._packet(edge.dest, shard, slice_number, payload)

    def _packet(self, dest: int, shard: int, slice_number: int, payload: bytes) -> Packet:
        seq = (slice_number << SLICE_BITS) | self._made
        self._made += 1
        return Packet(dest, shard, self._origin, seq, payload)

    def _meter(self, edge: Edge) -> Meter | None:
        """What measures an edge's items, if the step that reads them wants it."""
        if edge.dest not in self._meters:
            self._meters[edge.dest] = self._made_meter(edge)
        return self._meters[edge.dest]

    def _made_meter(self, edge: Edge) -> Meter | None:
        operator = self._plan.steps[edge.step_id].operator
        if not isinstance(operator, Stateful) or operator.progress is None:
            return None
        in_columns = operator.shard_logic is not None
        return Meter(edge, operator.progress, self._partition, self._context.moment, in_columns)

    def _encode(self, edge: Edge, chunk: Chunk) -> Iterator[tuple[int, bytes]]:
        made_by = edge.stream.step_id
        match edge.kind:
            case EdgeKind.KEYED:
                return encode_keyed(chunk, self._shards, edge)
            case EdgeKind.SPREAD:
                return encode_spread(chunk, self._shards, made_by)
            case EdgeKind.OUTPUT:
                return iter([(self._shard, encode_whole(chunk, made_by))])
