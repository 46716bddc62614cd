"""Segments of many keys' windows: what is kept between epochs, in columns.

A segment is a version byte, then a pickle of plain tuples, texts, numbers and bytes, the columns of
a `Kept`, in its order. Columns of numbers are little-endian; one that says nothing is empty.
"""

from __future__ import annotations

import pickle
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints
from flow.errors import CheckpointError
from flow_windowing.columnar.aggregates.figures import Packed
from flow_windowing.columnar.values.written import Written

FORMAT = 2
"""The version byte of what a `ShardLogic` has made; segments of keys one by one have 1."""


WindowerKind: TypeAlias = Literal["index", "sessions", "counts"]
"""Windows whose bounds follow from their ids; sessions; windows of a number of values."""


class Kept(NamedTuple):
    """What a segment holds, column by column.

    Attributes:
        lengths: how many bytes each key's text has, 32 bits.
        texts: the keys' texts, UTF-8, one after the other.
        base_us, set_at_us, heard_us: what each key's clock remembers; empty for system time.
        arrived, entered: how many values of each key have come, and entered windows; empty when
            nobody asks.
        seen: how many values of each key a windower has counted that counts them; else empty.
        due_us: when each key is due.
        windows: how many windows each key has, 32 bits.
        ids: the windows' ids, key after key.
        latest_us: the greatest timestamp in each window; empty when nobody asks.
        first_us, last_us: the least and greatest timestamp in each window, where these are its
            bounds; else empty.
        merged: the ids that have become part of each window, in order; empty when none has.
        shown: whether each window has emitted what it has come to, a byte each; empty when none has
            or nobody asks.
        figures: the states of each aggregate.
        waiting: how many values of each key wait, 32 bits; empty for none.
        times_us, numbers: their timestamps, and their numbers in order of arrival.
        values: the values themselves.
        named: whether a window's snapshot is a list of states, one for each aggregate.
        kind: what the windows are.
        taken_us: what each key's watermark was taken for when it was last held; empty for none. A
            segment without it is written as it was before there was such a column.
    """

    lengths: bytes
    texts: bytes
    base_us: bytes
    set_at_us: bytes
    heard_us: bytes
    arrived: bytes
    entered: bytes
    seen: bytes
    due_us: bytes
    windows: bytes
    ids: bytes
    latest_us: bytes
    first_us: bytes
    last_us: bytes
    merged: list[tuple[int, ...]]
    shown: bytes
    figures: tuple[Packed, ...]
    waiting: bytes
    times_us: bytes
    numbers: bytes
    values: Written
    named: bool
    kind: WindowerKind
    taken_us: bytes = b""

    def encode(self) -> bytes:
        """The segment as bytes."""
        columns = tuple(self) if self.taken_us else tuple(self)[:-1]
        return bytes([FORMAT]) + pickle.dumps(columns, 5)

    @classmethod
    def decode(cls, content: bytes, load: Any = pickle.loads) -> Kept:
        """The segment in bytes made by `encode`.

        Args:
            content: the bytes.
            load: what reads the pickle in them.

        Raises:
            CheckpointError: when they are no such segment.
        """
        found = load(memoryview(content)[1:])
        fields = len(cls._fields)
        if not isinstance(found, tuple) or len(found) not in (fields - 1, fields):
            raise CheckpointError("it is no segment of windows in columns")
        return cls(*found)

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return len(self.lengths) // 4


def joined_keys(parts: list[Kept]) -> pa.Array:
    """The keys of several segments, as Arrow text."""
    lengths = np.frombuffer(b"".join(part.lengths for part in parts), "<i4")
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    texts = b"".join(part.texts for part in parts)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(texts)]
    return pa.Array.from_buffers(pa.large_string(), len(lengths), buffers)


def numbers_of(contents: list[bytes], kind: str = "<i8") -> Ints:
    """A column of several segments, one after the other."""
    return np.frombuffer(b"".join(contents), kind).astype(np.int64)


def filled(contents: list[bytes], counts: list[int], empty: int) -> Ints:
    """A column that may be empty in some segments, where it is then this number throughout."""
    pieces = [
        np.frombuffer(content, "<i8") if content else np.full(count, empty, np.int64)
        for content, count in zip(contents, counts, strict=True)
    ]
    return np.concatenate(pieces).astype(np.int64) if pieces else np.empty(0, np.int64)


def column(values: Ints, empty: int) -> bytes:
    """A column as bytes; none of them when it is this number throughout."""
    return b"" if (values == empty).all() else values.astype("<i8").tobytes()
