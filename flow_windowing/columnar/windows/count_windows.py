"""Windows of a number of values, of many keys at once."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, numbered
from flow.instants import NEVER
from flow_windowing.columnar.state.shard_state import OpenWindows, ShardState
from flow_windowing.columnar.windows.indexed_windows import WindowRanges, grouped_chunks
from flow_windowing.columnar.windows.windowing import (
    RowBatch,
    UnassignedRows,
    WindowGroups,
    Windowing,
)
from flow_windowing.windowers.counts import CountWindower


class CountWindows(Windowing):
    """Windows of `count` values of a key; window i begins with the value of number ``i * step``.

    A full window closes at once. Windows fill in order of their ids, so all values of an epoch may
    enter before the full windows close.
    """

    kind = "counts"
    is_late_at_once = False
    closes_by_time = False
    is_order_dependent = True

    def __init__(self, windower: CountWindower) -> None:
        self._count = windower.count
        self._step = windower.step_count
        self._unfilled_us = NEVER if windower.partial else NEVER + 1
        self.has_gaps = self._step > self._count

    @override
    def ids_at(self, times_us: Ints) -> tuple[Ints, Ints]:
        zeros = np.zeros(len(times_us), np.int64)
        return zeros, zeros

    @override
    def closed_at_us(self, state: ShardState) -> Ints:
        return np.where(self._is_full(state), -NEVER, self._unfilled_us)

    @override
    def enter(self, state: ShardState, batch: RowBatch) -> UnassignedRows:
        slots = batch.entering.slots
        lowest = self._lowest_ids(state)[slots]
        numbers = numbered(state.counted_values, slots)
        first = np.maximum((numbers - self._count) // self._step + 1, lowest)
        count = np.maximum(numbers // self._step + 1 - first, 0)
        state.windows.ensure_spans()
        for groups in grouped_chunks(state, batch.entering, WindowRanges.of(first, count)):
            self.add_groups(state, batch, groups)
            _widen_spans(state.windows, batch, groups)
        return UnassignedRows(np.flatnonzero(count == 0))

    @override
    def counted_after(self, state: ShardState, closing: Ints) -> Ints:
        """Return `counted_values` after windows have closed.

        The count skips the values that an unfilled window lacks, so that it does not open again.
        """
        counted = state.counted_values.copy()
        unfilled = closing[~self._is_full(state)[closing]]
        next_number = (state.windows.ids[unfilled] + 1) * self._step
        np.maximum.at(counted, state.windows.slots[unfilled], next_number)
        return counted

    def _is_full(self, state: ShardState) -> Mask:
        windows = state.windows
        counts = state.counted_values[windows.slots] - windows.ids * self._step
        full: Mask = counts >= self._count
        return full

    def _lowest_ids(self, state: ShardState) -> Ints:
        """Return the least id of each key's windows that are open or may open."""
        next_to_open: Ints = -(-state.counted_values // self._step)
        lowest = np.full(state.count, NEVER, np.int64)
        np.minimum.at(lowest, state.windows.slots, state.windows.ids)
        return np.where(lowest < NEVER, lowest, next_to_open)


def _widen_spans(windows: OpenWindows, batch: RowBatch, groups: WindowGroups) -> None:
    if len(groups.entries):
        times_us, starts = batch.entering.times_us[groups.entries], groups.starts
        least_us = np.minimum.reduceat(times_us, starts)
        greatest_us = np.maximum.reduceat(times_us, starts)
        rows = windows.rows_of(groups.windows)
        windows.ensure_spans().widen(rows, least_us, greatest_us)
