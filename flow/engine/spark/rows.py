"""Packets as rows of Spark, and where Spark puts them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from flow.engine.packets.packets import Packet, from_batch, to_batches
from flow.engine.packets.shards import group_ids


@dataclass(frozen=True)
class Layout:
    """How a flow is laid out over Spark: part of a checkpoint for life.

    Attributes:
        shards: how many slices the key space has.
        partitions: how many partitions each level has.
        levels: how many levels there are.
    """

    shards: int
    partitions: int
    levels: int

    def group_of(self, shard: int) -> int:
        """The grouping key that stands for a shard in rows."""
        return group_ids(self.shards, self.partitions)[shard]

    def shard_of(self, group: int) -> int:
        """The shard that a grouping key stands for."""
        return group_ids(self.shards, self.partitions).index(group)

    def to_batches(self, packets: Iterable[Packet]) -> Iterator[pa.RecordBatch]:
        """Packets as Arrow batches of rows."""
        return to_batches(packet._replace(shard=self.group_of(packet.shard)) for packet in packets)

    def from_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
        """The packets in Arrow batches of rows."""
        for batch in batches:
            for packet in from_batch(batch):
                yield packet._replace(shard=self.shard_of(packet.shard))
