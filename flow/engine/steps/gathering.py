"""The values of a keyed step, gathered from its packets: by key, or as rows grouped by key."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, running_max
from flow.columns.chunks import (
    Chunk,
    KeyedRecords,
    Pairs,
    as_dictionary,
    as_pairs,
    key_array,
    radix_order,
)
from flow.columns.record_batches import SidedRecords, join_batches, view_of
from flow.engine.packets.packets import Packet, Run, decode, decode_runs, has_partials
from flow.engine.plan.plan import Edge
from flow.engine.progress.step_time import StepTime
from flow.errors import EngineError
from flow.keyed.logic import BoundedValue, StampedValue
from flow.keyed.shard_logic import STAMP_COLUMN, ShardRows


def gather_runs(
    edges: tuple[Edge, ...], packets: list[Packet], time: StepTime | None = None
) -> dict[str, Run]:
    """Return the values of each key from all packets bound for a step, in order of position.

    With several edges each value becomes ``(side, value)``; `time` stamps each value.
    """
    runs_of: dict[str, list[Run]] = {}
    for packet in sorted(packets, key=lambda packet: (packet.origin, packet.seq)):
        for run in _received(edges, packet, time):
            runs_of.setdefault(run.key, []).append(run)
    return {key: runs[0] if len(runs) == 1 else _merged(key, runs) for key, runs in runs_of.items()}


def _received(edges: tuple[Edge, ...], packet: Packet, time: StepTime | None) -> Iterable[Run]:
    runs: Iterable[Run] = decode_runs(packet.payload, edges[0].step_id)
    if time is not None:
        runs = time.stamped(packet.dest, packet.origin, list(runs))
    if len(edges) == 1:
        return runs
    (side,) = (edge.side for edge in edges if edge.dest == packet.dest)
    return (run._replace(values=[_sided(value, side) for value in run.values]) for run in runs)


def _sided(value: Any, side: int) -> Any:
    if isinstance(value, (StampedValue, BoundedValue)):
        return value._replace(value=(side, value.value))
    return (side, value)


def _merged(key: str, runs: list[Run]) -> Run:
    values = [value for run in runs for value in run.values]
    pos = [at for run in runs for at in run.pos]
    if any(left.pos[-1] > right.pos[0] for left, right in itertools.pairwise(runs)):
        order = sorted(range(len(pos)), key=pos.__getitem__)
        values, pos = [values[at] for at in order], [pos[at] for at in order]
    return Run(key, _monotonic(values) if isinstance(values[0], StampedValue) else values, pos)


def _monotonic(values: list[StampedValue]) -> list[StampedValue]:
    """Return a key's values with stamps that never decrease.

    Items of several partitions can share a position; each is stamped by its own partition.
    """
    progress = itertools.accumulate((value.progress_us for value in values), max)
    return [StampedValue(one.value, reached) for one, reached in zip(values, progress, strict=True)]


def gather_rows(
    edges: tuple[Edge, ...],
    packets: list[Packet],
    time: StepTime | None = None,
    *,
    takes_sided_records: bool = False,
) -> ShardRows | None:
    """Return the rows of all packets for a step, grouped by key; ``None`` when there are none.

    Rows of one schema stay columns; otherwise all values become Python objects. With several edges
    each value becomes ``(side, value)``, or the values become `SidedRecords`.

    Args:
        edges: the edges that the step reads.
        packets: the packets of those edges.
        time: the step's time in the epoch.
        takes_sided_records: as in `OverColumns`.
    """
    ordered = sorted(packets, key=lambda one: (has_partials(one), one.origin, one.seq))
    decoded = [(packet, chunk) for packet in ordered if len(chunk := decode(packet.payload))]
    if not decoded:
        return None
    reached = None
    if time is not None and time.timeline is not None:
        unstamped = [(packet, *_unstamped(chunk)) for packet, chunk in decoded]
        decoded = [(packet, chunk) for packet, chunk, _ in unstamped]
        progress = [
            time.reached(packet.dest, packet.origin, chunk.pos, stamps)
            for packet, chunk, stamps in unstamped
        ]
        reached = np.concatenate(progress)
    arrived = [pair for pair in decoded if not has_partials(pair[0])]
    partials = [chunk for _, chunk in decoded[len(arrived) :] if isinstance(chunk, KeyedRecords)]
    chunks = [chunk for _, chunk in arrived]
    side_of = {edge.dest: edge.side for edge in edges}
    sides = [side_of[packet.dest] for packet, _ in arrived]
    records = [chunk for chunk in chunks if isinstance(chunk, KeyedRecords)]
    values: Any = None
    if records and len(records) == len(chunks) and (len(edges) == 1 or takes_sided_records):
        values, keys_of = _joined(records, sides, len(edges)), [chunk.keys for chunk in records]
    if values is None:
        step_id = edges[0].step_id
        pairs = [as_pairs(chunk, step_id) for chunk in chunks]
        keys_of = [key_array(one.keys, step_id) for one in pairs]
        values = [value for one in pairs for value in one.values]
        if len(edges) > 1:
            each = [side for side, one in zip(sides, pairs, strict=True) for _ in one.values]
            values = list(zip(each, values, strict=True))
    keys, codes = _coded([*keys_of, *(chunk.keys for chunk in partials)])
    rows = _by_key(keys, codes, _positions([*chunks, *partials]), values, reached)
    rows = rows._replace(partials=tuple(chunk.batch for chunk in partials))
    return _bounded(rows, time)


def _bounded(rows: ShardRows, time: StepTime | None) -> ShardRows:
    """Return rows with their watermark bounds, for a step that does not measure progress."""
    if time is None or time.timeline is not None:
        return rows
    bounds = time.bounds(rows.pos)
    if bounds is None:
        return rows
    return rows._replace(**bounds._asdict())


def _unstamped(chunk: Chunk) -> tuple[Chunk, Ints]:
    """Return a chunk without the stamps of its `Meter`, and the stamps, int64 µs, shape (rows,)."""
    if isinstance(chunk, KeyedRecords):
        stamps = chunk.batch.column(STAMP_COLUMN).to_numpy()
        return KeyedRecords(chunk.keys, chunk.batch.drop_columns([STAMP_COLUMN]), chunk.pos), stamps
    if not isinstance(chunk, Pairs):
        raise EngineError(f"items of type {type(chunk).__name__} have no stamps of stream progress")
    values, reached = zip(*chunk.values, strict=True)
    return Pairs(chunk.keys, list(values), chunk.pos), np.array(reached, np.int64)


def _joined(
    chunks: list[KeyedRecords], sides: list[int], side_count: int
) -> pa.RecordBatch | SidedRecords | None:
    """Return the records of chunks; ``None`` if the records of a side have several schemas."""
    by_side = [
        [chunk for chunk, of in zip(chunks, sides, strict=True) if of == side]
        for side in range(side_count)
    ]
    if not all(_have_one_schema(of_side) for of_side in by_side if of_side):
        return None
    if side_count == 1:
        return join_batches([chunk.batch for chunk in chunks])
    batches = [chunk.batch for chunk in chunks]
    return SidedRecords.of(side_count, list(zip(sides, batches, strict=True)))


def _have_one_schema(chunks: list[KeyedRecords]) -> bool:
    """Return True if records have the same schema, and are not a view of nested values."""
    first = chunks[0].batch
    return view_of(first) is None and all(
        chunk.batch.schema.equals(first.schema, check_metadata=True) for chunk in chunks
    )


def _positions(chunks: list[Chunk]) -> Ints:
    return np.concatenate([chunk.pos for chunk in chunks])


def _coded(columns: list[pa.Array]) -> tuple[pa.Array, Ints]:
    """Return the distinct keys, and the index of each row's key, int64, shape (rows,)."""
    if not any(pa.types.is_dictionary(column.type) for column in columns):
        whole = pa.concat_arrays(columns).dictionary_encode()
        return whole.dictionary, whole.indices.to_numpy().astype(np.int64)
    coded = pa.chunked_array([as_dictionary(column) for column in columns]).unify_dictionaries()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in coded.chunks])
    return coded.chunk(0).dictionary, codes.astype(np.int64)


def _by_key(
    keys: pa.Array,
    codes: Ints,
    pos: Ints,
    values: pa.RecordBatch | SidedRecords | list[object],
    reached: Ints | None,
) -> ShardRows:
    """Return rows grouped by key, and in order of position within a key.

    Args:
        keys: distinct keys, of which some may have no rows.
        codes: index of each row's key, int64, shape (rows,).
        pos: positions, int64, shape (rows,).
        values: the rows' values, in the order of `codes`; they are not moved.
        reached: stream progress at each row, int64 µs, shape (rows,); ``None`` for a step that does
            not measure progress.
    """
    counts = np.bincount(codes, minlength=len(keys))
    if not counts.all():  # A dictionary may hold keys without rows.
        used = np.flatnonzero(counts)
        rank = np.cumsum(counts > 0) - 1
        keys, codes, counts = keys.take(pa.array(used)), rank[codes], counts[used]
    order = radix_order(codes, len(keys))
    codes, pos = codes[order], pos[order]
    same = codes[1:] == codes[:-1]
    if (same & (pos[1:] < pos[:-1])).any():
        again = np.lexsort((pos, codes))
        order, pos = order[again], pos[again]
    if reached is not None:
        # Items of several partitions can share a position; each is stamped by its own partition.
        reached = running_max(reached[order], np.repeat(np.arange(len(counts)), counts))
    return ShardRows(keys, counts, order, pos, values, reached)
