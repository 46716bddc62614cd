"""A pipeline: the stateless steps between two shuffles, fused, and the packets that leave them."""

from __future__ import annotations

from collections.abc import Iterator

from flow.dataflow import Step, StreamId
from flow.engine.chunks import Chunk, in_order
from flow.engine.context import TaskContext
from flow.engine.kernels import run_step
from flow.engine.packets import (
    PRINTED,
    STATS,
    Packet,
    encode_keyed,
    encode_spread,
    encode_whole,
)
from flow.engine.plan import Edge, EdgeKind, Plan

SLICE_BITS = 24
"""How many packets an origin can make in a slice: the slice's number stands above these bits."""


class Pipeline:
    """Pushes chunks through the stateless steps of a plan, and packs what arrives at edges.

    One pipeline serves one task (in stage 0) or one shard of a level.
    """

    def __init__(self, plan: Plan, shards: int, shard: int, origin: int, context: TaskContext):
        self._plan = plan
        self._shards = shards
        self._shard = shard
        self._origin = origin
        self._context = context
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
        """The packets of all that has arrived at edges since the last flush."""
        waiting, self._waiting, self.waiting_items = self._waiting, {}, 0
        for dest, chunks in waiting.items():
            for chunk in in_order(chunks):
                for shard, payload in self._encode(self._plan.edges[dest], chunk):
                    seq = (slice_number << SLICE_BITS) | self._made
                    yield Packet(dest, shard, self._origin, seq, payload)
                    self._made += 1

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

    def _encode(self, edge: Edge, chunk: Chunk) -> Iterator[tuple[int, bytes]]:
        made_by = edge.stream.step_id
        match edge.kind:
            case EdgeKind.KEYED:
                return encode_keyed(chunk, self._shards, made_by, edge.step_id)
            case EdgeKind.SPREAD:
                return encode_spread(chunk, self._shards, made_by)
            case EdgeKind.OUTPUT:
                return iter([(self._shard, encode_whole(chunk, made_by))])
