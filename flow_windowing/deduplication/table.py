"""The keys of a shard with their remembered ids, and the segments that hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flow.columns.arrays import Ints, Mask
from flow.columns.chunks import pick, radix_order
from flow.instants import NEVER
from flow.keyed.due import split_dues
from flow.keyed.segments import WholeKeys
from flow.keyed.shard_logic import SegmentDump
from flow_windowing.deduplication.ids import Ids, SeenIds, passing_ids, take_ids
from flow_windowing.deduplication.segments import (
    IdSegment,
    KeyedIds,
    decode_segment,
    read_segments,
    writer_of,
)


class IdTable:
    """The keys of a shard, by slot, and their remembered ids.

    Attributes:
        keys: the keys, Arrow large text, shape (slots,).
        seen: the remembered ids.
        changed: the mask of slots whose state may differ from the loaded one, shape (slots,).
    """

    def __init__(self) -> None:
        self.keys = pa.array([], pa.large_string())
        self.seen = SeenIds(np.empty(0, np.int64), None, np.empty(0, np.int64))
        self.changed = np.empty(0, np.bool_)
        self._loaded: list[IdSegment | WholeKeys] = []

    def load(self, content: bytes) -> int:
        """Load a segment for the next `add_loaded`, and return the number of its keys."""
        segment = decode_segment(content)
        self._loaded.append(segment)
        return segment.key_count if isinstance(segment, IdSegment) else len(segment.keys)

    def add_loaded(self) -> list[Ints | list[Any]]:
        """Add the keys of loaded segments.

        Returns:
            The clocks of the new slots in columns, as in `KeyedIds`, for one range of slots after
            the other.
        """
        loaded = read_segments(self._loaded)
        self._loaded = []
        for one in loaded:
            slots = np.repeat(len(self.keys) + np.arange(len(one.keys)), one.counts)
            self._add_keys(one.keys, is_changed=False)
            seen, new = self.alike(self.seen, SeenIds(slots, one.ids, one.first_us))
            self.seen = seen.concat(new)
        return [one.clocks for one in loaded]

    def alike(self, left: SeenIds, right: SeenIds) -> tuple[SeenIds, SeenIds]:
        """Return ids of slots with columns of ids, unless each of them all is its key."""
        has_columns = [len(one.slots) > 0 and one.ids is not None for one in (left, right)]
        if not any(has_columns):
            return left._replace(ids=None), right._replace(ids=None)
        return self._with_column(left), self._with_column(right)

    def _with_column(self, seen: SeenIds) -> SeenIds:
        if seen.ids is not None:
            return seen
        return seen._replace(ids=self.keys.take(pa.array(seen.slots)))

    def add_passing(self, slots: Ints, ids: Ids | None, times_us: Ints, ttl_us: int) -> Mask:
        """Return the mask of the rows that pass, and remember the ids of these rows.

        Args:
            slots: the slot of each row, int64, shape (rows,); rows of a slot in order of arrival.
            ids: the id of each row; ``None`` if each is the row's key.
            times_us: the time of each row, int64 µs, shape (rows,).
            ttl_us: how long an id is remembered, in µs.
        """
        seen, new = self.alike(self.seen, SeenIds(slots, ids, times_us))
        passes = passing_ids(seen, new, ttl_us)
        self.seen = seen.concat(new.where(passes))
        return passes

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
        self, numbers: Ints, wanted: list[int], due_us: Ints, clocks: Ints | list[Any]
    ) -> list[SegmentDump]:
        """Return snapshots of segments, see `ShardLogic.dump`.

        Args:
            numbers: the segment number of each slot.
            wanted: the numbers of the segments to return.
            due_us: the due time of each slot.
            clocks: the clock of each slot, as in `KeyedIds`.
        """
        index_of = np.full(max(int(numbers.max(initial=0)), max(wanted, default=0)) + 1, -1)
        index_of[wanted] = np.arange(len(wanted))
        indices = np.where(self.has_ids(), index_of[numbers], -1)
        slots = np.flatnonzero(indices >= 0)
        slots = slots[radix_order(indices[slots], len(wanted))]
        ends = np.searchsorted(indices[slots], np.arange(len(wanted)), "right").tolist()
        chosen, dues = self._of_slots(slots, clocks), due_us[slots]
        write = writer_of(chosen, dues)
        times_us, held_us = split_dues(dues)
        begin, dumps = 0, list[SegmentDump]()
        for end in ends:
            dump = SegmentDump(None, 0, NEVER)
            if end > begin:
                least_us, least_held_us = times_us[begin:end].min(), held_us[begin:end].min()
                content = write(begin, end)
                dump = SegmentDump(content, end - begin, int(least_us), int(least_held_us))
            dumps.append(dump)
            begin = end
        return dumps

    def _of_slots(self, slots: Ints, clocks: Ints | list[Any]) -> KeyedIds:
        """Return the keys of slots with their ids, in the order of `slots`."""
        index_of = np.full(len(self.keys), -1)
        index_of[slots] = np.arange(len(slots))
        indices = index_of[self.seen.slots]
        rows = np.flatnonzero(indices >= 0)
        rows = rows[radix_order(indices[rows], len(slots))]
        return KeyedIds(
            self.keys.take(pa.array(slots)),
            np.bincount(indices[rows], minlength=len(slots)),
            None if self.seen.ids is None else take_ids(self.seen.ids, rows),
            self.seen.first_us[rows],
            pick(clocks, slots) if isinstance(clocks, list) else clocks[:, slots],
        )
