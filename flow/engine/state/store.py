"""The store of a shard's state, the compression of its segments, and the seeds that it starts with.

Spark passes state to Python at some 40 MB/s. LZ4 decompresses at 2 GB/s, and compresses typical
state to less than half. After its kind, a packed segment is the length of the content and an LZ4
frame; small segments stay uncompressed.

A seed is the state that a new generation of a checkpoint starts with: a directory of Parquet files,
whose rows are encoded headers and segments of shards. The tasks of the generation's first epoch
read the rows and send them to their shards as packets; a replay of that epoch does the same.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyarrow import fs

from flow.connectors.files.filesystems import locate
from flow.engine.packets.packets import SEED, Packet
from flow.engine.plan.plan import Plan
from flow.errors import CheckpointError
from flow.keyed.state import PACKED, kind_of

PROGRESS_SEGMENT = -1
"""The number of the segment that has the step's stream progress instead of keys."""
FIRST_BLOCK = -2
"""The number of a step's first block in a shard; each later block has the number below."""


class StateStore(Protocol):
    """Storage of the headers and segments of one shard, such as Spark's state or a dict."""

    def read_header(self, step_id: str) -> bytes | None:
        """Return a step's header; ``None`` for a step without state."""

    def write_header(self, step_id: str, content: bytes) -> None:
        """Replace a step's header."""

    def read_segments(self, step_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        """Return segments in the order of `numbers`; ``None`` for an empty segment."""

    def write_segments(self, step_id: str, contents: Mapping[int, bytes | None]) -> None:
        """Replace segments, by number; ``None`` removes a segment."""


class MemoryStore:
    """A `StateStore` in dicts, for the in-process engine."""

    def __init__(self) -> None:
        self._headers: dict[str, bytes] = {}
        self._segments: dict[tuple[str, int], bytes] = {}

    def copy(self) -> MemoryStore:
        """Return an independent copy of the store."""
        store = MemoryStore()
        store._headers.update(self._headers)
        store._segments.update(self._segments)
        return store

    def read_header(self, step_id: str) -> bytes | None:
        return self._headers.get(step_id)

    def write_header(self, step_id: str, content: bytes) -> None:
        self._headers[step_id] = content

    def read_segments(self, step_id: str, numbers: Sequence[int]) -> list[bytes | None]:
        return [self._segments.get((step_id, number)) for number in numbers]

    def write_segments(self, step_id: str, contents: Mapping[int, bytes | None]) -> None:
        for number, content in contents.items():
            if content is None:
                self._segments.pop((step_id, number), None)
            else:
                self._segments[step_id, number] = content


_HEAD = struct.Struct("<2sI")
_SMALL = 256
_CODEC = pa.Codec("lz4")


def pack(content: bytes) -> bytes:
    """Return a segment packed, or unchanged if packing would not make it smaller.

    >>> unpack(pack(bytes(1000))) == bytes(1000), len(pack(bytes(1000))) < 100
    (True, True)
    """
    if len(content) < _SMALL:
        return content
    packed = _HEAD.pack(PACKED, len(content)) + _CODEC.compress(content, asbytes=True)
    return packed if len(packed) < len(content) else content


def unpack(content: bytes, where: str = "the state") -> bytes:
    """Return the content of a packed segment.

    Args:
        content: bytes that `pack` returned.
        where: name of the content, for errors.

    Raises:
        CheckpointError: when the content cannot be unpacked.
    """
    if kind_of(content) != PACKED:
        return content
    try:
        _, size = _HEAD.unpack_from(content)
        return bytes(_CODEC.decompress(content[_HEAD.size :], size, asbytes=True))
    except (OSError, struct.error) as error:  # Arrow raises an OSError for a damaged frame.
        raise CheckpointError(f"{where} cannot be unpacked: {error}") from error


SEED_SCHEMA = pa.schema(
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


SEED_SUMS = "sums.json"
"""The file of the CRC-32 of each of a seed's files, by the file's name in the checkpoint."""


def seed_files(root: str) -> list[str]:
    """Return the paths of a seed's files, sorted."""
    place = locate(root)
    infos = place.filesystem.get_file_info(fs.FileSelector(place.path, allow_not_found=True))
    return sorted(info.path for info in infos if info.path.endswith(".parquet"))


def seeds_in(root: str, files: Iterable[str]) -> Iterator[Seed]:
    """Yield the seeds in files of a directory."""
    # The import loads pandas, which would delay the start of every run, and few runs have a seed.
    import pyarrow.dataset as ds

    dataset = ds.dataset(
        list(files), SEED_SCHEMA, format="parquet", filesystem=locate(root).filesystem
    )
    for batch in dataset.to_batches(batch_size=256):
        yield from map(Seed._make, zip(*map(pa.Array.to_pylist, batch.columns), strict=True))


def read_seeds(root: str, files: Iterable[str]) -> Iterator[Packet]:
    """Yield the seeds in files as packets."""
    for seq, seed in enumerate(seeds_in(root, files)):
        yield Packet(SEED, seed.shard, 0, seq, pickle.dumps(seed, 5))


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
        seed: Seed = pickle.loads(packet.payload)
        if seed.step in here:
            put(seed.name, seed.number, seed.content)
        elif seed.step in later:
            others.append(packet)
    return others
