"""The base of joins of two streams by time, over columns; `JoinDriver` does it for one key.

The retained values are `ShardState.buffered`, with tags in the place of arrival numbers.
"""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints, Mask
from flow.columns.chunks import pick
from flow.columns.sided_records import SidedRecords
from flow.instants import NEVER
from flow.keyed.logic import Counted
from flow.keyed.shard_logic import ShardOutput
from flow_windowing.columnar.state.state_form import StateForm
from flow_windowing.columnar.state.watermarks import WatermarkRule
from flow_windowing.columnar.step.clocked_shard import ArrivingRows, ClockedShard
from flow_windowing.columnar.values.buffered_values import BufferedValues, RetainedValues
from flow_windowing.columnar.values.plain_records import plain_records
from flow_windowing.columnar.values.records import Values
from flow_windowing.columnar.windows.row_batch import EnteringRows
from flow_windowing.contract.metadata import LateReason
from flow_windowing.interval.emitting import JoinedRows, JoinEmitter
from flow_windowing.interval.rules import Interval
from flow_windowing.rules.lateness import counted_late
from flow_windowing.rules.streams import DOWN, LATE
from flow_windowing.rules.tags import tag_of


class JoinShard(ClockedShard):
    """The clocks and retained values of the keys of a shard.

    Args:
        rule: the watermark rule.
        interval: the interval in which left values have partners.
    """

    _retains_records = True
    """True if records are retained as they are, and not parts of them."""

    def __init__(self, rule: WatermarkRule, interval: Interval) -> None:
        super().__init__(rule, StateForm("interval", expires=rule.forget_after_us < NEVER), 2)
        self._interval = interval

    @override
    def _begin_epoch(self) -> ShardOutput:
        self._emitter = JoinEmitter(self._interval, self._epoch.wanted)
        return self._emitter.made

    def _on_time(
        self,
        entering: EnteringRows,
        refused: Mask | None,
        arriving: ArrivingRows,
        pos_of_slot: Ints,
    ) -> Mask:
        """Emit rows that are too far ahead or late; return the mask of the others."""
        is_late: Mask = self._interval.is_late(entering.times_us, entering.watermark_us)
        is_ahead = np.zeros(len(is_late), np.bool_) if refused is None else refused
        is_late &= ~is_ahead
        counted, amount = self._emitter.made.counted, int(is_ahead.sum())
        if amount:
            counted.append(Counted(LateReason.TOO_FAR_AHEAD.value, amount))
        late_by_us = entering.watermark_us - entering.times_us
        is_behind = is_late & (late_by_us > 0)
        if is_behind.any():
            sources = arriving.sources
            of_late = None if sources is None else sources[is_behind]
            counted += counted_late(late_by_us[is_behind], of_late)
        rejected = np.flatnonzero(is_late | is_ahead)
        if self._emitter.wants(LATE, len(rejected)):
            columns = (entering.rows, entering.times_us, entering.watermark_us)
            rows = zip(*(one[rejected].tolist() for one in (*columns, is_ahead)), strict=True)
            late = [
                self._emitter.late_value(arriving.value_of(row), time_us, watermark_us, ahead)
                for row, time_us, watermark_us, ahead in rows
            ]
            slots = entering.slots[rejected]
            self._emitter.emit_late(slots, late, self._state.keys, pos_of_slot)
        return ~(is_late | is_ahead)

    def _new_values(
        self, entering: EnteringRows, chosen: Ints, arriving: ArrivingRows
    ) -> BufferedValues:
        """Return arriving rows as retained values."""
        sides, values = self._retained_form(arriving.values, entering.rows[chosen])
        tags = tag_of(entering.numbers[chosen], sides, np.zeros(len(sides), np.int64))
        times_us = entering.times_us[chosen]
        return BufferedValues(entering.slots[chosen], times_us, tags, values, times_us)

    def _retained_form(self, values: Values, rows: Ints) -> tuple[Ints, RetainedValues]:
        """Return the side of values, given by row, and the values as they are retained."""
        if isinstance(values, SidedRecords):
            taken = values.take(rows)
            plain = plain_records(taken) if self._retains_records else None
            return taken.sides, taken.records() if plain is None else plain
        pairs = pick(values, rows)
        return np.array([side for side, _ in pairs], np.int64), [value for _, value in pairs]

    def _emit_down(self, items: JoinedRows, values: RetainedValues, pos_of_slot: Ints) -> None:
        """Emit items that refer to values."""
        if self._emitter.wants(DOWN, len(items.slots)):
            self._emitter.emit_down(items, values, self._state.keys, pos_of_slot)

    def _emit_closed(self, slots: Ints, times_us: Ints, pos_of_slot: Ints) -> None:
        """Emit the windows of left values, those of each key in the given order."""
        self._emitter.emit_closed(slots, times_us, self._state.keys, pos_of_slot)
