"""Interval joins: the builder, the join of all keys of a shard, and its pairs and evictions.

The items of a key in an epoch are sorted by the row that causes them: first the values that the
row's watermark evicts, then the row's pairs, then the row's own value if it has expired at once.

A row is a value; rows that arrive in an epoch are sorted by slot, then arrival number. Searches
within a slot combine slot and rank of a time in one number, as slots and times in µs together may
not fit into 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, get_args

import numpy as np
from typing_extensions import override

from flow.checks import check_choice
from flow.columns.arrays import Ints, Mask
from flow.durations import Duration, duration_us
from flow.errors import FlowBuildError, shorten
from flow.instants import NEVER
from flow.keyed.step import Capabilities, OverColumns, TimedResults
from flow_windowing.clocks.clock import Clock, check_clock
from flow_windowing.columnar.admission.admitted_rows import ArrivingRows, EnteringRows
from flow_windowing.columnar.admission.shard_clocks import ShardClock, shard_clock_of
from flow_windowing.columnar.values.blocks import TAGS, least_of_blocks_us
from flow_windowing.columnar.values.buffered_values import BufferedValues
from flow_windowing.rules.key_state import mark_of, number_of, side_of, tag_of
from flow_windowing.rules.metadata import CLOSED
from flow_windowing.rules.triggers import settings_of
from flow_windowing.time_joins.interval_matching import (
    GREATEST_US,
    LEFT,
    How,
    Interval,
    SidedRows,
    evicted_at,
    pairs_of,
)
from flow_windowing.time_joins.join_shard import JoinedRows, JoinShard, TimeJoinBuilder

_EVICTED, _PAIRED, _LEFT_AT_ONCE = range(3)
"""The order of the items that one row causes."""


@dataclass(frozen=True)
class IntervalJoin(TimeJoinBuilder):
    """Builder of an interval join, which runs over columns.

    Attributes:
        clock: the clock.
        before: the time before a left value at which partners begin.
        after: the time after a left value at which partners end.
        how: the sides whose values leave without a partner too.
        grace: the time for which a value behind the watermark is still on time; ``None`` for none.

    Raises:
        FlowTypeError, FlowBuildError, DurationError: when an argument is invalid.
    """

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"how", "grace"})

    clock: Clock[Any, Any]
    before: Duration
    after: Duration
    how: How = "inner"
    grace: Duration | None = None

    def __post_init__(self) -> None:
        check_clock(self.clock)
        check_choice("how", self.how, get_args(How))
        before_us, after_us = duration_us(self.before, "before"), duration_us(self.after, "after")
        if before_us + after_us < 0:
            raise FlowBuildError(
                "before + after must not be negative, as no pair would match, "
                f"got before={shorten(self.before)}, after={shorten(self.after)}"
            )
        if self.grace is not None and duration_us(self.grace, "grace") < 0:
            raise FlowBuildError(f"grace must not be negative, got {shorten(self.grace)}")

    @cached_property
    def interval(self) -> Interval:
        """The interval in microseconds."""
        grace_us = 0 if self.grace is None else _limited(self.grace)
        return Interval(_limited(self.before), _limited(self.after), grace_us)

    @property
    @override
    def capabilities(self) -> Capabilities:
        of_clock, settings = super().capabilities, settings_of("close", self.clock, self.interval)
        results = TimedResults(self.interval.grace_us, leave_early=True, rule=self.how)
        return of_clock._replace(
            settings=settings, results=results if of_clock.follows_inputs else None
        )

    @override
    def lower(self) -> OverColumns:
        shard_logic = partial(ShardJoin, self, shard_clock_of(self.clock))
        return OverColumns(shard_logic, takes_sided_records=True)


def _limited(value: Duration) -> int:
    """Return a duration in µs, limited to the greatest distance of two timestamps."""
    return max(-GREATEST_US, min(duration_us(value), GREATEST_US))


class ShardJoin(JoinShard):
    """The clocks and retained values of the keys of a shard."""

    def __init__(self, config: IntervalJoin, clock: ShardClock[Any]) -> None:
        super().__init__(clock, config.interval)
        # True for a side whose values leave without a partner too.
        self._unmatched = np.array([config.how in (side, "outer") for side in ("left", "right")])

    @override
    def _next_us(self) -> Ints:
        buffered = self._state.buffered
        least = np.full(self._state.count, NEVER)
        np.minimum.at(least, buffered.slots, self._expires_us(_rows_of(buffered)))
        np.minimum.at(least, self._state.blocks["slot"], self._due_of_blocks_us())
        return least

    @override
    def _due_of_blocks_us(self) -> Ints:
        # `NEVER` and a time after or before it do not overflow.
        least_us: Ints = self._state.blocks["least_us"]
        due_us: Ints = self._interval.expires_us(side_of(TAGS), least_us).min(1, initial=NEVER)
        return due_us

    @override
    def _is_pending(self, tags: Ints) -> Mask:
        is_pending: Mask = (mark_of(tags) == 0) & self._unmatched[side_of(tags)]
        if CLOSED in self._epoch.holding:
            is_pending |= side_of(tags) == LEFT
        return is_pending

    @override
    def _advance(self, watermark_us: Ints, pos_of_slot: Ints) -> list[Ints]:
        buffered = self._state.buffered
        if not len(buffered):
            return []
        rows = _rows_of(buffered)
        expires_us = self._expires_us(rows)
        is_expired = expires_us <= watermark_us[rows.slots]
        evicted = np.flatnonzero(is_expired)
        if not len(evicted):
            return []
        order = np.lexsort((rows.numbers[evicted], expires_us[evicted], rows.slots[evicted]))
        evicted = evicted[order]
        is_matched = mark_of(buffered.numbers).astype(np.bool_)
        alone = evicted[~is_matched[evicted] & self._unmatched[rows.sides[evicted]]]
        self._emit_down(_alone(rows, alone), buffered.values, pos_of_slot)
        self._emit_closed_rows(rows, evicted, pos_of_slot)
        self._state.buffered = buffered.take(~is_expired)
        touched = rows.slots[evicted]
        self._changed[touched] = True
        return [touched]

    @override
    def _enter_rows(
        self,
        entering: EnteringRows,
        arriving: ArrivingRows,
        watermark_us: Ints,
        pos_of_slot: Ints,
    ) -> None:
        new = self._new_values(entering, arriving)
        self._read_blocks(self._may_match(entering, side_of(new.numbers)))
        is_touched = np.zeros(self._state.count, np.bool_)
        is_touched[arriving.slots] = True
        is_near = is_touched[self._state.buffered.slots]
        near, others = self._state.buffered.take(is_near), self._state.buffered.take(~is_near)
        own = np.concatenate([np.full(len(near), -1), np.arange(len(new))])
        remaining = self._join(near.followed_by(new), own, entering, pos_of_slot)
        self._state.buffered = others.merge(remaining)
        if len(entering.rows) < len(arriving.order):
            # A rejected row may have advanced the watermark of the stream.
            self._advance(watermark_us, pos_of_slot)

    def _expires_us(self, rows: SidedRows) -> Ints:
        return self._interval.expires_us(rows.sides, rows.times_us)

    def _may_match(self, entering: EnteringRows, sides: Ints) -> Mask:
        """Return the mask of blocks whose timestamps are in reach of a new value of the key."""
        blocks, count = self._state.blocks, self._state.count
        least_us, greatest_us = np.full(count, NEVER), np.full(count, -NEVER)
        bounds_us = self._interval.bounds_us(sides, entering.times_us)
        np.minimum.at(least_us, entering.slots, bounds_us[0])
        np.maximum.at(greatest_us, entering.slots, bounds_us[1])
        is_near: Mask = blocks["greatest_us"] >= least_us[blocks["slot"]]
        is_near &= least_of_blocks_us(blocks) <= greatest_us[blocks["slot"]]
        return is_near

    def _join(
        self, values: BufferedValues, own: Ints, entering: EnteringRows, pos_of_slot: Ints
    ) -> BufferedValues:
        """Emit the pairs of new values, and the values that leave; return the remaining values.

        Args:
            values: the retained values of the keys with rows, followed by the new values.
            own: the index in `entering` of each new value; -1 for retained values.
            entering: the rows of the new values.
            pos_of_slot: the position in the epoch of the output of each slot.
        """
        rows = _rows_of(values)
        expires_us = self._expires_us(rows)
        pairs = pairs_of(self._interval, rows, own >= 0)
        is_matched = mark_of(values.numbers).astype(np.bool_)
        is_matched[pairs.first] = is_matched[pairs.second] = True
        leaves = evicted_at(rows.slots, expires_us, own, entering.slots, entering.watermark_us)
        evicted = np.flatnonzero(leaves >= 0)
        # Items leave by causing row, stage, time of expiry or of the partner, and arrival number.
        by_expiry = np.stack(
            [leaves, np.where(leaves == own, _LEFT_AT_ONCE, _EVICTED), expires_us, rows.numbers]
        )
        evicted = evicted[np.lexsort(by_expiry[::-1, evicted])]
        alone = evicted[~is_matched[evicted] & self._unmatched[rows.sides[evicted]]]
        by_partner = np.stack(
            [
                own[pairs.second],
                np.full(len(pairs.second), _PAIRED),
                rows.times_us[pairs.first],
                rows.numbers[pairs.first],
            ]
        )
        items = _paired(rows, pairs.first, pairs.second).concat(_alone(rows, alone))
        in_order = np.lexsort(np.hstack([by_partner, by_expiry[:, alone]])[::-1])
        self._emit_down(items.take(in_order), values.values, pos_of_slot)
        self._emit_closed_rows(rows, evicted, pos_of_slot)
        values.numbers = tag_of(rows.numbers, rows.sides, is_matched.astype(np.int64))
        return values.take(np.flatnonzero(leaves < 0))

    def _emit_closed_rows(self, rows: SidedRows, evicted: Ints, pos_of_slot: Ints) -> None:
        """Emit the windows of the left values among evicted values."""
        left = evicted[rows.sides[evicted] == LEFT]
        self._emit_closed(rows.slots[left], rows.times_us[left], pos_of_slot)


def _rows_of(values: BufferedValues) -> SidedRows:
    tags = values.numbers
    return SidedRows(values.slots, values.times_us, number_of(tags), side_of(tags))


def _paired(rows: SidedRows, first: Ints, second: Ints) -> JoinedRows:
    is_left = rows.sides[second] == LEFT
    left, right = np.where(is_left, second, first), np.where(is_left, first, second)
    times_us = rows.times_us[left]
    latest_us = np.maximum(times_us, rows.times_us[right])
    return JoinedRows(rows.slots[left], rows.sides[left], times_us, latest_us, left, right)


def _alone(rows: SidedRows, chosen: Ints) -> JoinedRows:
    sides, times_us, none = rows.sides[chosen], rows.times_us[chosen], np.full(len(chosen), -1)
    left, right = np.where(sides == LEFT, chosen, none), np.where(sides == LEFT, none, chosen)
    return JoinedRows(rows.slots[chosen], sides, times_us, times_us, left, right)
