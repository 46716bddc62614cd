"""The windowing step of all keys of a shard, over columns; `WindowDriver` does the same for a key.

In each phase of an epoch, buffered values that the watermark has passed enter their windows before
windows close.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints, order_by, run_starts
from flow.columns.chunks import AFTER_ITEMS, BEFORE_ITEMS
from flow.columns.record_batches import value_reader
from flow.instants import NEVER
from flow.keyed.shard_logic import KeyFailure
from flow_windowing.columnar.admission.admitted_rows import ArrivingRows, EnteringRows, no_windows
from flow_windowing.columnar.aggregates.accumulators import FailedRow
from flow_windowing.columnar.step.clocked_shard import ClockedShard, numbers_in_runs
from flow_windowing.columnar.step.emitting import Emitter, missed_windows
from flow_windowing.columnar.values.buffered_values import BufferedValues, objects_of
from flow_windowing.columnar.values.records import Values, fields_as_records, object_reader
from flow_windowing.columnar.windows.windowing import RowBatch, WindowPlan
from flow_windowing.rules.metadata import LateReason, WindowMetadata
from flow_windowing.rules.triggers import owes_updates
from flow_windowing.rules.watermark import has_closed


class ShardWindows(ClockedShard):
    """The clocks, open windows and buffered values of the keys of a shard."""

    def __init__(self, plan: WindowPlan) -> None:
        windowing = plan.windowing
        super().__init__(plan.form, plan.sides, 0 if windowing.is_late_at_once else None)
        self._plan, self._windowing = plan, windowing

    @override
    def _begin_epoch(self) -> None:
        self._emitter = Emitter(self._plan, self._made, self._epoch.wanted)
        if owes_updates(self._epoch.changed_from, self._plan.emit):
            self._emit_owed_updates()

    @override
    def _end_epoch(self) -> None:
        self._emit_changed()

    def _emit_changed(self) -> None:
        """Emit results of open windows that changed in the epoch, in order of first change."""
        changes = self._state.windows.first_changes
        if changes is None:
            return
        rows = np.flatnonzero(changes < NEVER)
        rows = rows[order_by(self._state.windows.slots[rows], changes[rows])]
        self._state.windows.first_changes = None
        self._emit_open(rows, AFTER_ITEMS)

    def _emit_owed_updates(self) -> None:
        """Emit results of all open windows, after `emit` changed from "close" to updates."""
        self._emit_open(np.arange(len(self._state.windows)), BEFORE_ITEMS)

    def _emit_open(self, rows: Ints, pos: int) -> None:
        """Emit results of open windows, with position `pos` in the epoch."""
        state = self._state
        if self._windowing.may_merge:
            state.windows.ensure_emitted()[rows] = True
        self._emitter.emit_results(state.windows, rows, state.keys, np.full(state.count, pos))

    @override
    def _enter_rows(
        self,
        entering: EnteringRows,
        arriving: ArrivingRows,
        watermark_us: Ints,
        pos_of_slot: Ints,
    ) -> None:
        if self._plan.waits:
            entering = self._buffer(entering, arriving, watermark_us, pos_of_slot)
        self._enter(entering, arriving.values, value_reader(arriving.values), pos_of_slot)
        self._advance(watermark_us, pos_of_slot)

    @override
    def _missed_windows(
        self, late: EnteringRows, values: list[Any]
    ) -> Sequence[tuple[WindowMetadata, ...]]:
        return missed_windows(self._windowing, *self._windowing.ids_at(late.times_us))

    def _buffer(
        self, entering: EnteringRows, arriving: ArrivingRows, watermark_us: Ints, pos_of_slot: Ints
    ) -> EnteringRows:
        """Buffer rows, and enter buffered values that the watermark has passed.

        Returns:
            The rows that need no buffer, because they enter after those values; sorted by slot and
            by the watermark at which they enter.
        """
        buffered = self._state.buffered
        # A value behind the watermark enters a count window at once, at the current watermark.
        enters_us = np.maximum(entering.times_us, entering.watermark_us)
        entering = entering._replace(watermark_us=enters_us)
        skips = buffered.skips_buffer(entering.slots, enters_us, watermark_us)
        new = entering.take(~skips)
        values = object_reader(arriving.values)(new.rows)
        self._state.buffered = buffered.merge(
            BufferedValues(new.slots, new.times_us, new.numbers, values, new.watermark_us)
        )
        self._release(watermark_us, pos_of_slot)
        direct = entering.take(skips)
        return direct.take(order_by(direct.slots, direct.watermark_us))

    @override
    def _advance(self, watermark_us: Ints, pos_of_slot: Ints) -> list[Ints]:
        """Enter buffered values that each slot's watermark passes, and close windows."""
        released = self._release(watermark_us, pos_of_slot)
        state = self._state
        self._late.emit(state.keys, pos_of_slot)
        windows = state.windows
        closed_at_us = self._windowing.closed_at_us(state)
        is_closing = has_closed(closed_at_us, watermark_us[windows.slots])
        rows = np.flatnonzero(is_closing)
        self._emitter.emit_closed(windows, rows, closed_at_us[rows], state.keys, pos_of_slot)
        if not len(rows):
            return released
        closed = windows.slots[rows]
        self._changed[closed] = True
        state.counted_values = self._windowing.counted_after(state, rows)
        state.windows = windows.take(~is_closing)
        return [*released, closed]

    def _release(self, watermark_us: Ints, pos_of_slot: Ints) -> list[Ints]:
        """Enter buffered values that the watermark has passed; return the slots of the values."""
        state = self._state
        is_passed = state.buffered.times_us <= watermark_us[state.buffered.slots]
        if not is_passed.any():
            return []
        released, state.buffered = state.buffered.release(is_passed)
        self._changed[released.slots] = True
        entering = EnteringRows(
            np.arange(len(released)),
            released.slots,
            released.times_us,
            released.numbers,
            released.enters_us,
        )
        values = fields_as_records(objects_of(released.values), self._plan.fields)
        self._enter(entering, values, released.values.__getitem__, pos_of_slot)
        return [released.slots]

    def _enter(
        self,
        entering: EnteringRows,
        values: Values,
        value_of: Callable[[int], Any],
        pos_of_slot: Ints,
    ) -> None:
        """Add rows to the windows that are open as each row enters, and emit unassigned rows.

        Raises:
            KeyFailure: when a user's function raised.
        """
        entry_numbers = self._entry_numbers(entering.slots)
        state, plan = self._state, self._plan
        if plan.emit == "epoch":
            state.windows.track_changes()
        batch = RowBatch(
            entering, values, entry_numbers, plan.keeps_latest, not plan.waits, plan.emit, []
        )
        try:
            unassigned = self._windowing.enter(state, batch)
        except FailedRow as error:
            slot = int(entering.slots[np.flatnonzero(entering.rows == error.row)[0]])
            cause = error.__cause__
            if cause is None:
                raise
            raise KeyFailure(state.keys[slot].as_py(), value_of(error.row), cause) from cause
        if plan.emit == "update":
            self._emitter.emit_updates(batch.updates, state.keys, pos_of_slot)
        else:
            self._emitter.add_retractions(batch.updates)
        in_gap, late = entering.take(unassigned.in_gap), entering.take(unassigned.late)
        self._late.add(in_gap, LateReason.GAP, value_of, no_windows)
        self._late.add(
            late,
            LateReason.LATE,
            value_of,
            lambda *_: missed_windows(self._windowing, unassigned.ids, unassigned.counts),
        )

    def _entry_numbers(self, slots: Ints) -> Ints:
        """Return the entry number of each row; arbitrary numbers if the plan uses none."""
        if not self._plan.counts_arrivals:
            return slots
        state = self._state
        starts = run_starts(slots)
        counts = np.diff(starts, append=len(slots))
        numbers = state.entry_counts[slots] + numbers_in_runs(counts)
        state.entry_counts[slots[starts]] += counts
        return numbers

    @override
    def _holds_us(self) -> Ints:
        state, windows = self._state, self._state.windows
        holds_us = state.next_us()
        holds_us[holds_us < NEVER] -= self._plan.reach_us
        if len(windows) and self._windowing.closes_by_time:
            bounds_us = self._windowing.bounds_us(windows, np.arange(len(windows)))
            first = run_starts(windows.slots)
            slots, times_us = (
                windows.slots[first],
                self._plan.holds_us(bounds_us, windows.latest_us),
            )
            holds_us[slots] = np.minimum(holds_us[slots], np.minimum.reduceat(times_us, first))
        return holds_us

    @override
    def _next_us(self) -> Ints:
        state = self._state
        next_us = state.next_us()
        if len(state.windows):
            first = run_starts(state.windows.slots)
            slots = state.windows.slots[first]
            close_us = self._windowing.closed_at_us(state)[first]
            next_us[slots] = np.minimum(next_us[slots], close_us)
        return next_us
