"""The keys of a shard with their remembered ids, and the segments that hold them.

A segment has the format of a step that runs key by key: a version byte and a pickle of
``(keys, snapshots, dues)``. The snapshot of a key is a pickle of ``(clock, ids, first_us)``.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flow.columns.arrays import Ints, Mask
from flow.instants import NEVER
from flow.keyed.due import split_dues
from flow.keyed.seen_ids import Ids, SeenIds, id_objects, take_ids
from flow.keyed.shard_logic import SegmentDump
from flow.pickles import load_pickle

IdState: TypeAlias = "tuple[Any, list[Any], list[int]]"
"""The snapshot of a key: its clock's state, its ids, and the time of the value that passed for each
id, in µs."""

_FORMAT = 1
"""The version byte of segments of whole keys."""
_TYPES = {str: pa.large_string(), int: pa.int64()}


class IdTable:
    """The keys of a shard, by slot, and their remembered ids.

    Attributes:
        keys: the keys, Arrow large text, shape (slots,).
        seen: the remembered ids.
        changed: the mask of slots whose state may differ from the loaded one, shape (slots,).
    """

    def __init__(self) -> None:
        self.keys = pa.array([], pa.large_string())
        self.seen = SeenIds.empty()
        self.changed = np.empty(0, np.bool_)
        self._loaded: list[tuple[list[str], list[bytes]]] = []

    def load(self, content: bytes) -> int:
        """Load a segment for the next `add_loaded`, and return the number of its keys."""
        keys, snapshots, _ = load_pickle(memoryview(content)[1:])
        self._loaded.append((keys, snapshots))
        return len(keys)

    def add_loaded(self) -> list[Any]:
        """Add the keys of loaded segments, and return the state of the clock of each new slot."""
        if not self._loaded:
            return []
        loaded, self._loaded = self._loaded, []
        keys = [key for names, _ in loaded for key in names]
        states: list[IdState] = [load_pickle(one) for _, found in loaded for one in found]
        counts = [len(ids) for _, ids, _ in states]
        seen = SeenIds(
            np.repeat(len(self.keys) + np.arange(len(keys)), counts),
            _as_column(list(chain.from_iterable(ids for _, ids, _ in states))),
            np.array(list(chain.from_iterable(first for _, _, first in states)), np.int64),
        )
        self._add_keys(pa.array(keys, pa.large_string()), is_changed=False)
        self.seen = self.seen.concat(seen)
        return [clock for clock, _, _ in states]

    def slots_of(self, keys: pa.Array) -> Ints:
        """Return the slot of each key, after adding new keys."""
        keys = keys.cast(pa.large_string())
        indices = pc.index_in(keys, value_set=self.keys)
        is_new = indices.is_null().to_numpy(zero_copy_only=False)
        slots: Ints = indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        new = np.flatnonzero(is_new)
        slots[new] = len(self.keys) + np.arange(len(new))
        if len(new):
            self._add_keys(keys.take(pa.array(new)), is_changed=True)
        return slots

    def _add_keys(self, keys: pa.Array, is_changed: bool) -> None:
        self.keys = pa.concat_arrays([self.keys, keys])
        self.changed = np.concatenate([self.changed, np.full(len(keys), is_changed)])

    def evict(self, is_expired: Mask) -> Ints:
        """Remove ids, and return the slots that had one of them; may repeat."""
        if not is_expired.any():
            return np.empty(0, np.int64)
        slots = self.seen.slots[is_expired]
        self.changed[slots] = True
        self.seen = self.seen.where(~is_expired)
        return slots

    def has_ids(self) -> Mask:
        """Return the mask of slots with a remembered id."""
        found = np.zeros(len(self.keys), np.bool_)
        found[self.seen.slots] = True
        return found

    def first_us(self) -> Ints:
        """Return the least time of an id of each slot, `NEVER` for a slot without ids."""
        least = np.full(len(self.keys), NEVER)
        np.minimum.at(least, self.seen.slots, self.seen.first_us)
        return least

    def dump(
        self, numbers: Ints, wanted: list[int], due_us: Ints, clocks: Sequence[Any] | None = None
    ) -> list[SegmentDump]:
        """Return snapshots of segments, see `ShardLogic.dump`.

        Args:
            numbers: the segment number of each slot.
            wanted: the numbers of the segments to return.
            due_us: the due time of each slot.
            clocks: the state of the clock of each slot; ``None`` if no slot has a clock.
        """
        is_chosen = self.has_ids() & np.isin(numbers, wanted)
        seen = self.seen.where(is_chosen[self.seen.slots])
        order = np.argsort(seen.slots, kind="stable")
        ids, first_us = id_objects(take_ids(seen.ids, order)), seen.first_us[order].tolist()
        slots = np.flatnonzero(is_chosen)
        ends = np.cumsum(np.bincount(seen.slots, minlength=len(self.keys))[slots]).tolist()
        segments: dict[int, tuple[list[int], list[bytes]]] = {one: ([], []) for one in wanted}
        begin = 0
        for slot, number, end in zip(slots.tolist(), numbers[slots].tolist(), ends, strict=True):
            clock = None if clocks is None else clocks[slot]
            state: IdState = (clock, ids[begin:end], first_us[begin:end])
            in_segment, snapshots = segments[number]
            in_segment.append(slot)
            snapshots.append(pickle.dumps(state, 5))
            begin = end
        return [self._segment(*segments[number], due_us) for number in wanted]

    def _segment(self, slots: list[int], snapshots: list[bytes], due_us: Ints) -> SegmentDump:
        if not slots:
            return SegmentDump(None, 0, NEVER)
        keys = self.keys.take(pa.array(slots)).to_pylist()
        dues = due_us[slots]
        content = bytes([_FORMAT]) + pickle.dumps(
            (keys, snapshots, dues.astype("<i8").tobytes()), 5
        )
        times_us, held_us = split_dues(dues)
        return SegmentDump(content, len(keys), int(times_us.min()), int(held_us.min()))


def _as_column(ids: list[Any]) -> Ids:
    """Return ids as a column if all are text, or all are integers of 64 bits."""
    kinds = set(map(type, ids))
    kind = _TYPES.get(kinds.pop()) if len(kinds) == 1 else None
    if kind is None:
        return ids
    try:
        return pa.array(ids, kind)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        return ids
