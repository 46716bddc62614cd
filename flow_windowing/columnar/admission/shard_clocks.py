"""Clocks of all keys of a shard: their state, timestamps of rows, watermarks of keys, refused rows.

The state is columns of numbers by slot, or a logic of each key. Within an epoch the inputs' clock
does not move, so only rows advance a key's watermark there: it is the maximum of its value before
and of the rows' candidates so far, limited by the bound of other source partitions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, running_max
from flow.fields import field_path
from flow.instants import NEVER, Moment
from flow.keyed.logic import RejectedValue
from flow.keyed.shard_logic import PARTIAL_TIME
from flow_windowing.clocks.clock import Clock, ClockLogic, DroppedValue, SystemClock
from flow_windowing.clocks.event_clock import FOREVER_US, EventClock
from flow_windowing.clocks.timestamp_columns import read_times
from flow_windowing.columnar.admission.admitted_rows import AdmittedRows, ArrivingRows
from flow_windowing.rules.metadata import LateReason
from flow_windowing.rules.watermark import (
    COLUMNS,
    LEAST_TAKEN,
    NO_WATERMARK,
    REASONS,
    advanced,
    due_at,
    expires_at,
    floor,
    held,
)


class KeyClocks(ABC):
    """The clocks of keys, by slot."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of keys."""

    @abstractmethod
    def concat(self, other: Self) -> Self:
        """Return these clocks followed by others."""

    @abstractmethod
    def take(self, slots: Ints) -> Self:
        """Return the clocks of the given slots, in the given order."""

    @abstractmethod
    def reset(self, slots: Ints) -> None:
        """Reset the clocks of the given slots to those of new keys."""

    @abstractmethod
    def has_state(self) -> Mask:
        """Return the mask of slots whose clock differs from that of a new key."""


@dataclass
class KeyColumns(KeyClocks):
    """The clocks of keys in columns; all are int64 µs, shape (slots,).

    Attributes:
        base_us: the base of the watermark; `NO_WATERMARK` for a key without a watermark.
        set_at_us: the running time at which the base was set.
        last_value_us: the running time at which the last value arrived.
        held_watermark_us: the last watermark that the key used under a hold; `NO_WATERMARK` for a
            key that is not held; ``None`` if no key is held.
    """

    base_us: Ints
    set_at_us: Ints
    last_value_us: Ints
    held_watermark_us: Ints | None = None

    @classmethod
    def initial(cls, count: int) -> KeyColumns:
        """Return the clocks of `count` new keys."""
        zeros = np.zeros(count, np.int64)
        return cls(np.full(count, NO_WATERMARK), zeros, zeros.copy())

    @override
    def __len__(self) -> int:
        return len(self.base_us)

    def ensure_held_watermark(self) -> Ints:
        """Return `held_watermark_us`, after making the column if it is ``None``."""
        if self.held_watermark_us is None:
            self.held_watermark_us = np.full(len(self), NO_WATERMARK)
        return self.held_watermark_us

    def hold(self, slots: Ints, watermark_us: Ints | None) -> None:
        """Record the watermarks that keys have used under a hold, ``None`` without a hold."""
        if watermark_us is not None:
            self.ensure_held_watermark()[slots] = np.maximum(watermark_us, LEAST_TAKEN)
        elif self.held_watermark_us is not None:
            self.held_watermark_us[slots] = NO_WATERMARK

    @override
    def concat(self, other: KeyColumns) -> KeyColumns:
        is_held = self.held_watermark_us is not None or other.held_watermark_us is not None
        held = [clocks.ensure_held_watermark() for clocks in (self, other)] if is_held else None
        return KeyColumns(
            np.concatenate([self.base_us, other.base_us]),
            np.concatenate([self.set_at_us, other.set_at_us]),
            np.concatenate([self.last_value_us, other.last_value_us]),
            None if held is None else np.concatenate(held),
        )

    @override
    def take(self, slots: Ints) -> KeyColumns:
        held_us = None if self.held_watermark_us is None else self.held_watermark_us[slots]
        return KeyColumns(
            self.base_us[slots], self.set_at_us[slots], self.last_value_us[slots], held_us
        )

    @override
    def reset(self, slots: Ints) -> None:
        self.base_us[slots] = NO_WATERMARK
        self.set_at_us[slots] = 0
        self.last_value_us[slots] = 0
        self.hold(slots, None)

    @override
    def has_state(self) -> Mask:
        has_watermark: Mask = self.base_us != NO_WATERMARK
        return has_watermark


@dataclass
class KeyLogics(KeyClocks):
    """The clocks of keys as the logics of a clock without a form over columns.

    Attributes:
        build: returns the logic of a key from a snapshot, ``None`` for a new key.
        logics: the logic of each key.
    """

    build: Callable[[Any], ClockLogic[Any, Any]]
    logics: list[ClockLogic[Any, Any]]

    @override
    def __len__(self) -> int:
        return len(self.logics)

    @override
    def concat(self, other: KeyLogics) -> KeyLogics:
        return KeyLogics(self.build, self.logics + other.logics)

    @override
    def take(self, slots: Ints) -> KeyLogics:
        return KeyLogics(self.build, [self.logics[slot] for slot in slots.tolist()])

    @override
    def reset(self, slots: Ints) -> None:
        for slot in slots.tolist():
            self.logics[slot] = self.build(None)

    @override
    def has_state(self) -> Mask:
        return np.array([one is not None for one in self.snapshots()], np.bool_)

    def snapshots(self) -> list[Any]:
        """Return the snapshot of each key's logic."""
        return [logic.snapshot() for logic in self.logics]


C = TypeVar("C", bound=KeyClocks)

_TOO_FAR_AHEAD = REASONS.index(LateReason.TOO_FAR_AHEAD)


class ShardClock(ABC, Generic[C]):
    """The clock of a step, for all keys of a shard; the state of the clocks is an argument.

    Attributes:
        expires: True if the clocks of silent keys expire.
        fields: the fields of records that the clock reads; ``None`` if it may read any field.
        order_wait_us: the time by which a record may lie before all earlier ones and be on time for
            certain; `NEVER` if none is late, ``None`` if more than the order of records decides.
        time_column: the path of the timestamps, if records can be late, be it by an earlier wait;
            else ``None``.
    """

    expires = False
    fields: frozenset[str] | None = None
    order_wait_us: int | None = None
    time_column: str | None = None

    def times_in(self, batch: pa.RecordBatch) -> tuple[Ints, Mask] | None:  # noqa: ARG002
        """Return the timestamps of records, and the mask of those that are known.

        Returns:
            ``None`` if they have to be read one by one.
        """
        return None

    @abstractmethod
    def new_clocks(self, count: int) -> C:
        """Return the clocks of new keys."""

    @abstractmethod
    def admit(self, clocks: C, rows: ArrivingRows, moment: Moment) -> AdmittedRows:
        """Return the rows with a timestamp, and advance the clocks to the end of an epoch.

        Args:
            clocks: the clocks of all keys, which are changed.
            rows: the rows.
            moment: the moment after the rows.

        Raises:
            KeyFailure: when a value has no timestamp, and the clock does not drop such values.
        """

    @abstractmethod
    def watermarks_us(self, clocks: C, moment: Moment) -> Ints:
        """Return the watermark of each slot at a moment; the array may be that of the clocks."""

    @abstractmethod
    def due_us(self, target_us: Ints, clocks: C, moment: Moment) -> Ints:
        """Return the system time at which each slot's watermark reaches `target_us`.

        In the encoding of `flow.keyed.state`; `NEVER` where `target_us` is. For a step whose
        watermark is the stream progress, `target_us` itself is returned.
        """

    def record_holds(self, clocks: C, touched: Sequence[Ints], moment: Moment) -> None:
        """Record the watermarks that keys have used under a hold, below which they may not fall.

        Args:
            clocks: the clocks of all keys, which are changed.
            touched: the slots whose watermark closed a window or released a value; may repeat.
            moment: the moment of the watermarks.
        """

    def expires_us(self, clocks: C, moment: Moment) -> Ints:  # noqa: ARG002
        """Return the system time at which each slot's clock expires without values."""
        return np.full(len(clocks), NEVER)


class ColumnClock(ShardClock[KeyColumns]):
    """A clock whose state is columns of numbers."""

    @override
    def new_clocks(self, count: int) -> KeyColumns:
        return KeyColumns.initial(count)


class SystemShardClock(ColumnClock):
    """A `SystemClock`: timestamps and watermarks are system time."""

    fields = frozenset()
    order_wait_us = NEVER

    @override
    def times_in(self, batch: pa.RecordBatch) -> tuple[Ints, Mask]:
        # All records of an epoch have one time, which the shard knows.
        return np.zeros(len(batch), np.int64), np.ones(len(batch), np.bool_)

    @override
    def admit(self, clocks: KeyColumns, rows: ArrivingRows, moment: Moment) -> AdmittedRows:
        count, before_us = len(rows.order), moment.before.now_us
        return AdmittedRows(rows, np.full(count, moment.now_us), np.full(count, before_us))

    @override
    def watermarks_us(self, clocks: KeyColumns, moment: Moment) -> Ints:
        return np.full(len(clocks), moment.now_us)

    @override
    def due_us(self, target_us: Ints, clocks: KeyColumns, moment: Moment) -> Ints:
        return target_us


class EventShardClock(ColumnClock):
    """An `EventClock` with a watermark for each key."""

    def __init__(self, clock: EventClock[Any]) -> None:
        self._clock = clock
        self._advances = clock.on_idle == "advance"
        after_us = clock.forget_after_us
        self._expires_after_us = NEVER if after_us is None else after_us + clock.wait_us
        self.expires = self._expires_after_us < NEVER
        getter = clock.ts_getter
        self.fields = field_path(getter).record_fields if isinstance(getter, str) else None
        if isinstance(getter, str) and clock.max_ahead is None:
            is_endless = clock.wait_us >= FOREVER_US
            self.order_wait_us = NEVER if is_endless else clock.wait_us
            self.time_column = getter

    @override
    def times_in(self, batch: pa.RecordBatch) -> tuple[Ints, Mask] | None:
        return read_times(batch, self._clock.ts_getter, self._clock.form)

    @override
    def admit(self, clocks: KeyColumns, rows: ArrivingRows, moment: Moment) -> AdmittedRows:
        admitted, limit_us = self._with_times(rows), self._clock.max_ahead_us
        refused = admitted.times_us - moment.now_us > limit_us if limit_us < NEVER else None
        if refused is not None and refused.any():
            admitted = admitted._replace(refusals=np.where(refused, _TOO_FAR_AHEAD, 0))
        return self._advance(clocks, admitted, moment)

    def _with_times(self, rows: ArrivingRows) -> AdmittedRows:
        """Return the rows that have a timestamp, with it in the place of watermarks."""
        read = self._times_of(rows)
        if read is not None and read[1].all():
            times = read[0][rows.order]
            return AdmittedRows(rows, times, times)
        count = len(rows.order)
        times, is_known = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        if read is not None:
            times, is_known = read[0][rows.order], read[1][rows.order]
        is_dropped, note = np.zeros(count, np.bool_), ""
        for row in np.flatnonzero(~is_known).tolist():
            try:
                times[row] = self._clock.timestamp_us(rows.value_at(row))
            except DroppedValue as error:
                is_dropped[row], note = True, str(error)
            except RejectedValue as error:
                raise rows.failure(row, error) from error
        return AdmittedRows(rows, times, times).without(is_dropped, note)

    def _times_of(self, rows: ArrivingRows) -> tuple[Ints, Mask] | None:
        """Return the timestamps of values and of partial rows, as `read_times` does."""
        read = read_times(rows.plain, self._clock.ts_getter, self._clock.form)
        if not rows.partials:
            return read
        if read is None:
            read = np.zeros(len(rows.plain), np.int64), np.zeros(len(rows.plain), np.bool_)
        times = [batch[PARTIAL_TIME].to_numpy() for batch in rows.partials]
        is_known = np.ones(sum(map(len, times)), np.bool_)
        return np.concatenate([read[0], *times]), np.concatenate([read[1], is_known])

    def _advance(self, clocks: KeyColumns, admitted: AdmittedRows, moment: Moment) -> AdmittedRows:
        """Return rows with watermarks, and advance the clocks of their keys."""
        rows, accepted = admitted.arriving, admitted.arriving.slots
        if not len(rows.slots):
            return admitted
        candidates = admitted.times_us - self._clock.wait_us
        if admitted.refusals is not None:
            is_refused = admitted.refusals > 0
            candidates = np.where(is_refused, NO_WATERMARK, candidates)
            accepted = accepted[np.add.reduceat(~is_refused, rows.starts) > 0]
        greatest_us = np.maximum.reduceat(candidates, rows.starts)
        watermark_us = self._row_watermarks(clocks, rows, candidates, moment.before)
        admitted = admitted._replace(watermark_us=watermark_us)
        self._end_epoch(clocks, rows.slots, greatest_us, admitted.of_keys_us, moment)
        clocks.last_value_us[accepted] = moment.running_us
        return admitted

    def _row_watermarks(
        self, clocks: KeyColumns, rows: ArrivingRows, candidates: Ints, before: Moment
    ) -> Ints:
        """Return the watermark of each row's key after the row; `candidates` is overwritten."""
        starts, run_of_row = rows.starts, rows.run_of_row
        of_keys = clocks.take(rows.slots)
        if before.judges_epoch:
            return self.watermarks_us(of_keys, before)[run_of_row]
        free_us = self._free_us(of_keys, before.inputs_us)
        if rows.bound_us is None or rows.own_progress_us is None:
            candidates[starts] = np.maximum(candidates[starts], free_us)
            return running_max(candidates, run_of_row)
        bound_us = np.minimum(rows.bound_us, np.maximum(rows.own_progress_us, candidates))
        candidates[starts] = np.maximum(candidates[starts], free_us)
        bounded_us = np.minimum(running_max(candidates, run_of_row), bound_us)
        bounded_us[starts] = np.maximum(bounded_us[starts], self._floor_us(of_keys, before))
        return running_max(bounded_us, run_of_row)

    def _end_epoch(
        self,
        clocks: KeyColumns,
        slots: Ints,
        greatest_us: Ints,
        watermark_us: Ints,
        moment: Moment,
    ) -> None:
        """Advance the clocks of the keys with rows to the end of an epoch.

        Args:
            clocks: the clocks of all keys, which are changed.
            slots: the slots of the keys with rows.
            greatest_us: the greatest candidate of each of these keys, `NO_WATERMARK` without any.
            watermark_us: the watermark of each of these keys after its last row.
            moment: the moment after the rows.
        """
        free_us, held_us = self._free_us(clocks.take(slots), moment.inputs_us), None
        if moment.bound_us < NEVER:
            held_us = np.minimum(np.maximum(free_us, greatest_us), moment.bound_us)
            held_us = np.maximum(watermark_us, held_us)
        clocks.hold(slots, held_us)
        moves = greatest_us > free_us
        clocks.base_us[slots[moves]] = greatest_us[moves]
        clocks.set_at_us[slots[moves]] = moment.running_us

    @override
    def watermarks_us(self, clocks: KeyColumns, moment: Moment) -> Ints:
        free_us = self._free_us(clocks, moment.inputs_us)
        if moment.bound_us >= NEVER:
            return free_us
        return held(COLUMNS, free_us, moment.bound_us, self._floor_us(clocks, moment))

    def _free_us(self, clocks: KeyColumns, clock_us: int) -> Ints:
        """Return the watermark of each slot without the bound of other source partitions."""
        if not self._advances:
            return clocks.base_us
        return advanced(COLUMNS, clocks.base_us, clocks.set_at_us, clock_us)

    def _floor_us(self, clocks: KeyColumns, moment: Moment) -> Ints:
        """Return the watermark of each slot below which a hold does not lower it."""
        since_us = moment.held_since_us
        free_us = self._free_us(clocks, since_us)
        if clocks.held_watermark_us is None:
            return free_us
        return floor(COLUMNS, clocks.held_watermark_us, clocks.set_at_us, free_us, since_us)

    @override
    def record_holds(self, clocks: KeyColumns, touched: Sequence[Ints], moment: Moment) -> None:
        is_held = moment.bound_us < NEVER
        watermark_us = self.watermarks_us(clocks, moment) if is_held else None
        for slots in touched:
            clocks.hold(slots, None if watermark_us is None else watermark_us[slots])

    @override
    def due_us(self, target_us: Ints, clocks: KeyColumns, moment: Moment) -> Ints:
        is_held = moment.bound_us < NEVER
        # A watermark that no partition holds has reached its target when the target is due.
        watermark_us = self.watermarks_us(clocks, moment) if is_held else target_us
        base_us, set_at_us = clocks.base_us, clocks.set_at_us
        return due_at(COLUMNS, target_us, base_us, set_at_us, watermark_us, moment, self._advances)

    @override
    def expires_us(self, clocks: KeyColumns, moment: Moment) -> Ints:
        if not self.expires:
            return super().expires_us(clocks, moment)
        after_us = self._expires_after_us
        return expires_at(COLUMNS, clocks.last_value_us, after_us, moment.downtime_us)


class StreamShardClock(EventShardClock):
    """An `EventClock` with one watermark for all keys: the stream progress."""

    @override
    def watermarks_us(self, clocks: KeyColumns, moment: Moment) -> Ints:
        return np.full(len(clocks), moment.progress_us)

    @override
    def _advance(self, clocks: KeyColumns, admitted: AdmittedRows, moment: Moment) -> AdmittedRows:
        progress_us = admitted.arriving.progress_us
        if progress_us is None:
            raise TypeError("rows of a stream clock need progress_us, got None")
        return admitted._replace(watermark_us=progress_us)

    @override
    def record_holds(self, clocks: KeyColumns, touched: Sequence[Ints], moment: Moment) -> None:
        pass

    @override
    def due_us(self, target_us: Ints, clocks: KeyColumns, moment: Moment) -> Ints:
        return target_us


class LogicShardClock(ShardClock[KeyLogics]):
    """A clock without a form over columns, such as a user's: its `ClockLogic` of each key."""

    def __init__(self, clock: Clock[Any, Any]) -> None:
        self._clock = clock
        logic = type(clock.build(None))
        self.expires = logic.forget_us is not ClockLogic.forget_us

    @override
    def new_clocks(self, count: int) -> KeyLogics:
        return self.restored_clocks([None] * count)

    def restored_clocks(self, snapshots: Iterable[Any]) -> KeyLogics:
        """Return the clocks of keys from their snapshots, ``None`` for a new key."""
        return KeyLogics(self._clock.build, list(map(self._clock.build, snapshots)))

    @override
    def admit(self, clocks: KeyLogics, rows: ArrivingRows, moment: Moment) -> AdmittedRows:
        count = len(rows.order)
        times_us, watermark_us = np.zeros(count, np.int64), np.zeros(count, np.int64)
        refusals, is_dropped, note = np.zeros(count, np.int64), np.zeros(count, np.bool_), ""
        before = moment.before
        for row, run in enumerate(rows.run_of_row.tolist()):
            logic = clocks.logics[rows.slots[run]]
            value = rows.value_at(row)
            try:
                reading = logic.on_item(value, _moment_at(rows, row, before))
            except DroppedValue as error:
                is_dropped[row], note = True, str(error)
                continue
            except RejectedValue as error:
                raise rows.failure(row, error) from error
            times_us[row], watermark_us[row] = reading.timestamp_us, reading.watermark_us
            refusals[row] = REASONS.index(reading.refused)
        for slot in rows.slots.tolist():
            clocks.logics[slot].settle(moment)
        refused = refusals if refusals.any() else None
        return AdmittedRows(rows, times_us, watermark_us, refused).without(is_dropped, note)

    @override
    def watermarks_us(self, clocks: KeyLogics, moment: Moment) -> Ints:
        return _ints([logic.watermark(moment) for logic in clocks.logics])

    @override
    def record_holds(self, clocks: KeyLogics, touched: Sequence[Ints], moment: Moment) -> None:
        for slot in {slot for slots in touched for slot in slots.tolist()}:
            clocks.logics[slot].settle(moment)

    @override
    def due_us(self, target_us: Ints, clocks: KeyLogics, moment: Moment) -> Ints:
        targets = zip(clocks.logics, target_us.tolist(), strict=True)
        return _ints([NEVER if at >= NEVER else one.due_us(at, moment) for one, at in targets])

    @override
    def expires_us(self, clocks: KeyLogics, moment: Moment) -> Ints:
        return _ints([logic.forget_us(moment) for logic in clocks.logics])


def _moment_at(rows: ArrivingRows, row: int, before: Moment) -> Moment:
    """Return the moment before an epoch's rows, with the progress and the bound at a row."""
    if rows.progress_us is not None:
        return replace(before, progress_us=int(rows.progress_us[row]))
    if rows.bound_us is None or rows.own_progress_us is None:
        return before
    bound_us, own_us = int(rows.bound_us[row]), int(rows.own_progress_us[row])
    return replace(before, bound_us=bound_us, progress_us=own_us)


def _ints(values: list[int]) -> Ints:
    return np.array(values, np.int64)


def shard_clock_of(clock: Clock[Any, Any]) -> ShardClock[Any]:
    """Return the clock of all keys of a shard."""
    if type(clock) is SystemClock:
        return SystemShardClock()
    if type(clock) is EventClock:
        return EventShardClock(clock) if clock.scope == "key" else StreamShardClock(clock)
    return LogicShardClock(clock)
