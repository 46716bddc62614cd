"""Seeds: the state that a new generation of a checkpoint starts with.

A seed is a directory of Parquet files, whose rows are encoded headers and segments of shards. The
tasks of the generation's first epoch read the rows and send them to their shards as packets; a
replay of that epoch does the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from flow.connectors.files.filesystems import locate
from flow.engine.packets.packets import SEED, Packet
from flow.engine.plan.plan import Plan

SCHEMA = pa.schema(
    [
        pa.field("step", pa.string(), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("number", pa.int32()),
        pa.field("content", pa.binary(), nullable=False),
    ]
)


class Seed(NamedTuple):
    """A header or segment of a step's state in a shard.

    Attributes:
        step: the step.
        shard: the shard.
        name: the name of the step's state.
        number: the segment's number; ``None`` for a header.
        content: the bytes of the header or segment.
    """

    step: str
    shard: int
    name: str
    number: int | None
    content: bytes

    def packet(self, seq: int) -> Packet:
        """Return the seed as a packet for its shard; `seq` numbers the packets."""
        head = json.dumps([self.step, self.name, self.number]).encode()
        return Packet(SEED, self.shard, 0, seq, head + b"\n" + self.content)

    @classmethod
    def of_packet(cls, packet: Packet) -> Seed:
        """Return the seed in a packet made by `packet`."""
        head, _, content = packet.payload.partition(b"\n")
        step, name, number = json.loads(head)
        return cls(step, packet.shard, name, number, content)


def seed_files(root: str) -> list[str]:
    """Return the paths of a seed's files, sorted."""
    place = locate(root)
    infos = place.filesystem.get_file_info(fs.FileSelector(place.path, allow_not_found=True))
    return sorted(info.path for info in infos if info.path.endswith(".parquet"))


def read_seeds(root: str, files: Iterable[str]) -> Iterator[Packet]:
    """Yield the seeds in files as packets."""
    # The import loads pandas, which would delay the start of every run, and few runs have a seed.
    import pyarrow.dataset as ds

    filesystem = locate(root).filesystem
    seq = 0
    for file in files:
        dataset = ds.dataset(file, SCHEMA, format="parquet", filesystem=filesystem)
        for batch in dataset.to_batches(batch_size=256):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield Seed(*row).packet(seq)
                seq += 1


def put_seeds(
    packets: list[Packet], plan: Plan, level: int, put: Callable[[str, int | None, bytes], None]
) -> list[Packet]:
    """Store the seeds of a level's steps, and return the other packets.

    Seeds of steps that are no longer in the flow are discarded.
    """
    here = set(plan.levels[level - 1])
    later = {step_id for names in plan.levels[level:] for step_id in names}
    others: list[Packet] = []
    for packet in packets:
        if packet.dest != SEED:
            others.append(packet)
            continue
        seed = Seed.of_packet(packet)
        if seed.step in here:
            put(seed.name, seed.number, seed.content)
        elif seed.step in later:
            others.append(packet)
    return others
