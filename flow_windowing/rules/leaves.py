"""Leaves: open windows of a key in blocks, of which an epoch reads those that it needs.

The sessions of a key are sorted by time, and so are its leaves, like those of a B+ tree. A leaf has
the sessions of a span of time, from its first timestamp to that of the next leaf, in a block (see
`flow.keyed.shard_logic.BlockStore`): the times of all its sessions as columns, and for each session
a *record*, the pickle of its state. The snapshot of the key has the directory of the leaves, with
the same columns.

A value reads the leaf of its span, and the next one if it may join its first session. It unpickles
only the sessions that it joins; time unpickles those that are due. They are taken from their leaves
and put back at the end of the epoch, as records after the other records of the leaf. So the cost of
an epoch follows the sessions that it takes; what it reads and writes beside them is copied as
bytes: the leaves of these sessions, and six numbers a leaf.
"""

from __future__ import annotations

import pickle
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, pairwise, repeat
from typing import Any, TypeAlias

import numpy as np

from flow.format_version import VERSION, check_format, version_in
from flow.instants import NEVER
from flow.keyed.shard_logic import BlockStore
from flow.keyed.state import BlockReader, columns_in

Load: TypeAlias = Callable[[Any], Any]
"""A reader of pickles: `pickle.loads`, or one that runs no code."""

LEAF = bytes([VERSION]) + b"L"
"""The first bytes of a block with a leaf; a pickle of its columns and its records follows."""

BLOCK_MISSING = "a block of its windows is missing: restore a copy of the state, or reset the step"

LEAF_WINDOWS = 64
"""The least number of windows of a leaf that is split off."""

FEW_WINDOWS = 4096
"""The number of windows of a key up to which an epoch reads few leaves, each alone."""

_FIRST_US, _LAST_US, _NEXT_US, _DUE_US, _SIZE, _PLACE = range(6)
"""The columns. Of a session: its bounds, the watermark and the system time at which it is due, and
the size and the place of its record. Of a leaf: the bounds of its first session, the least of these
times, the number of its sessions, and that of its block."""

Columns: TypeAlias = "list[array[int]]"


StoredWindow: TypeAlias = tuple[
    tuple[int, int, int, tuple[int, ...]], Any, bytes | None, int | None
]
"""A session, the snapshot of its window, its pickled last emission and its greatest timestamp,
which a `DriverState` has in several fields; ``None`` for no emission and no timestamp."""


class _Leaf:
    """A leaf in memory: the columns of its sessions, sorted by time, and their records."""

    __slots__ = ("columns", "records")

    def __init__(self, columns: bytes = b"", records: bytes = b"") -> None:
        self.columns = _columns_of(columns)
        self.records = bytearray(records)

    def add(self, times_us: Sequence[int], record: bytes) -> None:
        """Add a session: its four times, and its record."""
        row = bisect_right(self.columns[_FIRST_US], times_us[0])
        values = *times_us, len(record), len(self.records)
        for column, value in zip(self.columns, values, strict=True):
            column.insert(row, value)
        self.records += record

    def parts(self) -> list[_Leaf]:
        """Return the leaf, or leaves of its sessions if these are many or have many old records."""
        count, size = len(self.columns[_SIZE]), sum(self.columns[_SIZE])
        if count <= 2 * LEAF_WINDOWS and len(self.records) <= 2 * size:
            return [self] if count else []
        cuts = np.linspace(0, count, max(count // LEAF_WINDOWS, 1) + 1).astype(int).tolist()
        return [self._part(slice(*bounds)) for bounds in pairwise(cuts) if count]

    def _part(self, rows: slice) -> _Leaf:
        part = _Leaf()
        *times, sizes, places = (column[rows] for column in self.columns)
        part.columns = [*times, sizes, array("q", accumulate(sizes[:-1], initial=0))]
        for place, size in zip(places, sizes, strict=True):
            part.records += self.records[place : place + size]
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
        self._directory = _columns_of(content)
        self._open: dict[int, _Leaf] = {}
        self.count = int(np.asarray(self._directory[_SIZE]).sum())
        self._set_least()

    def _set_least(self) -> None:
        self.next_us, self.due_us = map(_least, self._directory[_NEXT_US : _DUE_US + 1])

    @property
    def content(self) -> bytes:
        """The directory as bytes."""
        return b"".join(self._directory) if self.count else b""

    @property
    def blocks(self) -> list[int]:
        """The number of the block of each leaf."""
        return self._directory[_PLACE].tolist()

    def hold_us(self, *, by_open: bool) -> int:
        """Return the least open time, or the least close time, of a session; `NEVER` for none."""
        return _least(self._directory[_FIRST_US if by_open else _LAST_US])

    def read_near(self, times_us: Iterable[int], reach_us: int, read: BlockReader) -> None:
        """Read the leaves of the sessions that values may join, all at once.

        Args:
            times_us: the timestamps of the values.
            reach_us: as in `take_near`.
            read: as in `take_near`.
        """
        firsts_us = self._directory[_FIRST_US]
        ends = {bisect_right(firsts_us, time_us + reach_us) for time_us in times_us}
        self._read([end - 1 for end in ends if end], read)

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
        last_us, firsts_us = timestamp_us + reach_us, self._directory[_FIRST_US]
        end = place = bisect_right(firsts_us, last_us)
        while place > 0 and (place == end or firsts_us[place] > timestamp_us):
            place -= 1
            columns = self._leaf(place, read).columns
            row = bisect_right(columns[_FIRST_US], last_us) - 1
            while row >= 0 and columns[_LAST_US][row] + reach_us >= timestamp_us:
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
        self._read(places, read, load)
        return [
            self._take(place, row, load)
            for place in places
            for row in reversed(_due_in(self._open[place].columns, watermark_us, now_us))
        ]

    def put(self, windows: Iterable[tuple[StoredWindow, int, int]], store: BlockStore) -> None:
        """Put sessions into the leaves of their spans, and store the leaves that were read.

        Args:
            windows: sessions that are in no leaf, each with the watermark and the system time at
                which it is due, sorted by time.
            store: the storage of blocks.
        """
        firsts_us = self._directory[_FIRST_US]
        if not firsts_us:
            self._open[0] = _Leaf()
        end_us = -NEVER
        for window, next_us, due_us in windows:
            _, first_us, last_us, _ = window[0]
            if first_us >= end_us:
                after = max(bisect_right(firsts_us, first_us), 1)
                leaf = self._leaf(after - 1, store.take)
                end_us = firsts_us[after] if after < len(firsts_us) else NEVER
            leaf.add((first_us, last_us, next_us, due_us), pickle.dumps(window, 5))
            self.count += 1
        for place in sorted(self._open, reverse=True):
            numbers = chain(self._directory[_PLACE][place : place + 1], repeat(None))
            parts = zip(self._open[place].parts(), numbers, strict=False)
            rows = [_row(part, store, number) for part, number in parts]
            for at, column in enumerate(self._directory):
                column[place : place + 1] = array("q", [row[at] for row in rows])
        self._open = {}
        self._set_least()

    def _leaf(self, place: int, read: BlockReader) -> _Leaf:
        """Return a leaf, which is read unless it is in memory."""
        if place not in self._open:
            self._read([place], read)
        return self._open[place]

    def _read(self, places: Sequence[int], read: BlockReader, load: Load = pickle.loads) -> None:
        """Read leaves that are not in memory."""
        places = [place for place in places if place not in self._open]
        blocks = read([self._directory[_PLACE][place] for place in places])
        for place, block in zip(places, blocks, strict=True):
            check_format("a block of windows", version_in(block))
            self._open[place] = _Leaf(*columns_in(block, 2, "windows", load))

    def _take(self, place: int, row: int, load: Load = pickle.loads) -> StoredWindow:
        """Return a session, and remove it from its leaf, which is in memory."""
        leaf, directory = self._open[place], self._directory
        *times_us, size, start = [column.pop(row) for column in leaf.columns]
        self.count -= 1
        for at in (_NEXT_US, _DUE_US):
            if times_us[at] == directory[at][place] < NEVER:
                directory[at][place] = _least(leaf.columns[at])
                self._set_least()
        stored: StoredWindow = load(leaf.records[start : start + size])
        return stored


def need_leaves(count: int, leaves: Leaves | None) -> bool:
    """Return True if the sessions of a key, some in memory and the others in leaves, are many."""
    return count > 2 * LEAF_WINDOWS or (leaves is not None and leaves.count > 0)


def _columns_of(content: bytes) -> Columns:
    """Return the columns in bytes, which have them one after the other."""
    size = len(content) // 6
    return [array("q", content[at * size : at * size + size]) for at in range(6)]


def _least(times_us: array[int]) -> int:
    return int(np.asarray(times_us).min(initial=NEVER))


def _due_in(columns: Columns, watermark_us: int, now_us: int) -> list[int]:
    """Return the rows of columns that are due at a watermark or a system time."""
    next_us, due_us = map(np.asarray, columns[_NEXT_US : _DUE_US + 1])
    rows: list[int] = np.flatnonzero((next_us <= watermark_us) | (due_us <= now_us)).tolist()
    return rows


def _row(leaf: _Leaf, store: BlockStore, number: int | None) -> tuple[int, ...]:
    """Store a leaf, and return its row of the directory."""
    first_us, last_us, next_us, due_us, sizes, _ = leaf.columns
    content = LEAF + pickle.dumps((b"".join(leaf.columns), bytes(leaf.records)), 5)
    block = store.add(content, number)
    return first_us[0], last_us[0], _least(next_us), _least(due_us), len(sizes), block
