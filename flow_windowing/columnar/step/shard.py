"""The windows of all keys of a shard: what `WindowDriver` does for one key, for many at once.

An epoch is dealt with in three strokes. First the watermarks go to where the time that has passed
has brought them, and windows close. Then the epoch's values come in, key by key in order of
arrival, and the watermarks go to where they lead. Last, if the input ends, everything closes. In
each stroke what waits and has been passed enters its windows, before those close.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from flow.columns.arrays import (
    Ints,
    Mask,
    order_by,
    ranges,
    run_starts,
    starts_of,
)
from flow.columns.chunks import AFTER_ITEMS, AT_END, BEFORE_ITEMS
from flow.instants import NEVER, Moment
from flow.keyed.due import split_dues
from flow.keyed.shard_logic import Dumped, KeyFailure, ShardEpoch, ShardLogic, ShardMade, ShardRows
from flow_windowing.columnar.aggregates.figures import FailedRow
from flow_windowing.columnar.state.holding import Holding
from flow_windowing.columnar.state.watermarks import Settling, TimeRows, Times, UnreadableTime
from flow_windowing.columnar.step.emitting import Emitter, LateRows
from flow_windowing.columnar.storage.kept_windows import joined_parts, segment_parts, write_segments
from flow_windowing.columnar.storage.segments import Kept
from flow_windowing.columnar.values.timestamps import Values
from flow_windowing.columnar.values.waited import as_columns
from flow_windowing.columnar.values.waiting_values import WaitingValues
from flow_windowing.columnar.windows.entering import Entering, Newcomers, reader, value_reader
from flow_windowing.columnar.windows.plan import WindowPlan
from flow_windowing.metadata import LateReason
from flow_windowing.rules.settings import held_back


class ShardWindows(ShardLogic):
    """The clocks, open windows and waiting values of many keys."""

    def __init__(self, plan: WindowPlan) -> None:
        self._plan = plan
        self._rule, self._windowing = plan.rule, plan.windowing
        self._loaded: list[Kept] = []
        self._held = Holding.nothing(plan.aggregators)
        self._changed = np.empty(0, np.bool_)

    @override
    def load(self, content: bytes) -> int:
        parts = list(segment_parts(self._plan, content))
        self._loaded += parts
        return sum(part.keys for part in parts)

    @override
    def keys(self) -> pa.Array:
        self._add_loaded()
        return self._held.keys

    @override
    def changed(self) -> Mask:
        self._add_loaded()
        return self._changed

    @override
    def run(self, rows: ShardRows | None, epoch: ShardEpoch) -> ShardMade:
        self._add_loaded()
        self._epoch = epoch
        self._emitter = Emitter(self._plan, epoch)
        if held_back(epoch.changed_from, self._plan.emit):
            self._catch_up()
        self._pass_time(epoch.before, BEFORE_ITEMS)
        if rows is not None:
            self._take(rows)
        if epoch.moment != epoch.before:
            self._pass_time(epoch.moment, AFTER_ITEMS)
        self._end_epoch()
        if epoch.end_of_input:
            count = self._held.count
            self._advance(np.full(count, NEVER), np.full(count, AT_END))
        return self._emitter.made

    @override
    def dump(self, numbers: Ints, wanted: list[int]) -> list[Dumped]:
        self._add_loaded()
        due_us = self._due_us()
        return write_segments(self._plan, self._held, due_us, numbers, wanted)

    @override
    def due_us(self) -> int:
        return int(split_dues(self._due_us())[0].min(initial=NEVER))

    def _add_loaded(self) -> None:
        """Take in, all at once, what was loaded."""
        if self._loaded:
            held = joined_parts(self._plan, self._loaded)
            self._loaded = []
            self._held = self._held.followed_by(held)
            self._changed = np.concatenate([self._changed, np.zeros(held.count, np.bool_)])

    def _end_epoch(self) -> None:
        """Emit what has changed and is still open, in the order in which it changed."""
        held, changed = self._held, self._held.windows.changed
        if changed is None:
            return
        rows = np.flatnonzero(changed < NEVER)
        rows = rows[order_by(held.windows.places[rows], changed[rows])]
        held.windows.changed = None
        if self._windowing.may_merge:
            held.windows.known_shown()[rows] = True
        self._emitter.down(held.windows, rows, held.keys, np.full(held.count, AFTER_ITEMS))

    def _catch_up(self) -> None:
        """Emit what open windows have come to while they were to emit as they close."""
        held = self._held
        rows = np.arange(len(held.windows))
        if self._windowing.may_merge:
            held.windows.known_shown()[rows] = True
        self._emitter.down(held.windows, rows, held.keys, np.full(held.count, BEFORE_ITEMS))

    def _pass_time(self, moment: Moment, pos: int) -> None:
        """Advance watermarks to a moment and close windows; what that emits has position `pos`."""
        held = self._held
        if not held.count:
            return
        watermark_us = self._rule.now(held.clocks, moment)
        touched = self._advance(watermark_us, np.full(held.count, pos))
        self._rule.held(self._held.clocks, touched, moment)
        self._forget(moment)

    def _forget(self, moment: Moment) -> None:
        """Forget keys that have been silent for long enough: they start afresh."""
        after_us = self._rule.forget_after_us
        if after_us >= NEVER:
            return
        held = self._held
        silent = held.clocks.heard_us + after_us <= moment.inputs_us
        gone = np.flatnonzero(silent & ~held.holds_values())
        if len(gone):
            held.forget(gone)
            self._changed[gone] = True

    def _take(self, rows: ShardRows) -> None:
        """Let an epoch's rows come in."""
        one = value_reader(rows.values)
        times = self._times(rows, one)
        places = self._places_of(rows.keys)
        self._changed[places] = True
        pos_of_place = np.full(self._held.count, AFTER_ITEMS)
        pos_of_place[places] = rows.pos[np.cumsum(rows.counts) - 1]
        by_place = np.argsort(places)
        counts = rows.counts[by_place]
        chosen = ranges(starts_of(rows.counts)[by_place], counts)
        order = rows.order[chosen]
        stamps = [None if one is None else one[chosen] for one in rows[5:]]
        places = places[by_place]
        if times.dropped is not None:
            left = ~times.dropped[order]
            note = f"dropped a value: {times.note}"
            self._emitter.count("dropped", int((~left).sum()), note)
            run_of_row = np.repeat(np.arange(len(counts)), counts)
            counts = np.bincount(run_of_row[left], minlength=len(counts))
            order = order[left]
            stamps = [None if one is None else one[left] for one in stamps]
            places, counts = places[counts > 0], counts[counts > 0]
        if len(order):
            times_us = times.us[order]
            arrived = _Arrived(rows.values, one, order, places, counts, times_us, *stamps)
            self._arrive(arrived, pos_of_place)
        self._forget(self._epoch.moment)
        self._held.settle()

    def _times(self, rows: ShardRows, one: Callable[[int], Any]) -> Times:
        """The timestamps of rows."""
        values, plain = rows.values, one
        if self._plan.sides > 1:
            values = [value for _, value in values]
            plain = values.__getitem__
        try:
            return self._rule.times(values, self._epoch.moment, plain)
        except UnreadableTime as error:
            at = int(np.flatnonzero(rows.order == error.row)[0])
            run = int(np.searchsorted(np.cumsum(rows.counts), at, "right"))
            key = rows.keys[run].as_py()
            raise KeyFailure(key, plain(error.row), error.rejected) from error.rejected

    def _arrive(self, arrived: _Arrived, pos_of_place: Ints) -> None:
        held, rule, moment = self._held, self._rule, self._epoch.moment
        places, counts = arrived.places, arrived.counts
        starts = starts_of(counts)
        run_of_row = np.repeat(np.arange(len(counts)), counts)
        place_of_row = places[run_of_row]
        times_us = arrived.times_us
        refused = rule.too_far_ahead(times_us, moment)
        time_rows = TimeRows(
            run_of_row,
            times_us,
            starts,
            arrived.reached_us,
            arrived.others_us,
            arrived.own_us,
        )
        before = self._epoch.before
        watermark_us, led_us = rule.advanced(time_rows, held.clocks.take(places), refused, before)
        after_us = watermark_us[starts + counts - 1]
        numbers = held.arrived[place_of_row] + ranges(np.zeros(len(counts), np.int64), counts)
        held.arrived[places] += counts
        reached_us = rule.now(held.clocks, before)
        reached_us[places] = after_us
        heard = np.ones(len(places), np.bool_)
        if refused is not None:
            heard = np.add.reduceat(~refused, starts) > 0
        rule.settle(held.clocks, Settling(places, led_us, after_us, heard), moment)
        entering = Entering(arrived.order, place_of_row, times_us, numbers, watermark_us)
        entering = self._without_late(entering, refused, arrived)
        if self._plan.waits:
            entering = self._wait(entering, arrived, reached_us, pos_of_place)
        self._enter(entering, arrived.values, arrived.one, pos_of_place, arrived.sources_of)
        self._advance(reached_us, pos_of_place)

    def _without_late(
        self, entering: Entering, refused: Mask | None, arrived: _Arrived
    ) -> Entering:
        """Those that may enter windows; the others are late."""
        if refused is not None:
            out = entering.take(refused)
            self._emitter.count(LateReason.TOO_FAR_AHEAD.value, len(out.rows))
            self._miss_all(out, LateReason.TOO_FAR_AHEAD, arrived.one)
            entering = entering.take(~refused)
        if not self._windowing.late_at_once:
            return entering
        late = entering.times_us < entering.watermark_us
        if not late.any():
            return entering
        rows = entering.take(late)
        first, counts = self._windowing.missed_by(rows.times_us)
        missed = LateRows(*rows, first, counts, LateReason.LATE)
        self._emitter.late(missed, arrived.one, arrived.sources_of(rows.rows))
        return entering.take(~late)

    def _miss_all(self, rows: Entering, reason: LateReason, one: Callable[[int], Any]) -> None:
        """Values that enter no window, of which none can be named."""
        nothing = np.zeros(len(rows.rows), np.int64)
        self._emitter.late(LateRows(*rows, nothing, nothing, reason), one)

    def _wait(
        self, entering: Entering, arrived: _Arrived, watermark_us: Ints, pos_of_place: Ints
    ) -> Entering:
        """Let values wait, and those that have waited enter that the watermark has passed.

        Returns:
            The values that need not wait, as they come after all of these: in order of time.
        """
        waiting = self._held.waiting
        # A value behind the watermark, in a count window, enters at once: at the watermark then.
        enters_us = np.maximum(entering.times_us, entering.watermark_us)
        entering = entering._replace(watermark_us=enters_us)
        at_once = waiting.passed_before(entering.places, enters_us, watermark_us)
        stays = entering.take(~at_once)
        values = arrived.objects(stays.rows)
        new = WaitingValues(stays.places, stays.times_us, stays.numbers, values, stays.watermark_us)
        self._held.waiting = waiting.joined(new)
        self._release(watermark_us, pos_of_place)
        enters = entering.take(at_once)
        return enters.take(order_by(enters.places, enters.watermark_us))

    def _advance(self, watermark_us: Ints, pos_of_place: Ints) -> list[Ints]:
        """Bring each place's watermark here: what waits enters, and windows close.

        Returns:
            The places whose windows have closed or got values, some of them more than once.
        """
        released = self._release(watermark_us, pos_of_place)
        held = self._held
        self._emitter.send_late(held.keys, pos_of_place)
        windows = held.windows
        closed_at_us = self._windowing.closed_at_us(held)
        closing = closed_at_us <= watermark_us[windows.places]
        rows = np.flatnonzero(closing)
        self._emitter.close(windows, rows, closed_at_us[rows], held.keys, pos_of_place)
        if not len(rows):
            return released
        closed = windows.places[rows]
        self._changed[closed] = True
        held.seen = self._windowing.seen_after(held, rows)
        held.windows = windows.take(~closing)
        return [*released, closed]

    def _release(self, watermark_us: Ints, pos_of_place: Ints) -> list[Ints]:
        """Let enter what waits and has been passed; returns the places of these values."""
        held = self._held
        passed = held.waiting.times_us <= watermark_us[held.waiting.places]
        if not passed.any():
            return []
        out, held.waiting = held.waiting.released(passed)
        self._changed[out.places] = True
        rows = np.arange(len(out))
        entering = Entering(rows, out.places, out.times_us, out.numbers, out.enters_us)
        values = as_columns(out.values, self._plan.fields)
        self._enter(entering, values, out.values.__getitem__, pos_of_place)
        return [out.places]

    def _enter(
        self,
        entering: Entering,
        values: Values,
        one: Callable[[int], Any],
        pos_of_place: Ints,
        sources_of: Callable[[Ints], Ints | None] = lambda _: None,
    ) -> None:
        """Let values enter the windows that are open when they come."""
        entered = self._entered_numbers(entering.places)
        held, plan = self._held, self._plan
        if plan.emit == "epoch":
            held.windows.note_changes()
        newcomers = Newcomers(
            entering, values, entered, plan.keeps_latest, not plan.waits, plan.emit, []
        )
        try:
            missing = self._windowing.enter(held, newcomers)
        except FailedRow as error:
            place = int(entering.places[np.flatnonzero(entering.rows == error.row)[0]])
            cause = error.__cause__
            if cause is None:
                raise
            raise KeyFailure(held.keys[place].as_py(), one(error.row), cause) from cause
        if plan.emit == "update":
            self._emitter.updated(newcomers.updates, held.keys, pos_of_place)
        else:
            self._emitter.take_back(newcomers.updates)
        self._emitter.count(LateReason.GAP.value, len(missing.fallen))
        self._miss_all(entering.take(missing.fallen), LateReason.GAP, one)
        late = entering.take(missing.late)
        missed = LateRows(*late, missing.ids, missing.counts, LateReason.LATE)
        if len(late.rows):
            self._emitter.late(missed, one, sources_of(late.rows))

    def _entered_numbers(self, places: Ints) -> Ints:
        """The number of each value in the order in which its key's values enter windows."""
        if not self._plan.counts_arrivals:
            return places
        held = self._held
        starts = run_starts(places)
        counts = np.diff(starts, append=len(places))
        numbers = held.entered[places] + ranges(np.zeros(len(counts), np.int64), counts)
        held.entered[places[starts]] += counts
        return numbers

    def _places_of(self, keys: pa.Array) -> Ints:
        """The place of each key; keys that have none get one."""
        held = self._held
        keys = keys.cast(pa.large_string())
        if not held.count:
            new = np.arange(len(keys))
            places = new
        else:
            found = pc.index_in(keys, value_set=held.keys)
            unknown = found.is_null().to_numpy(zero_copy_only=False)
            places = found.fill_null(0).to_numpy().astype(np.int64)
            new = np.flatnonzero(unknown)
            places[new] = held.count + np.arange(len(new))
        if len(new):
            self._held = held.followed_by(
                Holding.fresh(keys.take(pa.array(new)), self._plan.aggregators)
            )
            self._changed = np.concatenate([self._changed, np.ones(len(new), np.bool_)])
        return places

    def _due_us(self) -> Ints:
        """When each place is due."""
        held, moment = self._held, self._epoch.moment
        next_us = held.waiting.next_us(held.count)
        if len(held.windows):
            first = run_starts(held.windows.places)
            places = held.windows.places[first]
            close_us = self._windowing.closed_at_us(held)[first]
            next_us[places] = np.minimum(next_us[places], close_us)
        due_us = self._rule.due_us(next_us, held.clocks, moment)
        after_us = self._rule.forget_after_us
        if after_us >= NEVER:
            return due_us
        forgotten_us = np.minimum(held.clocks.heard_us + after_us + moment.downtime_us, NEVER)
        return np.where(held.holds_values(), due_us, forgotten_us)


class _Arrived(NamedTuple):
    """An epoch's rows, key after key in order of place, those without a timestamp left out."""

    values: Values
    one: Callable[[int], Any]
    order: Ints
    places: Ints
    counts: Ints
    times_us: Ints
    reached_us: Ints | None
    others_us: Ints | None
    own_us: Ints | None
    sources: Ints | None

    def sources_of(self, rows: Ints) -> Ints | None:
        """Return the number of the source partition of values, where these are known."""
        if self.sources is None:
            return None
        by_value = np.argsort(self.order)
        return self.sources[by_value[np.searchsorted(self.order, rows, sorter=by_value)]]

    def objects(self, rows: Ints) -> list[Any]:
        """Values as Python objects."""
        return reader(self.values)(rows)
