"""The keys of a shard of a step with a clock, over columns; `ClockedDriver` does it for one key.

An epoch has three phases. In the first, watermarks advance to the system time. In the second, the
epoch's values arrive, those of each key in order of arrival, and watermarks advance with the
values. In the third, if the input ends, watermarks pass all times.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, ranges
from flow.columns.chunks import AFTER_ITEMS, AT_END, BEFORE_ITEMS
from flow.columns.record_batches import value_reader
from flow.instants import NEVER, Moment
from flow.keyed.shard_logic import (
    BlockStore,
    SegmentDump,
    ShardEpoch,
    ShardLogic,
    ShardOutput,
    ShardRows,
)
from flow.keyed.state import split_dues
from flow_windowing.columnar.admission.admitted_rows import (
    AdmittedRows,
    ArrivingRows,
    EnteringRows,
    LateItems,
)
from flow_windowing.columnar.admission.shard_clocks import ShardClock
from flow_windowing.columnar.state.segments import SegmentContent, build_shard_state, write_segments
from flow_windowing.columnar.state.shard_state import ShardState, StateForm, slots_in
from flow_windowing.columnar.state.snapshots import read_segment
from flow_windowing.columnar.values.blocks import (
    least_of_blocks_us,
    move_to_blocks,
    with_blocks,
)
from flow_windowing.rules.metadata import PORTS, WindowMetadata


class ClockedShard(ShardLogic):
    """The clocks and the state of the keys of a shard.

    A subclass takes the rows of an epoch in `_enter_rows`, and does in `_advance` the work of the
    watermarks.

    Args:
        form: the form of the state in segments, with the clock.
        sides: the number of streams of the step; with more than one, values are ``(side, value)``.
        late_after_us: the time for which a value behind the watermark is still on time; ``None`` if
            `_enter_rows` rejects late values.
    """

    def __init__(self, form: StateForm, sides: int, late_after_us: int | None) -> None:
        self._form, self._sides, self._late_after_us = form, sides, late_after_us
        self._clock: ShardClock[Any] = form.clock
        self._loaded: list[SegmentContent] = []
        self._state = ShardState.empty(self._clock.new_clocks(0), form.aggregators)
        self._changed = np.empty(0, np.bool_)

    def _begin_epoch(self) -> None:
        """Begin the epoch `_epoch`, whose output is `_made`."""

    @abstractmethod
    def _enter_rows(
        self,
        entering: EnteringRows,
        arriving: ArrivingRows,
        watermark_us: Ints,
        pos_of_slot: Ints,
    ) -> None:
        """Process the rows of an epoch that the step does not reject.

        The clocks of their keys have advanced to the end of the epoch.

        Args:
            entering: the rows, sorted by slot, those of a key in order of arrival.
            arriving: all rows with a timestamp, also of keys whose rows are rejected.
            watermark_us: the watermark of each slot after the rows.
            pos_of_slot: the position in the epoch of the output of each slot.
        """

    @abstractmethod
    def _advance(self, watermark_us: Ints, pos_of_slot: Ints) -> list[Ints]:
        """Do the work of the watermark of each slot; return the slots it changed, may repeat."""

    @abstractmethod
    def _next_us(self) -> Ints:
        """Return the watermark at which each slot is due, `NEVER` for none."""

    @abstractmethod
    def _missed_windows(
        self, late: EnteringRows, values: list[Any]
    ) -> Sequence[tuple[WindowMetadata, ...]]:
        """Return the windows that each late row misses, given the values of the rows."""

    @property
    def _after_items(self) -> int:
        """The position of output after the items, of which results have that of the end."""
        return AT_END if self._epoch.end_of_input else AFTER_ITEMS

    def _end_epoch(self) -> None:
        """Emit at the end of an epoch, before the end of the input."""

    def _holds_us(self) -> Ints:
        """Return the hold of each slot, of the streams `ShardEpoch.holding`; `NEVER` for none."""
        return np.full(self._state.count, NEVER)

    @override
    def load(self, content: bytes) -> int:
        parts = list(read_segment(self._form, content, self.blocks))
        self._loaded += parts
        return sum(part.key_count for part in parts)

    @override
    def keys(self) -> pa.Array:
        self._add_loaded()
        return self._state.keys

    @override
    def changed(self) -> Mask:
        self._add_loaded()
        return self._changed

    @override
    def run(self, rows: ShardRows | None, epoch: ShardEpoch) -> ShardOutput:
        self._add_loaded()
        self._epoch = epoch
        self._made = ShardOutput([[] for _ in PORTS], [0] * len(PORTS))
        self._late = LateItems(self._made, epoch.wanted, self._sides)
        self._begin_epoch()
        self._advance_to(epoch.moment.before, BEFORE_ITEMS)
        if rows is not None:
            self._add_rows(rows)
        # Partitions may hold the watermark at the last row, and no longer after it; and the rows of
        # a step that reads results have not advanced its watermarks yet.
        before, after = epoch.moment.before, epoch.moment
        was_held = rows is not None and (rows.others_us is not None or before.judges_epoch)
        if was_held or after != before:
            self._advance_to(after, self._after_items)
        self._end_epoch()
        if epoch.end_of_input:
            count = self._state.count
            end_us = np.full(count, NEVER)
            self._read_due_blocks(end_us)
            self._advance(end_us, np.full(count, AT_END))
        if self._changed.any():
            watermarks_us = self._clock.watermarks_us(self._state.clocks, epoch.moment)
            self._made.watermarks_us = watermarks_us[self._changed]
        return self._made

    @override
    def dump(self, numbers: Ints, wanted: list[int]) -> list[SegmentDump]:
        self._add_loaded()
        if self.blocks is not None:
            self._move_to_blocks(self.blocks, np.isin(numbers, wanted))
        holds_us = self._holds_us() if self._epoch.holding else None
        return write_segments(self._form, self._state, self._due_us(), holds_us, numbers, wanted)

    def _move_to_blocks(self, store: BlockStore, is_moving: Mask) -> None:
        """Move what keys with many values hold to new blocks.

        Args:
            store: the storage of the blocks.
            is_moving: the mask of the slots whose segments are written next.
        """
        state = self._state
        state.buffered, blocks = move_to_blocks(state.buffered, is_moving, store)
        state.blocks = np.append(state.blocks, blocks)

    @override
    def hold_us(self) -> int:
        self._add_loaded()
        return int(self._holds_us().min(initial=NEVER)) if self._epoch.holding else NEVER

    @override
    def due_us(self) -> int:
        return int(split_dues(self._due_us())[0].min(initial=NEVER))

    def _add_loaded(self) -> None:
        """Add the keys of all loaded segments to the state, in one concatenation."""
        if self._loaded:
            state = build_shard_state(self._form, self._loaded)
            self._loaded = []
            self._state = self._state.concat(state)
            self._changed = np.concatenate([self._changed, np.zeros(state.count, np.bool_)])

    def _advance_to(self, moment: Moment, pos: int) -> None:
        """Advance watermarks to a moment; the output has position `pos`."""
        state = self._state
        if not state.count:
            return
        watermark_us = self._clock.watermarks_us(state.clocks, moment)
        self._read_due_blocks(watermark_us)
        touched = self._advance(watermark_us, np.full(state.count, pos))
        self._clock.record_holds(self._state.clocks, touched, moment)
        self._expire_keys(moment)

    def _expire_keys(self, moment: Moment) -> None:
        """Reset keys that have no values in state, and whose last value is older than the limit."""
        if not self._clock.expires:
            return
        state = self._state
        is_overdue = self._clock.expires_us(state.clocks, moment) <= moment.inputs_now_us
        expired = np.flatnonzero(is_overdue & ~state.has_values())
        if len(expired):
            state.reset_keys(expired)
            self._changed[expired] = True

    def _add_rows(self, rows: ShardRows) -> None:
        """Admit an epoch's rows, and process those that the step does not reject."""
        slots = self._slots_of(rows.keys)
        self._changed[slots] = True
        state, epoch = self._state, self._epoch
        pos_of_slot = np.full(state.count, self._after_items)
        pos_of_slot[slots] = rows.pos[np.cumsum(rows.counts) - 1]
        arriving = ArrivingRows.of(rows, state.keys, slots, self._sides)
        watermark_us = self._clock.watermarks_us(state.clocks, epoch.moment.before).copy()
        admitted = self._clock.admit(state.clocks, arriving, epoch.moment)
        entering = self._late.reject(
            admitted,
            self._numbered(admitted),
            self._late_after_us,
            value_reader(rows.values),
            self._missed_windows,
        )
        if len(admitted.times_us):
            watermark_us[admitted.arriving.slots] = admitted.of_keys_us
            self._read_due_blocks(watermark_us)
            self._enter_rows(entering, admitted.arriving, watermark_us, pos_of_slot)
        self._late.emit(self._state.keys, pos_of_slot)
        self._expire_keys(epoch.moment)
        self._state.reset_arrivals()

    def _read_due_blocks(self, watermark_us: Ints) -> None:
        """Read the blocks with a value that is due, given the watermark of each slot."""
        if len(self._state.blocks):
            self._read_blocks(self._due_of_blocks_us() <= watermark_us[self._state.blocks["slot"]])

    def _due_of_blocks_us(self) -> Ints:
        """Return the least watermark at which a value of each block is due."""
        return least_of_blocks_us(self._state.blocks)

    def _read_blocks(self, is_needed: Mask) -> None:
        """Move the values of blocks to the buffered values."""
        state = self._state
        if self.blocks is None or not is_needed.any():
            return
        blocks, state.blocks = state.blocks[is_needed], state.blocks[~is_needed]
        contents = self.blocks.take(blocks["number"].tolist())
        state.buffered = with_blocks(
            state.buffered, blocks, contents, self._form.kind == "interval"
        )
        self._changed[blocks["slot"]] = True

    def _numbered(self, admitted: AdmittedRows) -> EnteringRows:
        """Return admitted rows with their arrival numbers."""
        state, arriving = self._state, admitted.arriving
        slot_of_row = arriving.slots[arriving.run_of_row]
        numbers = ranges(state.arrival_counts[arriving.slots], arriving.counts)
        state.arrival_counts[arriving.slots] += arriving.counts
        columns = (admitted.times_us, numbers, admitted.watermark_us, arriving.sources)
        return EnteringRows(arriving.order, slot_of_row, *columns)

    def _slots_of(self, keys: pa.Array) -> Ints:
        """Add new keys to the state, and return the slot of each key."""
        state = self._state
        slots, new = slots_in(state.keys, keys)
        if len(new):
            clocks = self._clock.new_clocks(len(new))
            new_state = ShardState.of_new_keys(new, clocks, self._form.aggregators)
            self._state = state.concat(new_state)
            self._changed = np.concatenate([self._changed, np.ones(len(new), np.bool_)])
        return slots

    def _due_us(self) -> Ints:
        """Return the due time of each slot, in the encoding of `flow.keyed.state`."""
        state, moment = self._state, self._epoch.moment
        due_us = self._clock.due_us(self._next_us(), state.clocks, moment)
        if not self._clock.expires:
            return due_us
        return np.where(state.has_values(), due_us, self._clock.expires_us(state.clocks, moment))
