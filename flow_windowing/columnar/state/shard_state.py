"""Shard state: the clocks, open windows and buffered values of all keys of a shard, in columns.

Open windows are sorted by slot and id, one window a row. The bounds of some windows, such as
sessions, follow from values and not from ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flow.columns.arrays import Ints, Mask
from flow.instants import NEVER
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.columnar.admission.shard_clocks import KeyClocks, ShardClock
from flow_windowing.columnar.aggregates.accumulator_column import AccumulatorColumn
from flow_windowing.columnar.values.blocks import DIRECTORY, Directory, least_of_blocks_us
from flow_windowing.columnar.values.buffered_values import BufferedValues

MergedIds: TypeAlias = npt.NDArray[np.object_]
"""A column of sorted tuples of ids."""


class Bounds(NamedTuple):
    """The bounds of one window, and the ids of the windows merged into it.

    Attributes:
        first_us: the least timestamp in the window.
        last_us: the greatest timestamp in the window.
        merged_ids: the ids of the windows merged into the window, sorted.
    """

    first_us: int
    last_us: int
    merged_ids: tuple[int, ...] = ()

    def with_value(self, time_us: int) -> Bounds:
        """Return the bounds with a value added."""
        return Bounds(min(self.first_us, time_us), max(self.last_us, time_us), self.merged_ids)

    def with_session(self, session_id: int, other: Bounds) -> Bounds:
        """Return the bounds after the session of an id is merged into this session."""
        merged_ids = tuple(sorted({*self.merged_ids, *other.merged_ids, session_id}))
        first_us, last_us = min(self.first_us, other.first_us), max(self.last_us, other.last_us)
        return Bounds(first_us, last_us, merged_ids)


@dataclass
class Spans:
    """The bounds of windows, one window a row, and the ids of the windows merged into them.

    Attributes:
        first_us: the least timestamp in each window, `NEVER` without values.
        last_us: the greatest timestamp in each window, `-NEVER` without values.
        merged_ids: for each window a sorted tuple of the ids of the windows merged into it.
    """

    first_us: Ints
    last_us: Ints
    merged_ids: MergedIds

    @classmethod
    def empty(cls, count: int) -> Spans:
        """Return the bounds of `count` windows without values."""
        merged_ids = np.empty(count, np.object_)
        merged_ids.fill(())
        return cls(np.full(count, NEVER), np.full(count, -NEVER), merged_ids)

    @classmethod
    def of(cls, bounds: Sequence[Bounds]) -> Spans:
        """Return bounds as columns."""
        return cls(
            np.array([one.first_us for one in bounds], np.int64),
            np.array([one.last_us for one in bounds], np.int64),
            merged_ids_column([one.merged_ids for one in bounds]),
        )

    def take(self, rows: Ints | Mask) -> Spans:
        """Return the bounds in the given rows, in the given order."""
        return Spans(self.first_us[rows], self.last_us[rows], self.merged_ids[rows])

    def concat(self, other: Spans) -> Spans:
        """Return these bounds followed by others."""
        return Spans(
            np.concatenate([self.first_us, other.first_us]),
            np.concatenate([self.last_us, other.last_us]),
            np.concatenate([self.merged_ids, other.merged_ids]),
        )

    def replace_rows(self, rows: Ints, others: Spans) -> None:
        """Replace the given rows by others."""
        self.first_us[rows] = others.first_us
        self.last_us[rows] = others.last_us
        self.merged_ids[rows] = others.merged_ids

    def widen(self, rows: Ints, first_us: Ints, last_us: Ints) -> None:
        """Widen the bounds in the given rows, which are distinct, to include these timestamps."""
        self.first_us[rows] = np.minimum(self.first_us[rows], first_us)
        self.last_us[rows] = np.maximum(self.last_us[rows], last_us)


def merged_ids_column(ids: Sequence[Any]) -> MergedIds:
    """Return a column of tuples; `np.array` would make a matrix of tuples of equal length."""
    column = np.empty(len(ids), np.object_)
    for row, of_row in enumerate(ids):
        column[row] = tuple(of_row)
    return column


_GREATEST = 1 << 62
"""A bound below which sums of two numbers do not overflow 64 bits."""


class WindowRefs(NamedTuple):
    """References to windows, by slot and id.

    Attributes:
        slots: the slot of each window's key.
        ids: the id of each window.
    """

    slots: Ints
    ids: Ints


@dataclass
class OpenWindows:
    """Open windows in columns.

    Invariant: rows are sorted by slot, then by id, and no two have the same slot and id.

    Attributes:
        slots: the slot of each window's key.
        ids: the id of each window.
        latest_us: the greatest timestamp in each window; all `-NEVER` if it is not needed.
        accumulators: the accumulators of each aggregate.
        spans: the bounds of each window; ``None`` if they follow from the id, or without windows.
        first_changes: the index of the batch's row that changed each window first in this epoch,
            `NEVER` for an unchanged window; ``None`` if changes are not tracked.
        is_emitted: True for a window that has emitted its result, either the current one or the one
            before this epoch's changes; ``None`` if no window has, or if it is not needed.
    """

    slots: Ints
    ids: Ints
    latest_us: Ints
    accumulators: list[AccumulatorColumn]
    spans: Spans | None = None
    first_changes: Ints | None = None
    is_emitted: Mask | None = None

    @classmethod
    def empty(cls, aggregators: tuple[Aggregator[Any, Any, Any], ...]) -> OpenWindows:
        """Return no windows."""
        empty = np.empty(0, np.int64)
        return cls(empty, empty, empty, [AccumulatorColumn(one) for one in aggregators])

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Ints | Mask) -> OpenWindows:
        """Return the windows in the given rows, which keep the invariant."""
        return OpenWindows(
            self.slots[rows],
            self.ids[rows],
            self.latest_us[rows],
            [one.take(rows) for one in self.accumulators],
            None if self.spans is None else self.spans.take(rows),
            None if self.first_changes is None else self.first_changes[rows],
            None if self.is_emitted is None else self.is_emitted[rows],
        )

    def concat(self, other: OpenWindows) -> OpenWindows:
        """Return these windows followed by those of greater slots."""
        return OpenWindows(
            np.concatenate([self.slots, other.slots]),
            np.concatenate([self.ids, other.ids]),
            np.concatenate([self.latest_us, other.latest_us]),
            [a.concat(b) for a, b in zip(self.accumulators, other.accumulators, strict=True)],
            _concat_spans(self.spans, other.spans),
            is_emitted=self._concat_emitted(other),
        )

    def _concat_emitted(self, other: OpenWindows) -> Mask | None:
        if self.is_emitted is None and other.is_emitted is None:
            return None
        return np.concatenate([self.ensure_emitted(), other.ensure_emitted()])

    def track_changes(self) -> None:
        """Record in `first_changes` the changes of windows from now on."""
        if self.first_changes is None:
            self.first_changes = np.full(len(self), NEVER)

    def ensure_spans(self) -> Spans:
        """Return `spans`, after making them if they are ``None``."""
        if self.spans is None:
            self.spans = Spans.empty(len(self))
        return self.spans

    def ensure_emitted(self) -> Mask:
        """Return `is_emitted`, after making the column if it is ``None``."""
        if self.is_emitted is None:
            self.is_emitted = np.zeros(len(self), np.bool_)
        return self.is_emitted

    def rows_of(self, windows: WindowRefs) -> Ints:
        """Return the row of each of some open windows, which may be in any order."""
        if not len(windows.ids):
            return windows.ids
        mine, theirs = window_ranks(self, windows)
        return np.searchsorted(mine, theirs)

    def open(self, windows: WindowRefs) -> tuple[OpenWindows, Ints]:
        """Open windows that are not open yet.

        Args:
            windows: the windows to open, sorted by slot and id.

        Returns:
            All open windows, and the row of each of the given windows.
        """
        mine, theirs = window_ranks(self, windows)
        index = np.searchsorted(mine, theirs)
        is_open = np.zeros(len(index), np.bool_)
        inside = index < len(mine)
        is_open[inside] = mine[index[inside]] == theirs[inside]
        new = np.flatnonzero(~is_open)
        if not len(new):
            return self, index
        grown = self._with_new_windows(windows.slots[new], windows.ids[new])
        # Both parts are sorted, so that a stable sort merges them in linear time.
        order = np.argsort(np.concatenate([mine, theirs[new]]), kind="stable")
        if len(self) and not (np.diff(order) > 0).all():
            grown = grown.take(order)
        # A window's row is the number of open and of new windows before it.
        rows = index.copy()
        rows[new] = index[new] + np.arange(len(new))
        rows[is_open] = index[is_open] + np.searchsorted(new, np.flatnonzero(is_open))
        return grown, rows

    def _with_new_windows(self, slots: Ints, ids: Ints) -> OpenWindows:
        """Return these windows followed by new windows; the result breaks the invariant."""
        count = len(ids)
        changes, emitted = self.first_changes, self.is_emitted
        return OpenWindows(
            np.concatenate([self.slots, slots]),
            np.concatenate([self.ids, ids]),
            np.concatenate([self.latest_us, np.full(count, -NEVER)]),
            [one.with_new_rows(count) for one in self.accumulators],
            None if self.spans is None else self.spans.concat(Spans.empty(count)),
            None if changes is None else np.append(changes, np.full(count, NEVER)),
            None if emitted is None else np.append(emitted, np.zeros(count, np.bool_)),
        )


def _concat_spans(spans: Spans | None, others: Spans | None) -> Spans | None:
    if spans is None or others is None:
        return others if spans is None else spans
    return spans.concat(others)


def window_ranks(mine: OpenWindows | WindowRefs, theirs: WindowRefs) -> tuple[Ints, Ints]:
    """Return a number for each window of two sets, ordered by slot and id.

    A window that is in both sets has the same number in both.
    """
    both = [windows.ids for windows in (mine, theirs) if len(windows.ids)]
    if not both:
        return mine.ids, theirs.ids
    least, greatest = min(int(ids.min()) for ids in both), max(int(ids.max()) for ids in both)
    span = greatest - least + 1
    slot_count = max(int(each.slots.max()) for each in (mine, theirs) if len(each.ids)) + 1
    if span * slot_count < _GREATEST:
        return mine.slots * span + (mine.ids - least), theirs.slots * span + (theirs.ids - least)
    distinct, ranks = np.unique(np.concatenate([mine.ids, theirs.ids]), return_inverse=True)
    ranks = ranks.reshape(-1)
    cut = len(mine.ids)
    return (
        mine.slots * len(distinct) + ranks[:cut],
        theirs.slots * len(distinct) + ranks[cut:],
    )


def window_order(slots: Ints, ids: Ints) -> Ints | None:
    """Return the stable permutation that sorts values by slot and id; ``None`` if sorted already.

    Args:
        slots: the slot of each value, ascending.
        ids: the id of each value's window.
    """
    same = slots[1:] == slots[:-1]
    if not (same & (ids[1:] < ids[:-1])).any():
        return None
    none = OpenWindows(slots[:0], ids[:0], ids[:0], [])
    _, ranks = window_ranks(none, WindowRefs(slots, ids))
    return np.argsort(ranks, kind="stable")


WindowKind: TypeAlias = Literal["index", "sessions", "counts", "interval"]
"""Windows whose bounds follow from their ids; sessions; windows of a number of values; no windows,
but the retained values of an interval join."""


@dataclass(frozen=True)
class StateForm:
    """The form of a step's state in segments.

    Attributes:
        kind: the kind of the windows.
        clock: the clock of the step.
        aggregators: the aggregates of each window.
        named: True if the snapshot of a window is a list of states, one for each aggregate.
        counts_arrivals: True if keys have arrival and entry numbers.
    """

    kind: WindowKind
    clock: ShardClock[Any]
    aggregators: tuple[Aggregator[Any, Any, Any], ...] = ()
    named: bool = False
    counts_arrivals: bool = True


@dataclass
class ShardState:
    """The state of keys; the slot of a key is its index in every column of keys.

    Attributes:
        keys: the keys, as Arrow large text.
        clocks: the clocks of the keys.
        arrival_counts: the number of values of each key that arrived since the key last had no
            values in state; it is the arrival number of the key's next value.
        entry_counts: the number of those values that entered windows.
        counted_values: the number of values of each key that a `CountWindower` has counted.
        windows: the open windows.
        buffered: the buffered values.
        blocks: the directory of further buffered values, which are in blocks.
    """

    keys: pa.Array
    clocks: KeyClocks
    arrival_counts: Ints
    entry_counts: Ints
    counted_values: Ints
    windows: OpenWindows
    buffered: BufferedValues
    blocks: Directory = field(default_factory=lambda: np.empty(0, DIRECTORY))

    @classmethod
    def of_new_keys(
        cls,
        keys: pa.Array,
        clocks: KeyClocks,
        aggregators: tuple[Aggregator[Any, Any, Any], ...],
    ) -> ShardState:
        """Return the state of keys that have had no value."""
        count = len(keys)
        return cls(
            keys,
            clocks,
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            OpenWindows.empty(aggregators),
            BufferedValues.empty(),
        )

    @classmethod
    def empty(
        cls, clocks: KeyClocks, aggregators: tuple[Aggregator[Any, Any, Any], ...]
    ) -> ShardState:
        """Return the state of no keys."""
        return cls.of_new_keys(pa.array([], pa.large_string()), clocks, aggregators)

    @property
    def count(self) -> int:
        """The number of keys."""
        return len(self.keys)

    def concat(self, other: ShardState) -> ShardState:
        """Return the state of these keys followed by other keys; `other` must not be used again."""
        if not self.count:
            return other
        windows, buffered = other.windows, other.buffered
        if len(windows):
            windows.slots = windows.slots + self.count
        if len(buffered):
            buffered.slots = buffered.slots + self.count
        other.blocks["slot"] += self.count
        return ShardState(
            pa.concat_arrays([self.keys, other.keys]),
            self.clocks.concat(other.clocks),
            np.concatenate([self.arrival_counts, other.arrival_counts]),
            np.concatenate([self.entry_counts, other.entry_counts]),
            np.concatenate([self.counted_values, other.counted_values]),
            self.windows.concat(windows) if len(windows) else self.windows,
            self.buffered.merge(buffered),
            np.append(self.blocks, other.blocks),
        )

    def take(self, slots: Ints) -> ShardState:
        """Return the state of the keys in the given slots, in the given order."""
        new_slot = np.full(self.count, -1)
        new_slot[slots] = np.arange(len(slots))
        windows, buffered = self.windows, self.buffered
        if len(windows):
            windows = windows.take(_rows_by_slot(new_slot[windows.slots]))
            windows.slots = new_slot[windows.slots]
        if len(buffered):
            buffered = buffered.take(_rows_by_slot(new_slot[buffered.slots]))
            buffered.slots = new_slot[buffered.slots]
        blocks = self.blocks[_rows_by_slot(new_slot[self.blocks["slot"]])]
        blocks["slot"] = new_slot[blocks["slot"]]
        return ShardState(
            self.keys.take(pa.array(slots)),
            self.clocks.take(slots),
            self.arrival_counts[slots],
            self.entry_counts[slots],
            self.counted_values[slots],
            windows,
            buffered,
            blocks,
        )

    def next_us(self) -> Ints:
        """Return the least timestamp of a buffered value of each slot, `NEVER` without any."""
        least_us = self.buffered.next_us(self.count)
        if len(self.blocks):
            np.minimum.at(least_us, self.blocks["slot"], least_of_blocks_us(self.blocks))
        return least_us

    def has_values(self) -> Mask:
        """Return the mask of slots with an open window or a buffered value."""
        has = np.zeros(self.count, np.bool_)
        has[self.windows.slots] = True
        has[self.buffered.slots] = True
        has[self.blocks["slot"]] = True
        return has

    def has_state(self) -> Mask:
        """Return the mask of slots whose state differs from that of a new key."""
        return self.has_values() | self.clocks.has_state() | (self.counted_values > 0)

    def reset_arrivals(self) -> None:
        """Restart the arrival and entry numbers of keys that hold no values."""
        without_values = ~self.has_values()
        self.arrival_counts[without_values] = 0
        self.entry_counts[without_values] = 0

    def reset_keys(self, slots: Ints) -> None:
        """Reset the state of keys that hold no values to that of new keys."""
        self.clocks.reset(slots)
        self.arrival_counts[slots] = 0
        self.entry_counts[slots] = 0
        self.counted_values[slots] = 0


def _rows_by_slot(slots: Ints) -> Ints:
    """Return the rows whose slot is not -1, sorted by slot."""
    rows = np.flatnonzero(slots >= 0)
    return rows[np.argsort(slots[rows], kind="stable")]


def slots_in(known: pa.Array, keys: pa.Array) -> tuple[Ints, pa.Array]:
    """Return the slot of each key, and the new keys, whose slots follow those of the known keys.

    Args:
        known: the known keys by slot, Arrow large text.
        keys: distinct keys, Arrow text.
    """
    keys = keys.cast(pa.large_string())
    if not len(known):
        return np.arange(len(keys)), keys
    indices = pc.index_in(keys, value_set=known).fill_null(-1)
    slots: Ints = indices.to_numpy().astype(np.int64)
    new = np.flatnonzero(slots < 0)
    slots[new] = len(known) + np.arange(len(new))
    return slots, keys.take(pa.array(new))
