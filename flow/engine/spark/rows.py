"""Packets as rows of Spark, and their distribution over partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from typing_extensions import override

from flow.engine.epoch.failures import decode_failure
from flow.engine.packets.packets import ERROR, Packet, from_batch, to_batches
from flow.engine.packets.shards import group_ids


@dataclass(frozen=True)
class Layout:
    """Layout of a flow over Spark, fixed for a checkpoint's generation.

    Attributes:
        shards: number of shards of the key space.
        partitions: number of partitions of each level.
        levels: number of levels.
    """

    shards: int
    partitions: int
    levels: int

    def group_of(self, shard: int) -> int:
        """Return the grouping key of a shard in rows."""
        return group_ids(self.shards, self.partitions)[shard]

    def shard_of(self, group: int) -> int:
        """Return the shard of a grouping key."""
        return group_ids(self.shards, self.partitions).index(group)

    def to_batches(self, packets: Iterable[Packet]) -> Iterator[pa.RecordBatch]:
        """Yield packets as Arrow batches of rows."""
        return to_batches(packet._replace(shard=self.group_of(packet.shard)) for packet in packets)

    def from_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
        """Yield the packets in Arrow batches of rows."""
        for batch in batches:
            for packet in from_batch(batch):
                yield packet._replace(shard=self.shard_of(packet.shard))


class FailingLayout(Layout):
    """Layout of a job in which a failure of the flow fails the Spark task that meets it.

    A task that fails early sends only a part of its items. Without a driver that looks at all
    packets before any row is used, Spark must not run the next stage on that part.
    """

    @override
    def to_batches(self, packets: Iterable[Packet]) -> Iterator[pa.RecordBatch]:
        return super().to_batches(raising(packets))


def raising(packets: Iterable[Packet]) -> Iterator[Packet]:
    """Yield packets, and raise the failure in a packet.

    Raises:
        FlowError: when a packet has a failure.
    """
    for packet in packets:
        if packet.dest == ERROR:
            raise decode_failure(packet.payload)
        yield packet
