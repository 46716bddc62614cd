"""Packets: groups of items of one stream and shard; a packet is one row between Python and Spark.

The first byte of a packet's payload is the form of the rest:

- ``I`` items: a pickle of ``(positions, items)``;
- ``Q`` pairs in their order: a pickle of ``(positions, keys, values)``;
- ``P`` pairs, grouped by key: a pickle of ``(keys, counts, positions, values)``, where ``counts``
  has the number of values of each key; plain values are in columns;
- ``R`` records, ``K`` keyed records: an Arrow IPC stream with a column of positions, relative to
  the least of them, and for ``K`` a column of keys;
- ``S`` partial rows of a step (see `flow.keyed.step.Preaggregation`), like ``K``.

Pickles travel only between the workers of one run; none is read from outside the flow.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flow.columns.arrays import Ints
from flow.columns.chunks import (
    AFTER_ITEMS,
    MAX_SOURCES,
    SOURCE_BITS,
    Chunk,
    Items,
    KeyedRecords,
    Pairs,
    Positions,
    Records,
    as_dictionary,
    as_pairs,
    in_order,
    key_array,
    pick,
    radix_order,
    reorder,
)
from flow.columns.plain_columns import PlainColumns
from flow.columns.record_batches import view_of
from flow.engine.packets.shards import hash_keys, shard_of
from flow.engine.plan.plan import Edge
from flow.errors import RAISED, EngineError, error_message, step_error
from flow.keyed.shard_logic import STAMP_COLUMN

CONTROL, STATS, ERROR, PRINTED, PROGRESS, SEED, HOLDS = -1, -2, -3, -4, -5, -6, -7
"""Destinations that are not an edge: the control of an epoch, counts, a failure, the lines of an
inspector, stream progress, a seed of restored state, the holds of steps."""

SLICE_BITS = 24
"""Bits below the slice's number in a packet's `seq`: they number the packets of an origin."""

_POS, _KEY, _FIRST, _SHIFT = "__flow_pos__", "__flow_key__", "first", "shift"
_PROTOCOL = 5
_PADDING = bytes(7)
"""Bytes between the form and an Arrow IPC stream, so that the stream's buffers stay aligned: Arrow
prints a warning of others."""


class Packet(NamedTuple):
    """One row of the table that Spark moves between steps.

    Attributes:
        dest: the number of an edge, or a special destination, such as `CONTROL`.
        shard: the shard that reads the packet.
        origin: the sender: the number of a task in stage 0, or a level and shard.
        seq: the slice in the high bits, and below it the packet's number among those of its origin.
        payload: the content.
    """

    dest: int
    shard: int
    origin: int
    seq: int
    payload: bytes


PACKET_SCHEMA = pa.schema(
    [
        ("dest", pa.int32()),
        ("shard", pa.int32()),
        ("origin", pa.int32()),
        ("seq", pa.int64()),
        ("payload", pa.binary()),
    ]
)
PACKET_DDL = "dest int, shard int, origin int, seq long, payload binary"

_BATCH_ROWS, _BATCH_BYTES = 512, 16 << 20


def to_batches(packets: Iterable[Packet]) -> Iterator[pa.RecordBatch]:
    """Yield packets as Arrow batches of bounded size."""
    rows: list[Packet] = []
    size = 0
    for packet in packets:
        rows.append(packet)
        size += len(packet.payload)
        if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _batch(rows)
            rows, size = [], 0
    if rows:
        yield _batch(rows)


def from_batch(batch: pa.RecordBatch) -> Iterator[Packet]:
    """Yield the packets of an Arrow batch."""
    return map(Packet, *(column.to_pylist() for column in batch.columns))


def _batch(rows: list[Packet]) -> pa.RecordBatch:
    columns = dict(zip(Packet._fields, zip(*rows, strict=True), strict=True))
    return pa.RecordBatch.from_pydict(columns, schema=PACKET_SCHEMA)


def encode_whole(chunk: Chunk, step_id: str) -> bytes:
    """Return one payload with all items of a chunk.

    Args:
        chunk: the items.
        step_id: the step that made the items, for errors.
    """
    match chunk:
        case Records(batch, pos):
            return b"R" + _ipc(batch, pos, None)
        case KeyedRecords(keys, batch, pos):
            return b"K" + _ipc(batch, pos, keys)
        case Pairs(keys, values, pos):
            return b"Q" + _pickled((pos.tobytes(), keys, values), values, step_id)
        case Items(items, pos):
            return b"I" + _pickled((pos.tobytes(), items), items, step_id)


def encode_spread(chunk: Chunk, shards: int, step_id: str) -> Iterator[tuple[int, bytes]]:
    """Yield a payload for each shard that has items; the shards get the items in turn."""
    for shard in range(min(shards, len(chunk))):
        part = reorder(chunk, np.arange(shard, len(chunk), shards))
        yield shard, encode_whole(part, step_id)


def encode_keyed(chunk: Chunk, shards: int, edge: Edge) -> Iterator[tuple[int, bytes]]:
    """Yield a payload of a keyed stream for each shard that has items.

    Errors name the step that made the items, or the step that reads them.
    """
    if isinstance(chunk, KeyedRecords):
        yield from _encode_keyed_records(narrowed(chunk, edge.fields), shards)
    else:
        yield from _encode_pairs(as_pairs(chunk, edge.step_id), shards, edge.stream.step_id)


def encode_partials(partials: KeyedRecords, shards: int) -> Iterator[tuple[int, bytes]]:
    """Yield a payload of partial rows for each shard that has some."""
    for shard, payload in _encode_keyed_records(partials, shards):
        yield shard, b"S" + payload[1:]


def has_partials(packet: Packet) -> bool:
    """Return True if a packet has partial rows."""
    return packet.payload[:1] == b"S"


def narrowed(chunk: KeyedRecords, fields: frozenset[str] | None) -> KeyedRecords:
    """Return records with only the given fields, if they have more; ``None`` for all fields."""
    names = chunk.batch.schema.names
    if fields is None or fields.issuperset(names) or view_of(chunk.batch) is not None:
        return chunk
    columns = [at for at, name in enumerate(names) if name in fields or name == STAMP_COLUMN]
    if not columns:  # A batch without columns would lose its number of rows.
        columns = [0]
    return KeyedRecords(chunk.keys, chunk.batch.select(columns), chunk.pos)


def decode(payload: bytes) -> Chunk:
    """Return the chunk in a payload."""
    form, body = payload[:1], memoryview(payload)[1:]
    if form == b"I":
        pos, items = pickle.loads(body)
        return Items(items, np.frombuffer(pos, np.int64))
    if form == b"Q":
        pos, keys, values = pickle.loads(body)
        return Pairs(keys, values, np.frombuffer(pos, np.int64))
    if form == b"P":
        keys, counts, values, positions = _grouped(body)
        key_of_each = [key for key, count in zip(keys, counts, strict=True) for _ in range(count)]
        return Pairs(key_of_each, values, positions)
    if form in (b"R", b"K", b"S"):
        return _from_ipc(body)
    raise EngineError(f"a packet of unknown form {form!r}: do all workers run the same version?")


class Run(NamedTuple):
    """Values of one key from one packet and their positions, in order of position."""

    key: str
    values: list[Any]
    pos: list[int]


def decode_runs(payload: bytes, step_id: str) -> Iterator[Run]:
    """Yield a run of values for each key in a payload."""
    if payload[:1] != b"P":
        chunk = as_pairs(decode(payload), step_id)
        yield from _group(chunk)
        return
    keys, counts, values, positions = _grouped(memoryview(payload)[1:])
    pos, start = positions.tolist(), 0
    for key, count in zip(keys, counts, strict=True):
        end = start + count
        yield Run(key, values[start:end], pos[start:end])
        start = end


def _grouped(body: memoryview) -> tuple[list[str], list[int], list[Any], Positions]:
    """Return the keys, the number of values of each, the values and positions of form ``P``."""
    keys, counts, pos, content = pickle.loads(body)
    values = content if isinstance(content, list) else PlainColumns.decoded(content).values()
    return keys, np.frombuffer(counts, np.int64).tolist(), values, np.frombuffer(pos, np.int64)


def _group(chunk: Pairs) -> Iterator[Run]:
    runs: dict[str, Run] = {}
    for key, value, pos in zip(chunk.keys, chunk.values, chunk.pos.tolist(), strict=True):
        run = runs.get(key)
        if run is None:
            run = runs[key] = Run(key, [], [])
        run.values.append(value)
        run.pos.append(pos)
    return iter(runs.values())


def _encode_pairs(chunk: Pairs, shards: int, step_id: str) -> Iterator[tuple[int, bytes]]:
    coded = key_array(chunk.keys, step_id).dictionary_encode()
    codes = coded.indices.to_numpy().astype(np.int64)
    shard_of_key = shard_of(hash_keys(coded.dictionary), shards)
    keys_in_order = radix_order(shard_of_key, shards)
    keys = pick(coded.dictionary.to_pylist(), keys_in_order)
    ranks = _inverse(keys_in_order)[codes]
    order = radix_order(ranks, len(keys))
    # Pickling dicts takes less time than making columns of them.
    pickles = any(type(value) is dict for value in chunk.values[:1])
    columns = None if pickles else PlainColumns.of(chunk.values)
    if columns is not None:
        columns = columns.take(order)
    values = pick(chunk.values, order) if columns is None else []
    pos = chunk.pos[order]
    counts = np.bincount(ranks, minlength=len(keys)).astype(np.int64)
    value_ends = np.concatenate([[0], np.cumsum(counts)])
    for shard, first, last in _slices(shard_of_key, shards):
        start, end = int(value_ends[first]), int(value_ends[last])
        part = values[start:end]
        plain = part if columns is None else columns.take(slice(start, end)).encoded()
        content = (keys[first:last], counts[first:last].tobytes(), pos[start:end].tobytes())
        yield shard, b"P" + _pickled((*content, plain), part, step_id)


def _inverse(order: npt.NDArray[np.intp]) -> npt.NDArray[np.int32]:
    """Return the permutation that undoes another."""
    inverse = np.empty(len(order), np.int32)
    inverse[order] = np.arange(len(order))
    return inverse


def _slices(shard_of_each: Ints, shards: int) -> Iterator[tuple[int, int, int]]:
    """Yield each shard that has something, with its begin and end in order of shards."""
    ends = np.cumsum(np.bincount(shard_of_each, minlength=shards)).tolist()
    for shard, (start, end) in enumerate(pairwise([0, *ends])):
        if end > start:
            yield shard, start, end


def _encode_keyed_records(chunk: KeyedRecords, shards: int) -> Iterator[tuple[int, bytes]]:
    """Yield a payload for each shard that has rows, with each distinct key once.

    The rows refer to their keys by number. If few keys repeat, numbering takes longer than sending
    the key of each row.
    """
    chunk = with_coded_keys(chunk)
    if not pa.types.is_dictionary(chunk.keys.type):
        yield from _encode_each_key(chunk, shards)
        return
    coded = chunk.keys
    codes, shard_of_key = coded.indices.to_numpy(), shard_of(hash_keys(coded.dictionary), shards)
    keys_in_order = radix_order(shard_of_key, shards)
    shard_of_row = shard_of_key[codes]
    order = radix_order(shard_of_row, shards)
    ranks, pos = _inverse(keys_in_order)[codes[order]], chunk.pos[order]
    keys, batch = coded.dictionary.take(pa.array(keys_in_order)), chunk.batch.take(pa.array(order))
    key_bounds = {shard: bounds for shard, *bounds in _slices(shard_of_key, shards)}
    for shard, start, end in _slices(shard_of_row, shards):
        first, last = key_bounds[shard]
        integer = np.int16 if last - first < 1 << 15 else np.int32
        numbers = pa.array((ranks[start:end] - first).astype(integer))
        row_keys = pa.DictionaryArray.from_arrays(numbers, keys.slice(first, last - first))
        yield shard, b"K" + _ipc(batch.slice(start, end - start), pos[start:end], row_keys)


_SAMPLE = 16_384
"""The number of rows from which `_mostly_differ` estimates whether keys repeat."""


def with_coded_keys(chunk: KeyedRecords) -> KeyedRecords:
    """Return records with their keys as a dictionary, unless most of the keys differ."""
    if _mostly_differ(chunk.keys):
        return chunk
    return KeyedRecords(as_dictionary(chunk.keys), chunk.batch, chunk.pos)


def _mostly_differ(keys: pa.Array) -> bool:
    """Return True if more than three in four of the first keys are distinct."""
    if pa.types.is_dictionary(keys.type) or len(keys) < 2 * _SAMPLE:
        return False
    return 4 * len(keys[:_SAMPLE].unique()) > 3 * _SAMPLE


def _encode_each_key(chunk: KeyedRecords, shards: int) -> Iterator[tuple[int, bytes]]:
    """Yield a payload for each shard that has rows, with the key of each row."""
    shard_of_row = shard_of(hash_keys(chunk.keys), shards)
    rows = radix_order(shard_of_row, shards)
    order, pos = pa.array(rows), chunk.pos[rows]
    keys, batch = chunk.keys.take(order), chunk.batch.take(order)
    for shard, start, end in _slices(shard_of_row, shards):
        part = batch.slice(start, end - start), pos[start:end], keys.slice(start, end - start)
        yield shard, b"K" + _ipc(*part)


def _pickled(content: Any, values: list[Any], step_id: str) -> bytes:
    try:
        return pickle.dumps(content, _PROTOCOL)
    except RAISED as error:  # A user's `__reduce__` may raise any exception.
        for value in values:
            _check_pickle(value, step_id)
        raise step_error(
            step_id, f"made items that pickle refuses: {error_message(error)}", has_item=False
        ) from error


def _check_pickle(value: Any, step_id: str) -> None:
    try:
        pickle.dumps(value, _PROTOCOL)
    except RAISED as error:
        raise step_error(
            step_id,
            "made a value that cannot be pickled, so it cannot leave its process: "
            f"{error_message(error)}",
            item=value,
        ) from error


def _ipc(batch: pa.RecordBatch, pos: Positions, keys: pa.Array | None) -> bytes:
    check_free(batch, _POS, _KEY)
    relative, field = _narrowed(pos)
    columns, fields = [*batch.columns, relative], [*batch.schema, field]
    if keys is not None:
        columns.append(keys)
        fields.append(pa.field(_KEY, keys.type))
    schema = pa.schema(fields, batch.schema.metadata)
    whole = pa.RecordBatch.from_arrays(columns, schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_batch(whole)
    return b"".join([_PADDING, sink.getvalue()])


def _narrowed(pos: Positions) -> tuple[pa.Array, pa.Field]:
    """Return a column of positions, and its field with the metadata that `_widened` needs.

    The positions are relative to the least of them, and 32 bits wide, if that loses nothing.
    """
    first = int(pos.min(initial=AFTER_ITEMS))
    spread = int(pos.max(initial=first)) - first
    if spread < 1 << 31:
        return _position_column((pos - first).astype(np.int32), first, 0)
    # Rows of one source partition differ in the bits above its number.
    if spread >> SOURCE_BITS < 1 << 31 and not ((pos - first) & MAX_SOURCES).any():
        return _position_column(((pos - first) >> SOURCE_BITS).astype(np.int32), first, SOURCE_BITS)
    return _position_column(pos, 0, 0)


def _position_column(
    relative: npt.NDArray[Any], first: int, shift: int
) -> tuple[pa.Array, pa.Field]:
    column = pa.array(relative)
    return column, pa.field(_POS, column.type, metadata={_FIRST: str(first), _SHIFT: str(shift)})


def _widened(batch: pa.RecordBatch) -> Positions:
    """Return the positions in a batch, int64, shape (rows,); the inverse of `_narrowed`."""
    metadata = batch.schema.field(_POS).metadata
    relative: Positions = batch.column(_POS).to_numpy().astype(np.int64)
    return (relative << int(metadata[_SHIFT.encode()])) + int(metadata[_FIRST.encode()])


def check_free(batch: pa.RecordBatch, *names: str) -> None:
    """Check that records have no columns of the names that the engine uses.

    Raises:
        EngineError: when the records have such a column.
    """
    for name in names:
        if name in batch.schema.names:
            raise EngineError(f"records have a column {name!r}, a reserved name: rename it")


def _from_ipc(body: memoryview) -> Chunk:
    batch = pa.ipc.open_stream(pa.py_buffer(body[len(_PADDING) :])).read_next_batch()
    names = batch.schema.names
    data = batch.select([name for name in names if name not in (_POS, _KEY)])
    pos = _widened(batch)
    if _KEY not in names:
        return Records(data, pos)
    keys = batch.column(_KEY)
    if pa.types.is_dictionary(keys.type):  # The sender chose 16 or 32 bits for the indices.
        keys = pa.DictionaryArray.from_arrays(keys.indices.cast(pa.int32()), keys.dictionary)
    return KeyedRecords(keys, data, pos)


def sorted_chunks(packets: list[Packet]) -> list[Chunk]:
    """Return the chunks of several packets of one stream, in order of position."""
    ordered = sorted(packets, key=lambda packet: (packet.origin, packet.seq))
    return in_order([decode(packet.payload) for packet in ordered])
