"""As-of joins: the builder, and the join of all keys of a shard.

A right value that arrives once the partner of a left value is final is never that partner. So the
left values that leave in an epoch find their partners among all right values of the epoch at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, get_args

import numpy as np
from typing_extensions import override

from flow.checks import check_choice, check_getter
from flow.columns.arrays import Ints, Mask
from flow.columns.record_batches import SidedRecords
from flow.durations import Duration, duration_us
from flow.errors import RAISED, FlowBuildError, brief, shorten
from flow.fields import field_path
from flow.instants import NEVER
from flow.keyed.logic import RejectedValue
from flow.keyed.shard_logic import KeyFailure
from flow.keyed.step import Capabilities, OverColumns, TimedResults
from flow_windowing.clocks.clock import Clock, check_clock
from flow_windowing.columnar.admission.admitted_rows import ArrivingRows, EnteringRows
from flow_windowing.columnar.admission.shard_clocks import ShardClock, shard_clock_of
from flow_windowing.columnar.values.blocks import least_of_blocks_us
from flow_windowing.columnar.values.buffered_values import BufferedValues
from flow_windowing.rules.key_state import number_of, side_of
from flow_windowing.rules.triggers import settings_of
from flow_windowing.time_joins.asof_matching import (
    AsOf,
    AsofEmit,
    AsofRows,
    Direction,
    How,
    partners_at_arrival,
)
from flow_windowing.time_joins.interval_matching import GREATEST_US, LEFT, RIGHT
from flow_windowing.time_joins.join_shard import JoinedRows, JoinShard, TimeJoinBuilder


@dataclass(frozen=True)
class AsofJoin(TimeJoinBuilder):
    """Builder of an as-of join, which runs over columns.

    Attributes:
        clock: the clock.
        tolerance: the greatest distance of a partner, inclusive; ``None`` for any distance.
        direction: the direction in which a left value looks for its partner.
        how: the left values that leave.
        emit: the time at which they leave.
        right_value: the part of a right value that is paired; ``None`` for the value itself.

    Raises:
        FlowTypeError, FlowBuildError, DurationError: when an argument is invalid.
    """

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"how", "emit"})
    NAMES_RIGHT: ClassVar[tuple[str, ...]] = ("right_value",)

    clock: Clock[Any, Any]
    tolerance: Duration | None
    direction: Direction = "backward"
    how: How = "left"
    emit: AsofEmit = "close"
    right_value: Callable[[Any], Any] | str | None = None

    def __post_init__(self) -> None:
        check_clock(self.clock)
        check_choice("direction", self.direction, get_args(Direction))
        check_choice("how", self.how, get_args(How))
        check_choice("emit", self.emit, get_args(AsofEmit))
        if self.tolerance is not None and duration_us(self.tolerance, "tolerance") < 0:
            raise FlowBuildError(f"tolerance must not be negative, got {shorten(self.tolerance)}")
        if self.right_value is not None:
            check_getter("right_value", self.right_value, "rate.value")

    @cached_property
    def as_of(self) -> AsOf:
        """The rule by which left values find their partners."""
        tolerance_us = GREATEST_US if self.tolerance is None else duration_us(self.tolerance)
        return AsOf(self.direction, min(tolerance_us, GREATEST_US))

    @property
    @override
    def capabilities(self) -> Capabilities:
        of_clock, settings = super().capabilities, settings_of("close", self.clock, self.as_of)
        results = TimedResults(leave_early=self.emit == "now") if of_clock.follows_inputs else None
        return of_clock._replace(settings=settings, results=results)

    @override
    def lower(self) -> OverColumns:
        shard_logic = partial(ShardAsof, self, shard_clock_of(self.clock))
        return OverColumns(shard_logic, takes_sided_records=True)

    def part_of(self, right: Any) -> Any:
        """Return the part of a right value that is paired; ``None`` deletes.

        Raises:
            RejectedValue: when the value has no such part.
        """
        part = self.right_value
        if part is None:
            return right
        try:
            return field_path(part).value_in(right) if isinstance(part, str) else part(right)
        except RAISED as error:
            problem = f"right_value {shorten(part)} gave nothing: {brief(error)}"
            raise RejectedValue(right, problem) from error


class ShardAsof(JoinShard):
    """The clocks and retained values of the keys of a shard."""

    def __init__(self, config: AsofJoin, clock: ShardClock[Any]) -> None:
        super().__init__(clock, config.as_of.interval)
        self._config, self._as_of = config, config.as_of
        self._retains_records = config.right_value is None

    @override
    def _enter_rows(
        self,
        entering: EnteringRows,
        arriving: ArrivingRows,
        watermark_us: Ints,
        pos_of_slot: Ints,
    ) -> None:
        new = self._new_values(entering, arriving)
        if self._config.emit == "now":
            self._read_blocks(self._may_match(new))
        self._state.buffered = self._state.buffered.merge(new)
        if self._config.emit == "now":
            self._leave_now(new, pos_of_slot)
        is_touched = np.zeros(self._state.count, np.bool_)
        is_touched[arriving.slots] = True
        self._evict(watermark_us, is_touched, pos_of_slot)

    def _may_match(self, new: BufferedValues) -> Mask:
        """Return the mask of blocks that may have the partner of a new left value.

        It is in a block around the value, in the last block before it, or in the first after it.
        """
        blocks, count = self._state.blocks, self._state.count
        is_left = side_of(new.numbers) == LEFT
        first_us, before_us = new.next_us(count, is_left), np.full(count, -NEVER)
        last_us, after_us = np.full(count, -NEVER), np.full(count, NEVER)
        np.maximum.at(last_us, new.slots[is_left], new.times_us[is_left])
        slots, greatest_us = blocks["slot"], blocks["greatest_us"]
        least_us = least_of_blocks_us(blocks)
        is_before, is_after = greatest_us <= first_us[slots], least_us >= last_us[slots]
        np.maximum.at(before_us, slots[is_before], greatest_us[is_before])
        np.minimum.at(after_us, slots[is_after], least_us[is_after])
        is_near: Mask = (greatest_us >= before_us[slots]) & (least_us <= after_us[slots])
        is_near &= first_us[slots] < NEVER
        return is_near

    def _leave_now(self, new: BufferedValues, pos_of_slot: Ints) -> None:
        """Emit the left values that have arrived, each with its partner among earlier arrivals.

        Left values that wait since a run with ``emit="close"`` leave as the watermark passes.
        """
        buffered, first = self._state.buffered, np.full(self._state.count, NEVER)
        np.minimum.at(first, new.slots, number_of(new.numbers))
        left, right = partners_at_arrival(self._as_of, buffered)
        is_new = number_of(buffered.numbers[left]) >= first[buffered.slots[left]]
        left, right = left[is_new], right[is_new]
        order = np.lexsort((number_of(buffered.numbers[left]), buffered.slots[left]))
        left, right = left[order], right[order]
        self._leave(left, right, pos_of_slot)
        stays = np.ones(len(buffered), np.bool_)
        stays[left] = False
        self._state.buffered = buffered.take(stays)

    @override
    def _new_values(self, entering: EnteringRows, arriving: ArrivingRows) -> BufferedValues:
        new = super()._new_values(entering, arriving)
        values, part_of = new.values, self._config.part_of
        if isinstance(values, SidedRecords):  # No record is ``None``.
            return new
        for row in np.flatnonzero(side_of(new.numbers) == RIGHT).tolist():
            try:
                values[row] = part_of(values[row])
            except RejectedValue as error:
                key = self._state.keys[int(new.slots[row])].as_py()
                raise KeyFailure(key, error.value, error) from error
            if values[row] is None:
                new.numbers[row] += 1  # The mark of a tag.
        return new

    @override
    def _advance(self, watermark_us: Ints, pos_of_slot: Ints) -> list[Ints]:
        if not len(self._state.buffered):
            return []
        return self._evict(watermark_us, np.zeros(self._state.count, np.bool_), pos_of_slot)

    def _evict(self, watermark_us: Ints, is_touched: Mask, pos_of_slot: Ints) -> list[Ints]:
        """Emit left values whose partners are final, and evict right values.

        Args:
            watermark_us: the watermark of each slot.
            is_touched: the mask of slots whose right values are evicted although no value leaves.
            pos_of_slot: the position in the epoch of the output of each slot.

        Returns:
            The slots that the watermarks changed; may repeat.
        """
        buffered = self._state.buffered
        rows = AsofRows.of(self._as_of, buffered)
        is_final = rows.final_us <= watermark_us[rows.left_slots]
        if is_final.any():
            right = np.append(rows.right, -1)[rows.partners(self._as_of)[is_final]]
            self._leave(rows.left[is_final], right, pos_of_slot)
        waits = ~is_final
        least_us = watermark_us.copy()
        np.minimum.at(least_us, rows.left_slots[waits], rows.left_us[waits])
        changed = [rows.left_slots[is_final], self._over(rows, waits, watermark_us)]
        for slots in changed:
            is_touched[slots] = True
            self._changed[slots] = True
        stays = np.zeros(len(buffered), np.bool_)
        stays[rows.left[waits]] = True
        is_needed = ~is_touched[rows.right_slots] | self._is_needed(rows, least_us)
        stays[rows.right[is_needed]] = True
        if not stays.all():
            self._state.buffered = buffered.take(stays)
        return changed

    def _over(self, rows: AsofRows, waits: Mask, watermark_us: Ints) -> Ints:
        """Return the slots without left values whose right values have all expired."""
        last = rows.last_right()
        slots = rows.right_slots[last]
        has_left = np.zeros(len(watermark_us), np.bool_)
        has_left[rows.left_slots[waits]] = True
        is_expired = rows.expires_us[last] <= watermark_us[slots]
        return slots[is_expired & ~has_left[slots]]

    def _is_needed(self, rows: AsofRows, least_us: Ints) -> Mask:
        """Return the mask of right values that a left value may find.

        Args:
            rows: the values.
            least_us: for each slot, the least timestamp of a left value that waits or is on time.
        """
        floor_us = least_us[rows.right_slots]
        next_us = np.append(rows.right_us[1:], NEVER)
        next_us[rows.last_right()] = NEVER
        is_expired = (rows.right_us <= floor_us) & (rows.expires_us <= floor_us)
        is_hidden: Mask = (next_us <= floor_us) & (next_us < NEVER)
        return ~(is_expired | is_hidden)

    def _leave(self, left: Ints, right: Ints, pos_of_slot: Ints) -> None:
        """Emit left values with their partners, given by row; the row of no partner is -1."""
        buffered = self._state.buffered
        slots, times_us = buffered.slots[left], buffered.times_us[left]
        items = JoinedRows(slots, np.full(len(left), LEFT), times_us, times_us, left, right)
        if self._config.how == "inner":
            items = items.take(np.flatnonzero(right >= 0))
        self._emit_down(items, buffered.values, pos_of_slot)
        self._emit_closed(slots, times_us, pos_of_slot)

    @override
    def _is_pending(self, tags: Ints) -> Mask:
        is_left: Mask = side_of(tags) == LEFT
        return is_left

    @override
    def _next_us(self) -> Ints:
        rows = AsofRows.of(self._as_of, self._state.buffered)
        due_us = np.full(self._state.count, NEVER)
        last = rows.last_right()
        due_us[rows.right_slots[last]] = rows.expires_us[last]
        # A key with left values is due for them; right values expire with the last of them.
        due_us[rows.left_slots] = NEVER
        np.minimum.at(due_us, rows.left_slots, rows.final_us)
        np.minimum.at(due_us, self._state.blocks["slot"], self._due_of_blocks_us())
        return due_us
