"""Leaves: open windows of a key in blocks, of which an epoch reads those that it needs.

The sessions of a key are sorted by time, and so are its leaves, like those of a B+ tree. A leaf has
the sessions of a span of time, from its first timestamp to that of the next leaf, in a block (see
`flow.keyed.shard_logic.BlockStore`). The snapshot of the key has the other sessions, and the
directory of the leaves. A value reads the leaf of its span, and the next one if it may join its
first session; time reads the leaves in which a window is due. An epoch packs the sessions that it
has read, with the new ones between them, into new leaves. So its cost follows the leaves that it
reads, except for the directory: six numbers a leaf.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from flow.columns.arrays import Ints
from flow.format_version import VERSION, check_format, version_in
from flow.instants import NEVER
from flow.keyed.shard_logic import BlockStore
from flow.keyed.state import BlockReader, columns_in

Load: TypeAlias = Callable[[Any], Any]
"""A reader of pickles: `pickle.loads`, or one that runs no code."""

LEAF = bytes([VERSION]) + b"L"
"""The first bytes of a block with a `Leaf`; its pickle follows."""

LEAF_WINDOWS = 64
"""The least number of windows of a leaf that is packed with others."""

_FIRST_US, _LAST_US, _NEXT_US, _DUE_US, _WINDOWS, _BLOCK = range(6)
"""The rows of a directory: of each leaf the bounds of its first session, the least watermark and
the least system time at which a window is due, the number of windows, and that of the block."""


class Leaf(NamedTuple):
    """The windows in a block; the fields are parts of those of a `DriverState`."""

    windower: list[tuple[int, int, int, tuple[int, ...]]]
    windows: dict[int, Any]
    emissions: dict[int, Any]
    latest: dict[int, int]


class Leaves:
    """The directory of the leaves of a key that are in blocks, sorted by time.

    Args:
        content: the directory as bytes; empty without leaves.

    Attributes:
        count: the number of windows.
        next_us: the least watermark at which a window is due, `NEVER` for none.
        due_us: the least system time at which a window is due, `NEVER` for none.
    """

    def __init__(self, content: bytes = b"") -> None:
        self._set(np.frombuffer(content, "<i8").reshape(6, -1))

    def _set(self, directory: Ints) -> None:
        self._directory = directory
        self.count = int(directory[_WINDOWS].sum())
        self.next_us = int(directory[_NEXT_US].min(initial=NEVER))
        self.due_us = int(directory[_DUE_US].min(initial=NEVER))

    def __bool__(self) -> bool:
        return self.count > 0

    @property
    def content(self) -> bytes:
        """The directory as bytes."""
        return self._directory.tobytes()

    @property
    def blocks(self) -> list[int]:
        """The number of the block of each leaf."""
        numbers: list[int] = self._directory[_BLOCK].tolist()
        return numbers

    def hold_us(self, *, by_open: bool) -> int:
        """Return the least open time, or the least close time, of a window; `NEVER` for none."""
        return int(self._directory[_FIRST_US if by_open else _LAST_US].min(initial=NEVER))

    def near(self, timestamp_us: int, reach_us: int, preceding_us: int) -> Ints:
        """Return the leaves of the span of a value, and of the sessions that it may join.

        Args:
            timestamp_us: the timestamp of the value.
            reach_us: the greatest distance at which a value joins a session.
            preceding_us: the greatest first timestamp, up to that of the value, of a session that
                is in no leaf. The value joins none that is before that session.
        """
        times_us = preceding_us, timestamp_us, timestamp_us + reach_us
        begin, own, end = self._directory[_FIRST_US].searchsorted(times_us, "right").tolist()
        return np.arange(max(begin, own - 1), end)

    def due(self, watermark_us: int = -NEVER, now_us: int = -NEVER) -> Ints:
        """Return the leaves with a window that is due at a watermark or a system time."""
        is_due = self._directory[_NEXT_US] <= watermark_us
        return np.flatnonzero(is_due | (self._directory[_DUE_US] <= now_us))

    def take(
        self, chosen: Ints | slice, read: BlockReader, load: Load = pickle.loads
    ) -> list[Leaf]:
        """Return leaves and remove them from the directory.

        Args:
            chosen: the places of the leaves in the directory.
            read: returns the blocks of given numbers and removes them from the store.
            load: reads the pickle in the bytes of a block.

        Raises:
            CheckpointError: when a block is missing or has an unknown format.
        """
        blocks = read(self._directory[_BLOCK, chosen].tolist())
        self._set(np.delete(self._directory, chosen, axis=1))
        for block in blocks:
            check_format("a block of windows", version_in(block))
        return [Leaf(*columns_in(block, len(Leaf._fields), "windows", load)) for block in blocks]

    def packed(
        self, live: Leaf, dues: Callable[[int], tuple[int, int]], store: BlockStore
    ) -> bytes | None:
        """Pack windows into leaves, and return the directory; ``None`` if they are too few.

        Args:
            live: the windows that are in no leaf.
            dues: returns the watermark and the system time at which a window is due, by its id.
            store: the storage of blocks.
        """
        sessions = live.windower
        if len(sessions) <= 2 * LEAF_WINDOWS:
            return None
        first_us = [session[1] for session in sessions]
        cuts = np.unique(np.searchsorted(first_us, self._directory[_FIRST_US]))
        spans = np.split(np.arange(len(sessions)), cuts)
        parts = [
            part for span in spans for part in np.array_split(span, len(span) // LEAF_WINDOWS or 1)
        ]
        rows = [
            _row(live, sessions[part[0] : part[-1] + 1], dues, store) for part in parts if len(part)
        ]
        directory = np.concatenate([self._directory, np.array(rows, "<i8").T], axis=1)
        return directory[:, directory[_FIRST_US].argsort()].tobytes()


NO_LEAVES = Leaves()
"""The directory of a key without leaves."""


def _row(
    live: Leaf, sessions: Sequence[Any], dues: Callable[[int], tuple[int, int]], store: BlockStore
) -> tuple[int, ...]:
    """Store a leaf of sessions, and return its row of the directory."""
    ids = [session[0] for session in sessions]
    fields = [{one: of[one] for one in ids if one in of} for of in live[1:]]
    block = store.add(LEAF + pickle.dumps(tuple(Leaf(list(sessions), *fields)), 5))
    next_us, due_us = map(min, zip(*map(dues, ids), strict=True))
    return sessions[0][1], sessions[0][2], next_us, due_us, len(ids), block
