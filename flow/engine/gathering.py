"""What has arrived for a keyed step that runs many keys at once: its rows, key by key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flow.engine.chunks import (
    Chunk,
    KeyedRecords,
    as_dictionary,
    as_pairs,
    join_batches,
    key_array,
    ordered_by,
)
from flow.engine.packets import Packet, decode
from flow.engine.plan import Edge
from flow.engine.row_views import view_of
from flow.operators.shards import Ints, ShardRows


def gather_rows(edge: Edge, packets: list[Packet]) -> ShardRows | None:
    """The rows in all packets bound for a step, `None` when there are none.

    Rows of one schema stay columns; where there are others, all become Python objects.
    """
    ordered = sorted(packets, key=lambda one: (one.origin, one.seq))
    chunks = [chunk for chunk in (decode(one.payload) for one in ordered) if len(chunk)]
    if not chunks:
        return None
    records = [chunk for chunk in chunks if isinstance(chunk, KeyedRecords)]
    if len(records) == len(chunks) and _alike(records):
        keys, codes = _coded([chunk.keys for chunk in records])
        batch = join_batches([chunk.batch for chunk in records])
        return _by_key(keys, codes, _positions(chunks), batch)
    pairs = [as_pairs(chunk, edge.step_id) for chunk in chunks]
    keys, codes = _coded([key_array(one.keys, edge.step_id) for one in pairs])
    values = [value for one in pairs for value in one.values]
    return _by_key(keys, codes, _positions(chunks), values)


def _alike(chunks: list[KeyedRecords]) -> bool:
    first = chunks[0].batch
    return view_of(first) is None and all(
        chunk.batch.schema.equals(first.schema, check_metadata=True) for chunk in chunks
    )


def _positions(chunks: list[Chunk]) -> Ints:
    return np.concatenate([chunk.pos for chunk in chunks])


def _coded(columns: list[pa.Array]) -> tuple[pa.Array, Ints]:
    """The keys, each once, and which of them each row has."""
    coded = pa.chunked_array([as_dictionary(column) for column in columns]).unify_dictionaries()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in coded.chunks])
    return coded.chunk(0).dictionary, codes.astype(np.int64)


def _by_key(
    keys: pa.Array, codes: Ints, pos: Ints, values: pa.RecordBatch | list[object]
) -> ShardRows:
    counts = np.bincount(codes, minlength=len(keys))
    if not counts.all():  # a dictionary may hold keys that no row has
        used = np.flatnonzero(counts)
        rank = np.cumsum(counts > 0) - 1
        keys, codes, counts = keys.take(pa.array(used)), rank[codes], counts[used]
    order = ordered_by(codes, len(keys))
    codes, pos = codes[order], pos[order]
    same = codes[1:] == codes[:-1]
    if (same & (pos[1:] < pos[:-1])).any():
        again = np.lexsort((pos, codes))
        order, pos = order[again], pos[again]
    return ShardRows(keys, counts, order, pos, values)
