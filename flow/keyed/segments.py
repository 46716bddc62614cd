"""The kinds of segments, the format of a segment of whole keys, and the counts of state.

A segment begins with two bytes: the version of its format, and its kind.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from flow.columns.arrays import Ints
from flow.errors import CheckpointError
from flow.format_version import VERSION, check_format, version_in

WHOLE_KEYS = bytes([VERSION]) + b"K"
"""A segment of whole keys, see `WholeKeys`."""
WINDOWS = bytes([VERSION]) + b"W"
"""A segment of windows in columns, which the `ShardLogic` of a step defines; also the snapshot of a
key in a segment of whole keys after a move to another layout."""
IDS = bytes([VERSION]) + b"I"
"""A segment of remembered ids in columns, see `flow_windowing.deduplication.segments`."""
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
