"""Deduplication by a clock for all keys of a shard at once; `DedupDriver` does it for a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, starts_of
from flow.columns.chunks import Pairs, value_reader
from flow.instants import MIN_US, NEVER, Moment
from flow.keyed.due import split_dues
from flow.keyed.id_table import IdTable
from flow.keyed.ids import IdOf
from flow.keyed.logic import Counted
from flow.keyed.shard_ids import add_passing, emit, ids_of
from flow.keyed.shard_logic import SegmentDump, ShardEpoch, ShardLogic, ShardOutput, ShardRows
from flow_windowing.columnar.state.key_clocks import KeyClocks
from flow_windowing.columnar.state.watermarks import (
    ClockRows,
    UnreadableTime,
    WatermarkRule,
)
from flow_windowing.contract.metadata import LateReason, LateValue
from flow_windowing.rules.lateness import counted_late, is_behind
from flow_windowing.rules.streams import DEDUP_PORTS, DOWN, DUPLICATES, LATE


class _TimedRows(NamedTuple):
    """The rows of an epoch with their timestamps, grouped by key.

    Attributes:
        rows: the rows, without dropped ones.
        slots: the slot of each key.
        times_us: the timestamp of each row.
        watermark_us: the watermark of each row's key after the row.
        refused: the mask of rows that are too far ahead; ``None`` for no row.
    """

    rows: ShardRows
    slots: Ints
    times_us: Ints
    watermark_us: Ints
    refused: Mask | None

    @property
    def slot_of_row(self) -> Ints:
        """The slot of each row's key."""
        return np.repeat(self.slots, self.rows.counts)


class ShardTimedIds(ShardLogic):
    """The clocks and remembered ids of the keys of a shard.

    Args:
        rule: the timestamps and watermarks.
        id_of: the id of a value.
        ttl_us: how long an id is remembered, in µs.
    """

    def __init__(self, rule: WatermarkRule, id_of: IdOf, ttl_us: int) -> None:
        self._rule, self._id_of, self._ttl_us = rule, id_of, ttl_us
        self._table = IdTable()
        self._clocks = KeyClocks.initial(0)
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
        watermark_us = self._rule.now(self._clocks, epoch.moment)
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
        for columns in self._table.add_loaded():
            self._clocks = self._clocks.concat(KeyClocks.of_columns(columns))

    def _advance_to(self, moment: Moment) -> None:
        """Advance watermarks to a moment, evict ids, and reset the clocks of keys without ids."""
        table = self._table
        if not len(table.keys):
            return
        watermark_us = self._rule.now(self._clocks, moment)
        passed_us = watermark_us[table.seen.slots] - self._ttl_us
        evicted = table.evict(table.seen.first_us <= passed_us)
        self._rule.record_holds(self._clocks, [evicted], moment)
        # A key without ids has no state, so its clock starts again.
        self._clocks.reset(np.flatnonzero(~table.has_ids()))

    def _add_rows(self, rows: ShardRows) -> None:
        timed = self._timed(rows)
        if timed is None:
            return
        rows, slot_of_row = timed.rows, timed.slot_of_row
        self._table.changed[timed.slots] = True
        is_ahead = np.zeros(len(slot_of_row), np.bool_) if timed.refused is None else timed.refused
        is_late = is_behind(timed.times_us, timed.watermark_us) & ~is_ahead
        self._emit_late(timed, is_late, is_ahead)
        on_time = np.flatnonzero(~is_late & ~is_ahead)
        ids = ids_of(self._id_of, rows, on_time)
        passes = add_passing(
            self._table, slot_of_row[on_time], ids, timed.times_us[on_time], self._ttl_us
        )
        wanted = self._epoch.wanted
        emit(self._output, DOWN, rows, on_time[passes], wanted)
        emit(self._output, DUPLICATES, rows, on_time[~passes], wanted)

    def _timed(self, rows: ShardRows) -> _TimedRows | None:
        """Return rows with timestamps and watermarks, and advance clocks; ``None`` for no rows."""
        value_of = value_reader(rows.values)
        try:
            times = self._rule.times(rows.values, self._epoch.moment, value_of)
        except UnreadableTime as error:
            raise error.of_key(rows, value_of) from error.rejected
        if times.dropped is not None:
            is_dropped = times.dropped[rows.order]
            note = f"dropped a value: {times.note}"
            self._output.counted.append(Counted("dropped", int(is_dropped.sum()), note))
            rows = _without(rows, is_dropped)
            if not len(rows.order):
                return None
        return self._advanced(rows, times.us[rows.order])

    def _advanced(self, rows: ShardRows, times_us: Ints) -> _TimedRows:
        """Return rows with the watermark at each, and advance the clocks of their keys."""
        slots = self._table.slots_of(rows.keys)
        new = len(self._table.keys) - len(self._clocks.base_us)
        self._clocks = self._clocks.concat(KeyClocks.initial(new))
        clock_rows = ClockRows(
            np.repeat(np.arange(len(slots)), rows.counts),
            times_us,
            starts_of(rows.counts),
            rows.reached_us,
            rows.others_us,
            rows.own_us,
        )
        before, after = self._epoch.before, self._moment
        advance = self._rule.advance(self._clocks, slots, clock_rows, before, after)
        return _TimedRows(rows, slots, times_us, advance.watermark_us, advance.refused)

    def _emit_late(self, timed: _TimedRows, is_late: Mask, is_ahead: Mask) -> None:
        """Emit and count the rows that are late or too far ahead."""
        count = int(is_ahead.sum())
        if count:
            self._output.counted.append(Counted(LateReason.TOO_FAR_AHEAD.value, count))
        sources = timed.rows.sources
        if is_late.any():
            late_by_us = (timed.watermark_us - timed.times_us)[is_late]
            self._output.counted += counted_late(
                late_by_us, None if sources is None else sources[is_late]
            )
        chosen = np.flatnonzero(is_late | is_ahead)
        if LATE not in self._epoch.wanted:
            self._output.unread[LATE] += len(chosen)
        elif len(chosen):
            keys = self._table.keys.take(pa.array(timed.slot_of_row[chosen])).to_pylist()
            values = self._late_values(timed, chosen, is_ahead)
            self._output.chunks[LATE].append(Pairs(keys, values, timed.rows.pos[chosen]))

    def _late_values(self, timed: _TimedRows, chosen: Ints, is_ahead: Mask) -> list[LateValue[Any]]:
        value_of: Callable[[int], Any] = value_reader(timed.rows.values)
        # The watermark before the first value precedes all datetimes.
        watermark_us = np.maximum(timed.watermark_us[chosen], MIN_US - 1)
        columns = (timed.rows.order[chosen], timed.times_us[chosen], watermark_us, is_ahead[chosen])
        return [
            LateValue.of_us(
                value_of(row),
                time_us,
                mark_us,
                (),
                LateReason.TOO_FAR_AHEAD if ahead else LateReason.LATE,
            )
            for row, time_us, mark_us, ahead in zip(*(one.tolist() for one in columns), strict=True)
        ]

    def _due_us(self) -> Ints:
        """Return the due time of each slot, in the encoding of `flow.keyed.due`."""
        evicted_us = np.minimum(self._table.first_us() + self._ttl_us, NEVER)
        return self._rule.due_us(evicted_us, self._clocks, self._moment)

    def _clock_columns(self) -> Ints:
        """Return the clocks in columns, as their `ClockLogic` would snapshot them."""
        clocks = self._clocks
        columns = [clocks.base_us, clocks.set_at_us]
        if clocks.held_watermark_us is not None or self._rule.forget_after_us < NEVER:
            columns.append(clocks.last_value_us)
        if clocks.held_watermark_us is not None:
            columns.append(clocks.held_watermark_us)
        return np.array(columns)


def _without(rows: ShardRows, is_dropped: Mask) -> ShardRows:
    """Return rows without the dropped ones, and without keys that have no other rows."""
    run_of_row = np.repeat(np.arange(len(rows.counts)), rows.counts)[~is_dropped]
    counts = np.bincount(run_of_row, minlength=len(rows.counts))
    has_rows = np.flatnonzero(counts)
    measures = [None if column is None else column[~is_dropped] for column in rows[5:]]
    keys = rows.keys.take(pa.array(has_rows))
    order, pos = rows.order[~is_dropped], rows.pos[~is_dropped]
    return ShardRows(keys, counts[has_rows], order, pos, rows.values, *measures)
