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
from flow.columns.chunks import Chunk, KeyedRecords, Pairs, pick, value_reader
from flow.instants import NEVER, Moment
from flow.keyed.due import split_dues
from flow.keyed.shard_logic import SegmentDump, ShardEpoch, ShardLogic, ShardOutput, ShardRows
from flow_windowing.columnar.admission.key_clocks import KeyColumns, KeyLogics
from flow_windowing.columnar.admission.late_items import LateItems, no_windows
from flow_windowing.columnar.admission.rows import AdmittedRows, ArrivingRows, EnteringRows
from flow_windowing.columnar.admission.shard_clocks import LogicShardClock, ShardClock
from flow_windowing.deduplication.ids import IdOf, ids_of
from flow_windowing.deduplication.segments import clock_columns
from flow_windowing.deduplication.table import IdTable
from flow_windowing.rules.settings import DEDUP_PORTS, DOWN, DUPLICATES


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
        self._output = ShardOutput.empty(len(DEDUP_PORTS))
        self._advance_to(epoch.before)
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
        return self._table.dump(numbers, wanted, self._due_us(), self._clock_columns())

    @override
    def due_us(self) -> int:
        return int(split_dues(self._due_us())[0].min(initial=NEVER))

    def _add_loaded(self) -> None:
        """Add the keys of all loaded segments."""
        for clocks in self._table.add_loaded():
            self._clocks = self._clocks.concat(self._restored(clocks))

    def _restored(self, clocks: Ints | list[Any]) -> KeyColumns | KeyLogics:
        """Return clocks from their columns, or from the snapshot of each."""
        if isinstance(self._clock, LogicShardClock):
            return self._clock.restored_clocks(clocks)
        return KeyColumns.of_columns(clock_columns(clocks) if isinstance(clocks, list) else clocks)

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
        admitted = self._clock.admit(self._clocks, arriving, self._epoch.before, self._moment)
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
        """Return the due time of each slot, in the encoding of `flow.keyed.due`."""
        evicted_us = np.minimum(self._table.first_us() + self._ttl_us, NEVER)
        return self._clock.due_us(evicted_us, self._clocks, self._moment)

    def _clock_columns(self) -> Ints | list[Any]:
        """Return the clocks in columns, or the snapshot of each key's clock."""
        clocks = self._clocks
        if isinstance(clocks, KeyLogics):
            return clocks.snapshots()
        columns = [clocks.base_us, clocks.set_at_us]
        if clocks.held_watermark_us is not None or self._clock.expires:
            columns.append(clocks.last_value_us)
        if clocks.held_watermark_us is not None:
            columns.append(clocks.held_watermark_us)
        return np.array(columns)


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
