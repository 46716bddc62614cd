"""Shard state: the clocks, open windows and buffered values of all keys of a shard, in columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flow.columns.arrays import Ints, Mask
from flow_windowing.aggregates.aggregator import Aggregator
from flow_windowing.columnar.admission.shard_clocks import KeyClocks, ShardClock
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.values.blocks import DIRECTORY, Directory, least_of_blocks_us
from flow_windowing.columnar.values.buffered_values import BufferedValues

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
