"""The base of joins of two streams by time: the builder, and the keys of a shard.

The retained values are `ShardState.buffered`, with tags in the place of arrival numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints
from flow.columns.chunks import pick
from flow.columns.sided_records import SidedRecords
from flow.instants import Moment
from flow.keyed.state_counts import StateCounter
from flow.keyed.step import OverColumns
from flow_windowing.clocks.clock import ClockedBuilder
from flow_windowing.columnar.admission.rows import ArrivingRows, EnteringRows
from flow_windowing.columnar.admission.shard_clocks import ShardClock
from flow_windowing.columnar.state.shard_state import StateForm
from flow_windowing.columnar.step.clocked_shard import ClockedShard
from flow_windowing.columnar.storage.segments import SegmentContent
from flow_windowing.columnar.storage.snapshots import snapshots_of_content
from flow_windowing.columnar.values.buffered_values import BufferedValues, RetainedValues
from flow_windowing.columnar.values.records import Values, plain_records
from flow_windowing.contract.metadata import WindowMetadata
from flow_windowing.interval.emitting import JoinedRows, JoinEmitter
from flow_windowing.interval.rules import LEFT, RIGHT, Interval
from flow_windowing.rules.key_state import IntervalState, counts_of, side_of, tag_of
from flow_windowing.rules.settings import DOWN


class TimeJoinBuilder(ClockedBuilder, ABC):
    """A builder of a join whose retained values are those of an `IntervalState`."""

    has_keyed_form = False

    @abstractmethod
    @override
    def lower(self) -> OverColumns:
        """Return the lowering to columns."""

    @property
    @override
    def counter(self) -> StateCounter:
        return counts_of

    @override
    def snapshots_in(self, content: bytes) -> Iterable[tuple[str, IntervalState, int]]:
        return snapshots_of_content(SegmentContent.decode(content))

    @override
    def view(self, snapshot: IntervalState, moment: Moment) -> dict[str, Any]:
        sides: tuple[list[Any], list[Any]] = ([], [])
        for _, tag, value in sorted(snapshot.retained, key=lambda one: one[:2]):
            sides[side_of(tag)].append(value)
        return {
            "watermark": self.watermark(snapshot, moment),
            "left": sides[LEFT],
            "right": sides[RIGHT],
        }


class JoinShard(ClockedShard):
    """The clocks and retained values of the keys of a shard.

    Args:
        clock: the clock.
        interval: the interval in which left values have partners.
    """

    _retains_records = True
    """True if records are retained as they are, and not parts of them."""

    def __init__(self, clock: ShardClock[Any], interval: Interval) -> None:
        super().__init__(StateForm("interval", clock), 2, interval.grace_us)
        self._interval = interval

    @override
    def _begin_epoch(self) -> None:
        self._emitter = JoinEmitter(self._interval, self._made, self._epoch.wanted)

    @override
    def _missed_windows(
        self, late: EnteringRows, values: list[Any]
    ) -> Sequence[tuple[WindowMetadata, ...]]:
        of_rows = zip(values, late.times_us.tolist(), strict=True)
        return [(self._interval.window_of(side, time_us),) for (side, _), time_us in of_rows]

    def _new_values(self, entering: EnteringRows, arriving: ArrivingRows) -> BufferedValues:
        """Return the rows that are on time as retained values."""
        sides, values = self._retained_form(arriving.values, entering.rows)
        tags = tag_of(entering.numbers, sides, np.zeros(len(sides), np.int64))
        return BufferedValues(entering.slots, entering.times_us, tags, values, entering.times_us)

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
