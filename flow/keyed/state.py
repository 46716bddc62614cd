"""The stored state of a keyed step: segments and their kinds, counts of state, due times.

A segment begins with two bytes: the version of its format, and its kind.

A *due time* is the time at which the logic of a key is called although no value arrives: an int64
in microseconds. A key that is due while source partitions that are behind *hold* its watermark has
a due time in a separate range, far before any date: the range encodes the watermark that the key
waits for.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from flow.columns.arrays import Ints, Mask
from flow.errors import CheckpointError
from flow.format_version import VERSION, check_format, version_in
from flow.instants import NEVER

WHOLE_KEYS = bytes([VERSION]) + b"K"
"""A segment of whole keys, see `WholeKeys`."""
WINDOWS = bytes([VERSION]) + b"W"
"""A segment of windows in columns, which the `ShardLogic` of a step defines; also the snapshot of a
key in a segment of whole keys after a move to another layout."""
IDS = bytes([VERSION]) + b"I"
"""A segment of remembered ids in columns, see `flow_windowing.deduplication.segments`."""
MOVED = bytes([VERSION]) + b"M"
"""The snapshot of a key with its blocks, in the place of the snapshot after a move to another
layout."""
PACKED = bytes([VERSION]) + b"P"
"""A packed segment: its content is a segment of another kind."""


def kind_of(content: bytes) -> bytes:
    """Return the two bytes that a segment, or the snapshot of a key, begins with."""
    return content[:2]


def columns_in(content: bytes, count: int, what: str, load: Callable[[memoryview], Any]) -> Any:
    """Return the columns of a segment in columns: a pickled tuple after the segment's kind.

    Args:
        content: the bytes of the segment.
        count: the number of columns.
        what: the content of the segment, for errors.
        load: reads the pickle in the bytes.

    Raises:
        CheckpointError: when the bytes are not such a segment.
    """
    columns = load(memoryview(content)[len(WHOLE_KEYS) :])
    if not isinstance(columns, tuple) or len(columns) != count:
        raise CheckpointError(f"it is no segment of {what} in columns")
    return columns


class WholeKeys(NamedTuple):
    """A segment of whole keys: each with its snapshot, due time and counts.

    After its kind, the segment is a pickle of these columns; due times are little-endian bytes.

    Attributes:
        keys: the keys.
        snapshots: the pickled snapshot of each key; after a move to another layout, a columnar
            segment of the key alone.
        due_us: the due time of each key, int64 µs, shape (keys,).
        windows, values: the open windows, and the buffered values, of each key; empty for a step
            that is not counted.
        holds_us: the hold of each key, in µs; empty for a step without holds.
    """

    keys: list[str]
    snapshots: list[bytes]
    due_us: Ints
    windows: tuple[int, ...] = ()
    values: tuple[int, ...] = ()
    holds_us: tuple[int, ...] = ()

    @property
    def counts(self) -> list[tuple[int, int]]:
        """The open windows and buffered values of each key; empty if they are not counted."""
        return list(zip(self.windows, self.values, strict=True))

    def encode(self) -> bytes:
        """Return the segment as bytes."""
        dues = self.due_us.astype("<i8").tobytes()
        columns = self.keys, self.snapshots, dues, self.windows, self.values, self.holds_us
        return WHOLE_KEYS + pickle.dumps(columns, 5)

    @classmethod
    def decode(
        cls, content: bytes, what: str, load: Callable[[memoryview], Any] = pickle.loads
    ) -> WholeKeys:
        """Return the segment in bytes made by `encode`.

        Args:
            content: the bytes.
            what: the segment, for errors.
            load: reads the pickle in the bytes.

        Raises:
            CheckpointError: when the bytes have another format or kind.
        """
        check_format(what, version_in(content))
        if kind_of(content) != WHOLE_KEYS:
            raise CheckpointError(f"{what} is no segment of whole keys")
        keys, snapshots, dues, *counts = load(memoryview(content)[len(WHOLE_KEYS) :])
        return cls(keys, snapshots, np.frombuffer(dues, "<i8").astype(np.int64), *counts)


BlockReader: TypeAlias = Callable[[Sequence[int]], list[bytes]]
"""A function that returns blocks of a step's state, given their numbers."""


class StateCounts(NamedTuple):
    """The number of open windows and of buffered values in state.

    Attributes:
        windows: the number of open windows.
        values: the number of values that are retained as they are: values that wait for the
            watermark, and values that a join by time retains for partners. Values that have become
            part of an accumulator of a window do not count.

    >>> StateCounts.total([StateCounts(1, 20), StateCounts(2, 0)])
    StateCounts(windows=3, values=20)
    """

    windows: int = 0
    values: int = 0

    @classmethod
    def total(cls, counts: Iterable[tuple[int, int]]) -> StateCounts:
        """Return the sum of counts, or of pairs of the same numbers."""
        return cls(*map(sum, zip(*counts, strict=True)))


StateCounter: TypeAlias = "Callable[[Any], StateCounts | tuple[int, int]]"
"""A function that counts the open windows and buffered values in the snapshot of a key's logic. A
pair of the two numbers stands for a `StateCounts`."""


_HELD = -(1 << 61)
_HELD_SPAN = 1 << 60


def held_due_us(watermark_us: int) -> int:
    """Return the due time of a key that waits until its step's bound reaches `watermark_us`."""
    return _HELD + max(-_HELD_SPAN + 1, min(watermark_us, _HELD_SPAN - 1))


def held_watermark_us(due_us: int) -> int | None:
    """Return the watermark that the due time of a held key encodes; ``None`` for other due times.

    The inverse of `held_due_us`.
    """
    is_held = abs(due_us - _HELD) < _HELD_SPAN
    return due_us - _HELD if is_held else None


def split_dues(dues: Ints) -> tuple[Ints, Ints]:
    """Split due times into system times and watermarks of held keys.

    Args:
        dues: due times, int64 µs, shape (keys,).

    Returns:
        Two arrays of that shape; the first is `NEVER` for held keys, the second for the others.
    """
    held_us = dues - held_due_us(0)
    is_held = np.abs(held_us) < held_due_us(0) // -2
    return np.where(is_held, NEVER, dues), np.where(is_held, held_us, NEVER)


class DueLimit(NamedTuple):
    """Upper bounds of the due times that an epoch has reached.

    Attributes:
        time_us: the greatest due time that is reached, inclusive.
        bound_us: the greatest watermark that the step may use, inclusive, for held keys.
    """

    time_us: int
    bound_us: int = NEVER

    def includes(self, due_us: int) -> bool:
        """Return True if a key with this due time is due."""
        held_us = held_watermark_us(due_us)
        return due_us <= self.time_us if held_us is None else held_us <= self.bound_us

    def reached_segments(self, dues: Ints, held: Ints) -> Mask:
        """Return the mask of segments with at least one key whose due time is reached.

        Args:
            dues: the least due time in each segment, int64 µs, shape (segments,).
            held: the least watermark at which a held key of each segment is due, of the same shape;
                `NEVER` for a segment without a held key.
        """
        is_released: Mask = (held <= self.bound_us) & (held < NEVER)
        return is_released | (dues <= self.time_us)
