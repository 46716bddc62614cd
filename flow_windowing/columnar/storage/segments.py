"""The format of segments that hold the windowing state of many keys, in columns.

After its kind, a segment is a pickle of plain tuples, texts, numbers and bytes: the columns of a
`SegmentContent`, in its order. Columns of numbers are little-endian. A column in which all elements
are the default is empty.
"""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints
from flow.keyed.segments import WINDOWS, columns_in
from flow_windowing.columnar.aggregates.accumulators import EncodedAccumulators
from flow_windowing.columnar.state.shard_state import WindowKind
from flow_windowing.columnar.values.encoding import EncodedValues
from flow_windowing.columnar.values.value_blocks import DIRECTORY


class SegmentContent(NamedTuple):
    """The content of a segment, column by column.

    Attributes:
        key_lengths: the length of each key in bytes, int32.
        key_texts: the keys in UTF-8, one after the other.
        base_us, set_at_us, last_value_us: the clock of each key; empty for system time.
        arrival_counts, entry_counts: the numbers of values of each key that arrived and that
            entered windows; empty if they are not needed.
        counted_values: the number of values of each key that a `CountWindower` has counted.
        due_us: the due time of each key.
        window_counts: the number of windows of each key, int32.
        ids: the ids of windows, key after key.
        latest_us: the greatest timestamp in each window; empty if it is not needed.
        first_us, last_us: the least and the greatest timestamp in each window; empty if the bounds
            of windows follow from their ids.
        merged_ids: the ids merged into each window, sorted; empty if no window merged.
        is_emitted: a byte for each window, 1 if it has emitted its result; empty if no window has,
            or if it is not needed.
        accumulators: the accumulators of each aggregate.
        buffered_counts: the number of buffered values of each key, int32; empty without values.
        times_us, numbers: the timestamps and arrival numbers of buffered values.
        values: the buffered values.
        named: True if the snapshot of a window is a list of states, one for each aggregate.
        kind: the kind of the windows.
        clock_logics: a pickle of the snapshot of each key's clock, for a clock without columns.
        held_watermark_us: the last watermark that each key used under a hold; empty if no key is
            held.
        block_counts: the number of blocks of each key, int32; empty without blocks.
        blocks: the rows of the directory of blocks, see `DIRECTORY`.
    """

    key_lengths: bytes
    key_texts: bytes
    base_us: bytes
    set_at_us: bytes
    last_value_us: bytes
    arrival_counts: bytes
    entry_counts: bytes
    counted_values: bytes
    due_us: bytes
    window_counts: bytes
    ids: bytes
    latest_us: bytes
    first_us: bytes
    last_us: bytes
    merged_ids: list[tuple[int, ...]]
    is_emitted: bytes
    accumulators: tuple[EncodedAccumulators, ...]
    buffered_counts: bytes
    times_us: bytes
    numbers: bytes
    values: EncodedValues
    named: bool
    kind: WindowKind
    clock_logics: list[bytes]
    held_watermark_us: bytes
    block_counts: bytes = b""
    blocks: bytes = b""

    def encode(self) -> bytes:
        """Return the segment as bytes."""
        return WINDOWS + pickle.dumps(tuple(self), 5)

    @classmethod
    def decode(cls, content: bytes, load: Any = pickle.loads) -> SegmentContent:
        """Return the content of a segment.

        Args:
            content: the bytes that `encode` made.
            load: reads the pickle in the bytes.

        Raises:
            CheckpointError: when the bytes are not such a segment.
        """
        return cls(*columns_in(content, len(cls._fields), "windows", load))

    @property
    def key_count(self) -> int:
        """The number of keys."""
        return len(self.key_lengths) // 4

    def part(
        self,
        texts: slice,
        keys: slice,
        windows: slice,
        values: slice,
        blocks: slice = slice(0, 0),
    ) -> SegmentContent:
        """Return some keys with slices of the columns, without accumulators and buffered values.

        Args:
            texts: the bytes of the keys in `key_texts`.
            keys: the keys.
            windows: the windows of the keys.
            values: the buffered values of the keys.
            blocks: the blocks of the keys.
        """
        rows = {_KEY: keys, _WINDOW: windows, _VALUE: values, _BLOCK: blocks}
        columns = {
            name: getattr(self, name)[rows[of].start * size : rows[of].stop * size]
            for name, (of, size) in _COLUMNS.items()
        }
        return self._replace(key_texts=self.key_texts[texts], accumulators=(), values=[], **columns)


_KEY, _WINDOW, _VALUE, _BLOCK = range(4)
_COLUMNS = {
    **dict.fromkeys(("key_lengths", "window_counts"), (_KEY, 4)),
    **dict.fromkeys(("buffered_counts", "block_counts"), (_KEY, 4)),
    "blocks": (_BLOCK, DIRECTORY.itemsize),
    **dict.fromkeys(("base_us", "set_at_us", "last_value_us", "held_watermark_us"), (_KEY, 8)),
    **dict.fromkeys(("arrival_counts", "entry_counts", "counted_values", "due_us"), (_KEY, 8)),
    "clock_logics": (_KEY, 1),
    **dict.fromkeys(("ids", "latest_us", "first_us", "last_us"), (_WINDOW, 8)),
    **dict.fromkeys(("merged_ids", "is_emitted"), (_WINDOW, 1)),
    **dict.fromkeys(("times_us", "numbers"), (_VALUE, 8)),
}
"""The kind of the rows of each column, and the number of elements of the column for a row."""


def keys_of(parts: list[SegmentContent]) -> pa.Array:
    """Return the keys of several segments, as Arrow large text."""
    lengths = np.frombuffer(b"".join(part.key_lengths for part in parts), "<i4")
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    texts = b"".join(part.key_texts for part in parts)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(texts)]
    return pa.Array.from_buffers(pa.large_string(), len(lengths), buffers)


def decode_column(contents: list[bytes], kind: str = "<i8") -> Ints:
    """Return a column of several segments, one after the other, as int64."""
    return np.frombuffer(b"".join(contents), kind).astype(np.int64)


def decode_or_default(contents: list[bytes], counts: list[int], default: int) -> Ints:
    """Return a column of several segments; an empty column of a segment has the default.

    Args:
        contents: the column in each segment.
        counts: the number of rows in each segment.
        default: the default.
    """
    pieces = [
        np.frombuffer(content, "<i8") if content else np.full(count, default, np.int64)
        for content, count in zip(contents, counts, strict=True)
    ]
    return np.concatenate(pieces).astype(np.int64) if pieces else np.empty(0, np.int64)


def encode_column(values: Ints, kind: str = "<i8") -> bytes:
    """Return a column as bytes."""
    return values.astype(kind).tobytes()


def encode_unless_default(values: Ints, default: int) -> bytes:
    """Return a column as bytes; empty if all elements are the default."""
    return b"" if (values == default).all() else encode_column(values)
