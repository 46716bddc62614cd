"""Deduplication by system time for all keys of a shard at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints, Mask
from flow.columns.chunks import Chunk, KeyedRecords, Pairs, pick, value_reader
from flow.instants import NEVER
from flow.keyed.id_table import IdTable
from flow.keyed.ids import IdOf
from flow.keyed.logic import RejectedValue
from flow.keyed.seen_ids import Ids, SeenIds, concat_ids, groups_of, passing, take_ids
from flow.keyed.shard_logic import (
    KeyFailure,
    SegmentDump,
    ShardEpoch,
    ShardLogic,
    ShardOutput,
    ShardRows,
)

DOWN, DUPLICATES = 0, 1


class ShardIds(ShardLogic):
    """The remembered ids of the keys of a shard, which expire by system time.

    Args:
        id_of: the id of a value.
        ttl_us: how long an id is remembered, in µs.
    """

    def __init__(self, id_of: IdOf, ttl_us: int) -> None:
        self._id_of, self._ttl_us = id_of, ttl_us
        self._table = IdTable()

    @override
    def load(self, content: bytes) -> int:
        return self._table.load(content)

    @override
    def keys(self) -> pa.Array:
        self._table.add_loaded()
        return self._table.keys

    @override
    def changed(self) -> Mask:
        self._table.add_loaded()
        return self._table.changed

    @override
    def run(self, rows: ShardRows | None, epoch: ShardEpoch) -> ShardOutput:
        table, now_us = self._table, epoch.moment.now_us
        table.add_loaded()
        table.evict(table.seen.first_us <= now_us - self._ttl_us)
        output = ShardOutput.empty(2)
        if rows is not None:
            slots = np.repeat(table.slots_of(rows.keys), rows.counts)
            table.changed[slots] = True
            passes = add_passing(
                table, slots, ids_of(self._id_of, rows), np.full(len(slots), now_us), self._ttl_us
            )
            emit(output, DOWN, rows, np.flatnonzero(passes), epoch.wanted)
            emit(output, DUPLICATES, rows, np.flatnonzero(~passes), epoch.wanted)
        return output

    @override
    def dump(self, numbers: Ints, wanted: list[int]) -> list[SegmentDump]:
        self._table.add_loaded()
        return self._table.dump(numbers, wanted, self._due_us())

    @override
    def due_us(self) -> int:
        return int(self._due_us().min(initial=NEVER))

    def _due_us(self) -> Ints:
        due_us: Ints = np.minimum(self._table.first_us() + self._ttl_us, NEVER)
        return due_us


def ids_of(id_of: IdOf, rows: ShardRows, chosen: Ints | None = None) -> Ids | None:
    """Return the id of each row; ``None`` if each is found to be the row's key.

    Args:
        id_of: the id of a value.
        rows: the rows.
        chosen: the numbers of the rows; ``None`` for all.

    Raises:
        KeyFailure: when a value has no id.
    """
    order = rows.order if chosen is None else rows.order[chosen]
    found = id_of.column(rows.values)
    if found is not None:
        ids = take_ids(found, order)
        return None if _are_keys(ids, rows, chosen) else ids
    value_of, ids = value_reader(rows.values), list[Any]()
    for row, index in enumerate(order.tolist()):
        try:
            ids.append(id_of(value_of(index)))
        except RejectedValue as error:
            number = row if chosen is None else int(chosen[row])
            raise KeyFailure(rows.key_of(number), error.value, error) from error
    return ids


def _are_keys(ids: Ids, rows: ShardRows, chosen: Ints | None) -> bool:
    """Return True if the ids are a column of text that repeats the keys of the chosen rows."""
    if isinstance(ids, list) or not pa.types.is_large_string(ids.type) or not len(ids):
        return False
    runs = np.repeat(np.arange(len(rows.counts)), rows.counts)
    if chosen is not None:
        runs = runs[chosen]
    if ids[0].as_py() != rows.keys[int(runs[0])].as_py():
        return False  # Most ids differ from the first row on.
    return bool(rows.keys.take(pa.array(runs)).cast(pa.large_string()).equals(ids))


def add_passing(table: IdTable, slots: Ints, ids: Ids | None, times_us: Ints, ttl_us: int) -> Mask:
    """Return the mask of the rows that pass, and remember the ids of these rows.

    Args:
        table: the keys and their remembered ids.
        slots: the slot of each row, int64, shape (rows,); rows of a slot in order of arrival.
        ids: the id of each row; ``None`` if each is the row's key.
        times_us: the time of each row, int64 µs, shape (rows,).
        ttl_us: how long an id is remembered, in µs.
    """
    seen, new = table.alike(table.seen, SeenIds(slots, ids, times_us))
    groups = np.concatenate([seen.slots, new.slots])
    if seen.ids is not None and new.ids is not None:
        groups = groups_of(groups, concat_ids(seen.ids, new.ids))
    all_times_us = np.concatenate([seen.first_us, new.first_us])
    passes = passing(groups, all_times_us, len(seen.slots), ttl_us)
    table.seen = seen.concat(new.where(passes))
    return passes


def emit(
    output: ShardOutput, port: int, rows: ShardRows, chosen: Ints, wanted: frozenset[int]
) -> None:
    """Emit rows, given by number, on a stream; only count them if no step reads the stream."""
    if port not in wanted:
        output.unread[port] += len(chosen)
    elif len(chosen):
        output.chunks[port].append(_chunk(rows, chosen))


def _chunk(rows: ShardRows, chosen: Ints) -> Chunk:
    """Return rows with their keys and positions."""
    run_of_row = np.repeat(np.arange(len(rows.counts)), rows.counts)
    keys = rows.keys.take(pa.array(run_of_row[chosen]))
    indices, pos = rows.order[chosen], rows.pos[chosen]
    if isinstance(rows.values, pa.RecordBatch):
        return KeyedRecords(keys, rows.values.take(pa.array(indices)), pos)
    return Pairs(keys.to_pylist(), pick(rows.values, indices), pos)
