"""Seeds of a new layout: Parquet files with the keys of steps, by new shards and segments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from flow.columns.chunks import key_array
from flow.connectors.files.places.place import locate
from flow.engine.packets.shards import hash_keys, shard_of
from flow.engine.state.layout import lay_out
from flow.engine.state.seeding import SCHEMA, Seed
from flow.engine.state.store import PROGRESS_SEGMENT
from flow.errors import CheckpointError
from recovery.reading.epoch_state import KeySnapshot, decode_segment

FILES = 32
"""The number of files, which tasks read in parallel."""
_ROWS = 1_000


@dataclass(frozen=True)
class UnplacedState:
    """The state of a step without a layout.

    Attributes:
        step_id: the step.
        name: the name of the step's state.
        keys: the step's keys.
        progress: the encoded stream progress, for a step that has it.
        settings: the step's settings in headers, if all shards agree; else empty.
    """

    step_id: str
    name: str
    keys: list[KeySnapshot]
    progress: bytes | None = None
    settings: str = ""


def seeds_of(state: UnplacedState, shards: int) -> Iterator[Seed]:
    """Yield the seeds of a step's state in a layout with `shards` shards."""
    step_id, name = state.step_id, state.name
    dealt: dict[int, dict[str, tuple[bytes, int]]] = defaultdict(dict)
    keys = [kept.key for kept in state.keys]
    numbers = shard_of(hash_keys(key_array(keys, step_id)), shards).tolist()
    for shard, kept in zip(numbers, state.keys, strict=True):
        dealt[shard][kept.key] = kept.snapshot, kept.due_us
    known = {kept.key: kept.counts for kept in state.keys if kept.counts is not None}
    for shard, of_shard in sorted(dealt.items()):
        counts = {key: known[key] for key in of_shard if key in known}
        is_counted = len(counts) == len(of_shard)
        header, segments = lay_out(
            of_shard, step_id, state.settings, counts if is_counted else None
        )
        yield Seed(step_id, shard, name, None, header.encode())
        for number, segment in enumerate(segments):
            content = segment.encode()
            if content is not None:
                yield Seed(step_id, shard, name, number, content)
    if state.progress is not None:
        for shard in range(shards):
            yield Seed(step_id, shard, name, PROGRESS_SEGMENT, state.progress)


def write_seeds(root: str, seeds: Iterable[Seed]) -> None:
    """Write seeds to a new directory; without seeds, a file without rows.

    So a missing directory, or a directory without files, is damage.
    """
    place = locate(root)
    filesystem, path = place.filesystem, place.path
    filesystem.create_dir(path)
    rows: dict[int, list[Seed]] = defaultdict(list, {0: []})
    writers: dict[int, pq.ParquetWriter] = {}
    try:
        for seed in seeds:
            number = seed.shard % FILES
            rows[number].append(seed)
            if len(rows[number]) >= _ROWS:
                _write(writers, filesystem, path, number, rows.pop(number))
        for number, left in rows.items():
            _write(writers, filesystem, path, number, left)
    finally:
        for writer in writers.values():
            writer.close()


def check_seeds(root: str, states: Iterable[UnplacedState], shards: int) -> None:
    """Read written seeds, and compare them with the original state.

    Raises:
        CheckpointError: if a key is missing, duplicate or different.
    """
    found: dict[str, dict[str, tuple[bytes, int]]] = defaultdict(dict)
    for seed in read_seed_rows(root):
        if seed.number is None or seed.number == PROGRESS_SEGMENT:
            continue
        for kept in decode_segment(seed.content, seed.shard, seed.number, seed.step):
            if kept.key in found[seed.name] or _shard(kept.key, seed.step, shards) != seed.shard:
                raise CheckpointError(f"{root}: key {kept.key!r} is not where it belongs")
            found[seed.name][kept.key] = kept.snapshot, kept.due_us
    for state in states:
        wanted = {kept.key: (kept.snapshot, kept.due_us) for kept in state.keys}
        if found.get(state.name, {}) != wanted:
            raise CheckpointError(f"{root}: step {state.step_id!r} has not kept all its keys")


def read_seed_rows(root: str) -> Iterator[Seed]:
    """Yield the seeds in a directory."""
    place = locate(root)
    filesystem = place.filesystem
    for info in filesystem.get_file_info(fs.FileSelector(place.path)):
        table = pq.read_table(info.path, filesystem=filesystem, schema=SCHEMA)
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
            yield Seed(*row)


def _write(
    writers: dict[int, pq.ParquetWriter],
    filesystem: fs.FileSystem,
    path: str,
    number: int,
    rows: list[Seed],
) -> None:
    if number not in writers:
        name = f"{path}/part-{number:02d}.parquet"
        writers[number] = pq.ParquetWriter(name, SCHEMA, filesystem=filesystem)
    columns = {field.name: [getattr(row, field.name) for row in rows] for field in SCHEMA}
    writers[number].write_table(pa.table(columns, SCHEMA))


def _shard(key: str, step_id: str, shards: int) -> int:
    return int(shard_of(hash_keys(key_array([key], step_id)), shards)[0])
