"""Leaves: open windows of a key in blocks, of which an epoch reads those that it needs.

The sessions of a key are sorted by time, and so are its leaves, like those of a B+ tree. A leaf has
the sessions of a span of time, from its first timestamp to that of the next leaf, in a block (see
`flow.keyed.shard_logic.BlockStore`): for each session a *row* of numbers, its times among them, and
a *record*, the pickle of its state. The snapshot of the key has the directory of the leaves, with a
row for each.

A value reads the leaf of its span, and the next one if it may join its first session. It unpickles
only the sessions that it joins; time unpickles those that are due. They are taken from their leaves
and put back at the end of the epoch, as records after the other records of the leaf. So the cost of
an epoch follows the sessions that it takes; what it reads and writes beside them is copied as
bytes: the leaves of these sessions, and six numbers a leaf. A key may hold thousands of leaves, of
which each value of an epoch needs another one: a leaf is changed by a few slices, and no work on it
visits all its sessions unless it is split or written without old records.
"""

from __future__ import annotations

import pickle
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np

from flow.columns.arrays import Ints
from flow.errors import CheckpointError
from flow.format_version import VERSION, check_format, version_in
from flow.instants import NEVER
from flow.keyed.shard_logic import BlockStore
from flow.keyed.state import BlockReader

Load: TypeAlias = Callable[[Any], Any]
"""A reader of pickles: `pickle.loads`, or one that runs no code."""

LEAF = bytes([VERSION]) + b"L"
"""The first bytes of a block with a leaf."""

_HEAD = struct.Struct("<2sq")
"""`LEAF`, and the size of old records, whose sessions were taken. The rows of the sessions, and
then all records, follow."""

BLOCK_MISSING = "a block of its windows is missing: restore a copy of the state, or reset the step"

LEAF_WINDOWS = 64
"""The least number of windows of a leaf that is split off."""

FEW_WINDOWS = 4096
"""The number of windows of a key up to which an epoch reads few leaves, each alone."""

_FIRST_US, _LAST_US, _NEXT_US, _DUE_US, _SIZE, _PLACE, _ROW = range(7)
"""The numbers of a row, and how many they are. Of a session: its bounds, the watermark and the
system time at which it is due, and the size and the place of its record. Of a leaf: the bounds of
its first session, the least of these times, the number of its sessions, and that of its block."""

_BYTES = 8
"""The size of a number of a row."""

Rows: TypeAlias = "array[int]"
"""Rows one after the other, sorted by `_FIRST_US`."""


StoredWindow: TypeAlias = tuple[
    tuple[int, int, int, tuple[int, ...]], Any, bytes | None, int | None
]
"""A session, the snapshot of its window, its pickled last emission and its greatest timestamp,
which a `DriverState` has in several fields; ``None`` for no emission and no timestamp."""


class _Leaf:
    """A leaf in memory: the rows of its sessions, sorted by time, and their records.

    Args:
        count: the number of sessions.
        block: the bytes of the leaf.

    Raises:
        CheckpointError: when the bytes are no leaf, or have an unknown format.

    Invariant: `_records` has the records of the block, then those of the sessions that were added.
    No session is taken after one was added.
    """

    __slots__ = ("_end", "_old", "_records", "rows")

    def __init__(self, count: int = 0, block: bytes = _HEAD.pack(LEAF, 0)) -> None:
        start = _HEAD.size + count * _ROW * _BYTES
        if block[: len(LEAF)] != LEAF or len(block) < start:
            check_format("a block of windows", version_in(block))
            raise CheckpointError("a block of its windows is damaged")
        _, self._old = _HEAD.unpack_from(block)
        self.rows = array("q", block[_HEAD.size : start])
        self._records: list[bytes | memoryview] = [memoryview(block)[start:]]
        self._end = len(block) - start

    def __len__(self) -> int:
        return len(self.rows) // _ROW

    def after(self, time_us: int) -> int:
        """Return the number of sessions that begin at a time or before it."""
        return bisect_right(memoryview(self.rows)[_FIRST_US::_ROW], time_us)

    def add(self, times_us: Sequence[int], record: bytes) -> None:
        """Add a session: its four times, and its record."""
        at = self.after(times_us[_FIRST_US]) * _ROW
        self.rows[at:at] = array("q", (*times_us, len(record), self._end))
        self._records.append(record)
        self._end += len(record)

    def take(self, row: int) -> tuple[Sequence[int], bytes | memoryview]:
        """Remove a session, and return its times and its record."""
        at = row * _ROW
        *times_us, size, start = self.rows[at : at + _ROW]
        del self.rows[at : at + _ROW]
        self._old += size
        return times_us, self._records[0][start : start + size]

    def block(self) -> bytes:
        """Return the leaf as bytes."""
        return b"".join((_HEAD.pack(LEAF, self._old), self.rows, *self._records))

    def parts(self) -> list[_Leaf]:
        """Return the leaf, or leaves of its sessions if these are many or have many old records."""
        count = len(self)
        if count <= 2 * LEAF_WINDOWS and 2 * self._old <= self._end:
            return [self] if count else []
        records, parts = b"".join(self._records), max(count // LEAF_WINDOWS, 1)
        cuts = [part * count // parts * _ROW for part in range(parts + 1)]
        return [self._part(self.rows[a:b], records) for a, b in pairwise(cuts) if count]

    @staticmethod
    def _part(rows: Rows, records: bytes) -> _Leaf:
        """Return a leaf of rows whose records are among others, to be stored."""
        part, sizes = _Leaf(), rows[_SIZE::_ROW]
        starts = zip(rows[_PLACE::_ROW], sizes, strict=True)
        part._records = [records[start : start + size] for start, size in starts]
        rows[_PLACE::_ROW] = array("q", accumulate(sizes[:-1], initial=0))
        part.rows = rows
        return part


class Leaves:
    """The leaves of a key, sorted by time.

    Args:
        content: the directory as bytes; empty without leaves.

    Attributes:
        count: the number of sessions.
        next_us: the least watermark at which a session is due, `NEVER` for none.
        due_us: the least system time at which a session is due, `NEVER` for none.
    """

    def __init__(self, content: bytes = b"") -> None:
        self._directory = array("q", content)
        self._open: dict[int, _Leaf] = {}
        self.count = count_in(content)
        self._firsts_us = self._directory[_FIRST_US::_ROW]
        self._set_least()

    def _set_least(self) -> None:
        self.next_us, self.due_us = (_least(self._directory, at) for at in (_NEXT_US, _DUE_US))

    @property
    def content(self) -> bytes:
        """The directory as bytes."""
        return self._directory.tobytes() if self.count else b""

    @property
    def blocks(self) -> list[int]:
        """The number of the block of each leaf."""
        return self._directory[_PLACE::_ROW].tolist()

    def hold_us(self, *, by_open: bool) -> int:
        """Return the least open time, or the least close time, of a session; `NEVER` for none."""
        return _least(self._directory, _FIRST_US if by_open else _LAST_US)

    def read_near(self, times_us: Sequence[int], reach_us: int, read: BlockReader) -> None:
        """Read the leaves of the sessions that values may join, all at once.

        Args:
            times_us: the timestamps of the values.
            reach_us: as in `take_near`.
            read: as in `take_near`.
        """
        ends = np.searchsorted(self._firsts_us, np.array(times_us) + reach_us, "right")
        self._read(np.unique(np.maximum(ends - 1, 0)).tolist(), read)

    def take_near(self, timestamp_us: int, reach_us: int, read: BlockReader) -> list[StoredWindow]:
        """Take the sessions that a value joins.

        Args:
            timestamp_us: the timestamp of the value.
            reach_us: the greatest distance at which a value joins a session.
            read: returns the blocks of given numbers and removes them from the store.

        Raises:
            CheckpointError: when a block is missing or has an unknown format.
        """
        taken: list[StoredWindow] = []
        last_us, firsts_us = timestamp_us + reach_us, self._firsts_us
        end = place = bisect_right(firsts_us, last_us)
        while place > 0 and (place == end or firsts_us[place] > timestamp_us):
            place -= 1
            leaf = self._leaf(place, read)
            row = leaf.after(last_us) - 1
            while row >= 0 and leaf.rows[row * _ROW + _LAST_US] + reach_us >= timestamp_us:
                taken.append(self._take(place, row))
                row -= 1
        return taken

    def take_due(
        self,
        read: BlockReader,
        watermark_us: int = -NEVER,
        now_us: int = -NEVER,
        load: Load = pickle.loads,
    ) -> list[StoredWindow]:
        """Take the sessions that are due at a watermark or a system time.

        Args:
            read: as in `take_near`.
            watermark_us: the watermark; `NEVER` takes all sessions.
            now_us: the system time.
            load: reads the pickles in the bytes of a block.

        Raises:
            CheckpointError: when a block is missing or has an unknown format.
        """
        places = _due_in(self._directory, watermark_us, now_us)
        self._read(places, read)
        return [
            self._take(place, row, load)
            for place in places
            for row in reversed(_due_in(self._open[place].rows, watermark_us, now_us))
        ]

    def put(self, windows: Iterable[tuple[StoredWindow, int, int]], store: BlockStore) -> None:
        """Put sessions into the leaves of their spans, and store the leaves that were read.

        Args:
            windows: sessions that are in no leaf, each with the watermark and the system time at
                which it is due, sorted by time.
            store: the storage of blocks.
        """
        directory, firsts_us = self._directory, self._firsts_us
        if not directory:
            directory.extend((0, 0, NEVER, NEVER, 0, 0))
            self._open[0] = _Leaf()
        end_us = -NEVER
        for window, next_us, due_us in windows:
            _, first_us, last_us, _ = window[0]
            if first_us >= end_us:
                after = max(bisect_right(firsts_us, first_us), 1)
                leaf, at = self._leaf(after - 1, store.take), (after - 1) * _ROW
                end_us = firsts_us[after] if after < len(firsts_us) else NEVER
            leaf.add((first_us, last_us, next_us, due_us), pickle.dumps(window, 5))
            if next_us < directory[at + _NEXT_US]:
                directory[at + _NEXT_US] = next_us
            if due_us < directory[at + _DUE_US]:
                directory[at + _DUE_US] = due_us
            self.count += 1
        for place in sorted(self._open, reverse=True):
            self._store(place, store)
        self._open, self._firsts_us = {}, directory[_FIRST_US::_ROW]
        self._set_least()

    def _store(self, place: int, store: BlockStore) -> None:
        """Store a leaf that is in memory, or its parts, and replace its row of the directory."""
        leaf, at, directory = self._open[place], place * _ROW, self._directory
        number, parts = directory[at + _PLACE] or None, leaf.parts()
        if parts == [leaf]:
            directory[at : at + _NEXT_US] = leaf.rows[:_NEXT_US]
            directory[at + _SIZE] = len(leaf)
            directory[at + _PLACE] = store.add(leaf.block(), number)
            return
        rows = array("q")
        for part in parts:
            least_us = _least(part.rows, _NEXT_US), _least(part.rows, _DUE_US)
            block = store.add(part.block(), number)
            rows.extend((*part.rows[:_NEXT_US], *least_us, len(part), block))
            number = None
        directory[at : at + _ROW] = rows

    def _leaf(self, place: int, read: BlockReader) -> _Leaf:
        """Return a leaf, which is read unless it is in memory."""
        if place not in self._open:
            self._read([place], read)
        return self._open[place]

    def _read(self, places: Sequence[int], read: BlockReader) -> None:
        """Read leaves that are not in memory."""
        places = [place for place in places if place not in self._open]
        directory = self._directory
        blocks = read([directory[place * _ROW + _PLACE] for place in places])
        for place, block in zip(places, blocks, strict=True):
            self._open[place] = _Leaf(directory[place * _ROW + _SIZE], block)

    def _take(self, place: int, row: int, load: Load = pickle.loads) -> StoredWindow:
        """Return a session, and remove it from its leaf, which is in memory."""
        leaf, directory, at = self._open[place], self._directory, place * _ROW
        times_us, record = leaf.take(row)
        self.count -= 1
        for column in (_NEXT_US, _DUE_US):
            if times_us[column] == directory[at + column] < NEVER:
                directory[at + column] = _least(leaf.rows, column)
                if times_us[column] in (self.next_us, self.due_us):
                    self._set_least()
        stored: StoredWindow = load(record)
        return stored


def need_leaves(count: int, leaves: Leaves | None) -> bool:
    """Return True if the sessions of a key, some in memory and the others in leaves, are many."""
    return count > 2 * LEAF_WINDOWS or (leaves is not None and leaves.count > 0)


def count_in(content: bytes) -> int:
    """Return the number of sessions in a directory as bytes."""
    return int(np.frombuffer(content, np.int64)[_SIZE::_ROW].sum())


def _column(rows: Rows, at: int) -> Ints:
    """Return a number of each row, as a view."""
    return np.asarray(rows)[at::_ROW]


def _least(rows: Rows, at: int) -> int:
    return int(_column(rows, at).min(initial=NEVER))


def _due_in(rows: Rows, watermark_us: int, now_us: int) -> list[int]:
    """Return the numbers of the rows that are due at a watermark or a system time."""
    is_due = (_column(rows, _NEXT_US) <= watermark_us) | (_column(rows, _DUE_US) <= now_us)
    found: list[int] = np.flatnonzero(is_due).tolist()
    return found
