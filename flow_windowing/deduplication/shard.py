"""Deduplication by a clock for all keys of a shard.

A value behind the watermark is late. Any other value passes, unless a value of the same id passed
whose timestamp differs by less than the time to live. An id is evicted once the watermark has
passed its timestamp and the time to live: each later value with the id is either late or passes. So
results do not depend on the time of eviction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints, Mask
from flow.columns.chunks import (
    Chunk,
    KeyedRecords,
    Pairs,
    pick,
    radix_order,
)
from flow.columns.record_batches import value_reader
from flow.instants import NEVER, Moment
from flow.keyed.shard_logic import SegmentDump, ShardEpoch, ShardLogic, ShardOutput, ShardRows
from flow.keyed.state import WholeKeys, split_dues
from flow_windowing.columnar.admission.admitted_rows import (
    AdmittedRows,
    ArrivingRows,
    EnteringRows,
    LateItems,
    no_windows,
)
from flow_windowing.columnar.admission.shard_clocks import KeyClocks, ShardClock
from flow_windowing.columnar.state.segments import slots_by_segment
from flow_windowing.columnar.state.shard_state import slots_in
from flow_windowing.deduplication.ids import IdOf, Ids, SeenIds, ids_of, passing_ids, take_ids
from flow_windowing.deduplication.segments import (
    IdSegment,
    KeyedIds,
    decode_segment,
    read_segments,
    writer_of,
)
from flow_windowing.rules.metadata import DEDUP_PORTS, DOWN, DUPLICATES


class ShardIds(ShardLogic):
    """The clocks and remembered ids of the keys of a shard.

    Args:
        clock: the clock.
        id_of: the id of a value.
        ttl_us: how long an id is remembered, in µs.
    """

    def __init__(self, clock: ShardClock[Any], id_of: IdOf, ttl_us: int) -> None:
        self._clock, self._id_of, self._ttl_us = clock, id_of, ttl_us
        self._table = IdTable()
        self._clocks: Any = clock.new_clocks(0)
        self._moment = Moment(0)

    @override
    def load(self, content: bytes) -> int:
        return self._table.load(content)

    @override
    def keys(self) -> pa.Array:
        self._add_loaded()
        return self._table.keys

    @override
    def changed(self) -> Mask:
        self._add_loaded()
        return self._table.changed

    @override
    def run(self, rows: ShardRows | None, epoch: ShardEpoch) -> ShardOutput:
        self._add_loaded()
        self._epoch, self._moment = epoch, epoch.moment
        self._output = ShardOutput([[] for _ in DEDUP_PORTS], [0] * len(DEDUP_PORTS))
        self._advance_to(epoch.moment.before)
        if rows is not None:
            self._add_rows(rows)
        self._advance_to(epoch.moment)
        if epoch.end_of_input:
            self._table.evict(np.ones(len(self._table.seen.slots), np.bool_))
        watermark_us = self._clock.watermarks_us(self._clocks, epoch.moment)
        self._output.watermarks_us = watermark_us[self._table.changed]
        return self._output

    @override
    def dump(self, numbers: Ints, wanted: list[int]) -> list[SegmentDump]:
        self._add_loaded()
        clocks, expires = self._clocks, self._clock.expires
        return self._table.dump(numbers, wanted, self._due_us(), clocks, expires)

    @override
    def due_us(self) -> int:
        return int(split_dues(self._due_us())[0].min(initial=NEVER))

    def _add_loaded(self) -> None:
        """Add the keys of all loaded segments."""
        for clocks in self._table.add_loaded(self._clock):
            self._clocks = self._clocks.concat(clocks)

    def _advance_to(self, moment: Moment) -> None:
        """Advance watermarks to a moment, evict ids, and reset the clocks of keys without ids."""
        table = self._table
        if not len(table.keys):
            return
        watermark_us = self._clock.watermarks_us(self._clocks, moment)
        passed_us = watermark_us[table.seen.slots] - self._ttl_us
        evicted = table.evict(table.seen.first_us <= passed_us)
        self._clock.record_holds(self._clocks, [evicted], moment)
        # A key without ids has no state, so its clock starts again.
        self._clocks.reset(np.flatnonzero(~table.has_ids()))

    def _add_rows(self, rows: ShardRows) -> None:
        """Admit an epoch's rows, and emit those that are on time."""
        table = self._table
        slots = table.slots_of(rows.keys)
        table.changed[slots] = True
        new = len(table.keys) - len(self._clocks)
        self._clocks = self._clocks.concat(self._clock.new_clocks(new))
        arriving = ArrivingRows.of(rows, table.keys, slots, sides=1)
        admitted = self._clock.admit(self._clocks, arriving, self._moment)
        late = LateItems(self._output, self._epoch.wanted, sides=1)
        value_of = value_reader(rows.values)
        on_time = late.reject(
            admitted,
            _entering(admitted),
            0,
            lambda number: value_of(int(rows.order[number])),
            no_windows,
        )
        ids = ids_of(self._id_of, rows, on_time.rows)
        passes = table.add_passing(on_time.slots, ids, on_time.times_us, self._ttl_us)
        self._emit(DOWN, rows, on_time.rows[passes])
        self._emit(DUPLICATES, rows, on_time.rows[~passes])
        pos_of_slot = np.zeros(len(table.keys), np.int64)
        pos_of_slot[slots] = rows.pos[np.cumsum(rows.counts) - 1]
        late.emit(table.keys, pos_of_slot)

    def _emit(self, port: int, rows: ShardRows, chosen: Ints) -> None:
        """Emit rows, given by number, on a stream; only count them if no step reads the stream."""
        if port not in self._epoch.wanted:
            self._output.unread[port] += len(chosen)
        elif len(chosen):
            self._output.chunks[port].append(_chunk(rows, chosen))

    def _due_us(self) -> Ints:
        """Return the due time of each slot, in the encoding of `flow.keyed.state`."""
        evicted_us = np.minimum(self._table.first_us() + self._ttl_us, NEVER)
        return self._clock.due_us(evicted_us, self._clocks, self._moment)


def _entering(admitted: AdmittedRows) -> EnteringRows:
    """Return rows by their numbers in the shard's rows."""
    arriving = admitted.arriving
    slot_of_row = arriving.slots[arriving.run_of_row]
    times_us, by_arrival = admitted.times_us, np.arange(len(slot_of_row))
    columns = (times_us, by_arrival, admitted.watermark_us, arriving.sources)
    return EnteringRows(arriving.numbers, slot_of_row, *columns)


def _chunk(rows: ShardRows, chosen: Ints) -> Chunk:
    """Return rows with their keys and positions."""
    run_of_row = np.repeat(np.arange(len(rows.counts)), rows.counts)
    keys = rows.keys.take(pa.array(run_of_row[chosen]))
    indices, pos = rows.order[chosen], rows.pos[chosen]
    if isinstance(rows.values, pa.RecordBatch):
        return KeyedRecords(keys, rows.values.take(pa.array(indices)), pos)
    return Pairs(keys.to_pylist(), pick(rows.values, indices), pos)


class IdTable:
    """The keys of a shard, by slot, and their remembered ids.

    Attributes:
        keys: the keys, Arrow large text, shape (slots,).
        seen: the remembered ids.
        changed: the mask of slots whose state may differ from the loaded one, shape (slots,).
    """

    def __init__(self) -> None:
        self.keys = pa.array([], pa.large_string())
        self.seen = SeenIds(np.empty(0, np.int64), None, np.empty(0, np.int64))
        self.changed = np.empty(0, np.bool_)
        self._loaded: list[IdSegment | WholeKeys] = []

    def load(self, content: bytes) -> int:
        """Load a segment for the next `add_loaded`, and return the number of its keys."""
        segment = decode_segment(content)
        self._loaded.append(segment)
        return segment.key_count if isinstance(segment, IdSegment) else len(segment.keys)

    def add_loaded(self, clock: ShardClock[Any]) -> list[KeyClocks]:
        """Add the keys of loaded segments of a step with a clock.

        Returns:
            The clocks of the new keys, for one range of slots after the other.
        """
        loaded = read_segments(clock, self._loaded)
        self._loaded = []
        for one, _ in loaded:
            slots = np.repeat(len(self.keys) + np.arange(len(one.keys)), one.counts)
            self._add_keys(one.keys, is_changed=False)
            seen, new = self.alike(self.seen, SeenIds(slots, one.ids, one.first_us))
            self.seen = seen.concat(new)
        return [clocks for _, clocks in loaded]

    def alike(self, left: SeenIds, right: SeenIds) -> tuple[SeenIds, SeenIds]:
        """Return ids of slots with columns of ids, unless each of them all is its key."""
        if all(one.ids is None or not len(one.slots) for one in (left, right)):
            return left._replace(ids=None), right._replace(ids=None)
        return self._with_column(left), self._with_column(right)

    def _with_column(self, seen: SeenIds) -> SeenIds:
        if seen.ids is not None:
            return seen
        return seen._replace(ids=self.keys.take(pa.array(seen.slots)))

    def add_passing(self, slots: Ints, ids: Ids | None, times_us: Ints, ttl_us: int) -> Mask:
        """Return the mask of the rows that pass, and remember the ids of these rows.

        Args:
            slots: the slot of each row, int64, shape (rows,); rows of a slot in order of arrival.
            ids: the id of each row; ``None`` if each is the row's key.
            times_us: the time of each row, int64 µs, shape (rows,).
            ttl_us: how long an id is remembered, in µs.
        """
        seen, new = self.alike(self.seen, SeenIds(slots, ids, times_us))
        passes = passing_ids(seen, new, ttl_us)
        self.seen = seen.concat(new.where(passes))
        return passes

    def slots_of(self, keys: pa.Array) -> Ints:
        """Return the slot of each key, after adding new keys."""
        slots, new = slots_in(self.keys, keys)
        if len(new):
            self._add_keys(new, is_changed=True)
        return slots

    def _add_keys(self, keys: pa.Array, is_changed: bool) -> None:
        self.keys = pa.concat_arrays([self.keys, keys])
        self.changed = np.concatenate([self.changed, np.full(len(keys), is_changed)])

    def evict(self, is_expired: Mask) -> Ints:
        """Remove ids, and return the slots that had one of them; may repeat."""
        if not is_expired.any():
            return np.empty(0, np.int64)
        slots = self.seen.slots[is_expired]
        self.changed[slots] = True
        self.seen = self.seen.where(~is_expired)
        return slots

    def has_ids(self) -> Mask:
        """Return the mask of slots with a remembered id."""
        found = np.zeros(len(self.keys), np.bool_)
        found[self.seen.slots] = True
        return found

    def first_us(self) -> Ints:
        """Return the least time of an id of each slot, `NEVER` for a slot without ids."""
        least = np.full(len(self.keys), NEVER)
        np.minimum.at(least, self.seen.slots, self.seen.first_us)
        return least

    def dump(
        self, numbers: Ints, wanted: list[int], due_us: Ints, clocks: KeyClocks, expires: bool
    ) -> list[SegmentDump]:
        """Return snapshots of segments, see `ShardLogic.dump`.

        Args:
            numbers: the segment number of each slot.
            wanted: the numbers of the segments to return.
            due_us: the due time of each slot.
            clocks: the clock of each slot.
            expires: True if the clocks of silent keys expire.
        """
        slots, ends = slots_by_segment(numbers, wanted, self.has_ids())
        due_us = due_us[slots]
        write = writer_of(self._of_slots(slots), clocks.take(slots), expires, due_us)
        times_us, held_us = split_dues(due_us)
        begin, dumps = 0, list[SegmentDump]()
        for end in ends:
            dump = SegmentDump(None, 0, NEVER)
            if end > begin:
                least_us, least_held_us = times_us[begin:end].min(), held_us[begin:end].min()
                content = write(begin, end)
                dump = SegmentDump(content, end - begin, int(least_us), int(least_held_us))
            dumps.append(dump)
            begin = end
        return dumps

    def _of_slots(self, slots: Ints) -> KeyedIds:
        """Return the keys of slots with their ids, in the order of `slots`."""
        index_of = np.full(len(self.keys), -1)
        index_of[slots] = np.arange(len(slots))
        indices = index_of[self.seen.slots]
        rows = np.flatnonzero(indices >= 0)
        rows = rows[radix_order(indices[rows], len(slots))]
        return KeyedIds(
            self.keys.take(pa.array(slots)),
            np.bincount(indices[rows], minlength=len(slots)),
            None if self.seen.ids is None else take_ids(self.seen.ids, rows),
            self.seen.first_us[rows],
        )
