"""Segments of shard state: their format, and writing and reading them.

After its kind, a segment is a pickle of plain tuples, texts, numbers and bytes: the columns of a
`SegmentContent`, in its order. Columns of numbers are little-endian. A column in which all elements
are the default is empty.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, Mask
from flow.columns.chunks import radix_order
from flow.instants import NEVER
from flow.keyed.shard_logic import SegmentDump
from flow.keyed.state import (
    WINDOWS,
    BlockReader,
    StateCounts,
    columns_in,
    split_dues,
)
from flow_windowing.columnar.aggregates.accumulator_column import AccumulatorColumn
from flow_windowing.columnar.aggregates.accumulators import EncodedAccumulators
from flow_windowing.columnar.aggregates.object_accumulators import ObjectAccumulators
from flow_windowing.columnar.state.encoded_clocks import EncodedClocks, decode_clocks
from flow_windowing.columnar.state.shard_state import (
    OpenWindows,
    ShardState,
    Spans,
    StateForm,
    WindowKind,
    merged_ids_column,
)
from flow_windowing.columnar.values.blocks import DIRECTORY, Directory, read_pieces, with_blocks
from flow_windowing.columnar.values.buffered_values import (
    BufferedValues,
    encoder_of,
    restored_values,
)
from flow_windowing.columnar.values.encoding import (
    EncodedValues,
    decode_column,
    decode_or_default,
    decode_texts,
    encode_column,
    encode_texts,
    encode_unless_default,
)


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

    @property
    def clocks(self) -> EncodedClocks:
        """The clocks of the keys."""
        return EncodedClocks(*(getattr(self, name) for name in EncodedClocks._fields))

    @property
    def has_blocks(self) -> bool:
        """True if a part of the keys' values or of the lists of windows is in blocks."""
        pieces = chain.from_iterable(
            chain.from_iterable(rows)
            for kind, _, *columns in self.accumulators
            if kind == ObjectAccumulators.kind
            for rows in columns
        )
        return bool(self.blocks) or any(isinstance(one, int) for one in pieces)

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
    return decode_texts([part.key_lengths for part in parts], [part.key_texts for part in parts])


def slots_by_segment(segments: Ints, wanted: list[int], has_state: Mask) -> tuple[Ints, list[int]]:
    """Return the slots to write, and the end of the slots of each wanted segment among them.

    Args:
        segments: the number of the segment of each slot.
        wanted: the numbers of the segments to write.
        has_state: the mask of the slots with state.
    """
    index_of = np.full(max(int(segments.max(initial=0)), max(wanted, default=0)) + 1, -1)
    index_of[wanted] = np.arange(len(wanted))
    indices = np.where(has_state, index_of[segments], -1)
    slots = np.flatnonzero(indices >= 0)
    slots = slots[radix_order(indices[slots], len(wanted))]
    return slots, np.searchsorted(indices[slots], np.arange(len(wanted)), "right").tolist()


def write_segments(
    form: StateForm,
    state: ShardState,
    due_us: Ints,
    holds_us: Ints | None,
    segments: Ints,
    wanted: list[int],
) -> list[SegmentDump]:
    """Write keys to segments.

    Args:
        form: the form of the step's state.
        state: the shard state.
        due_us: the due time of each slot, int64 µs.
        holds_us: the hold of each slot; ``None`` for a step without holds.
        segments: the number of the segment of each slot.
        wanted: the numbers of the segments to write.

    Returns:
        The wanted segments, in the order of `wanted`.
    """
    chosen, key_ends = slots_by_segment(segments, wanted, state.has_state())
    holds_us = None if holds_us is None else holds_us[chosen]
    writer = _SegmentWriter(form, state.take(chosen), due_us[chosen], holds_us)
    begin, dumps = 0, []
    for end in key_ends:
        dumps.append(writer.segment(begin, end))
        begin = end
    return dumps


class _SegmentWriter:
    """Writer of ranges of slots as segments; keys are sorted by segment.

    Columns are encoded once for all segments; a segment has slices of the bytes.
    """

    def __init__(
        self, form: StateForm, state: ShardState, due_us: Ints, holds_us: Ints | None
    ) -> None:
        column, counts = encode_unless_default, form.counts_arrivals
        windows, buffered = state.windows, state.buffered
        self._text_ends, texts = encode_texts(state.keys)
        window_counts, self._window_ends = _count_rows(windows.slots, state.count)
        buffered_counts, self._buffered_ends = _count_rows(buffered.slots, state.count)
        self._block_ends = np.searchsorted(state.blocks["slot"], np.arange(state.count + 1))
        first_us, last_us, merged_ids = _encode_spans(windows.spans)
        emitted = windows.is_emitted
        self._all = SegmentContent(
            key_lengths=encode_column(np.diff(self._text_ends), "<i4"),
            key_texts=texts,
            **EncodedClocks.of(state.clocks, form.clock.expires)._asdict(),
            arrival_counts=column(state.arrival_counts, 0) if counts else b"",
            entry_counts=column(state.entry_counts, 0) if counts else b"",
            counted_values=column(state.counted_values, 0),
            due_us=encode_column(due_us),
            window_counts=window_counts,
            ids=encode_column(windows.ids),
            latest_us=column(windows.latest_us, -NEVER),
            first_us=first_us,
            last_us=last_us,
            merged_ids=merged_ids,
            is_emitted=b"" if emitted is None or not emitted.any() else emitted.tobytes(),
            accumulators=(),
            buffered_counts=buffered_counts,
            times_us=encode_column(buffered.times_us),
            numbers=encode_column(buffered.numbers),
            values=[],
            named=form.named,
            kind=form.kind,
            block_counts=encode_column(np.diff(self._block_ends), "<i4"),
            blocks=state.blocks.tobytes(),
        )
        self._values_in_blocks = state.blocks["count"]
        self._due_us, self._held_due_us = split_dues(due_us)
        self._holds_us = holds_us
        self._accumulators = windows.accumulators
        self._values = encoder_of(buffered.values)

    def segment(self, begin: int, end: int) -> SegmentDump:
        """Return the segment of the slots from `begin` to `end`, exclusive."""
        if begin == end:
            return SegmentDump(None, 0, NEVER)
        ends = self._text_ends, self._window_ends, self._buffered_ends, self._block_ends
        texts, windows, values, blocks = (slice(one[begin], one[end]) for one in ends)
        part = self._all.part(texts, slice(begin, end), windows, values, blocks)
        content = part._replace(
            accumulators=tuple(
                one.encode(windows.start, windows.stop) for one in self._accumulators
            ),
            buffered_counts=part.buffered_counts if part.times_us else b"",
            values=self._values(values.start, values.stop),
            block_counts=part.block_counts if part.blocks else b"",
        )
        due_us, held_us = self._due_us[begin:end].min(), self._held_due_us[begin:end].min()
        in_blocks = int(self._values_in_blocks[blocks].sum())
        counts = StateCounts(len(part.ids) // 8, len(part.times_us) // 8 + in_blocks)
        holds_us = self._holds_us
        hold_us = NEVER if holds_us is None else int(holds_us[begin:end].min())
        return SegmentDump(
            content.encode(), end - begin, int(due_us), int(held_us), counts, hold_us
        )


def _encode_spans(spans: Spans | None) -> tuple[bytes, bytes, list[tuple[int, ...]]]:
    if spans is None:
        return b"", b"", []
    first, last = encode_column(spans.first_us), encode_column(spans.last_us)
    merged_ids = spans.merged_ids.tolist()
    return first, last, merged_ids if any(merged_ids) else []


def _count_rows(slots: Ints, slot_count: int) -> tuple[bytes, list[int]]:
    """Return the number of rows of each slot as bytes, and the bounds of each slot's rows."""
    counts = np.bincount(slots, minlength=slot_count)
    ends: list[int] = np.concatenate([[0], np.cumsum(counts)]).tolist()
    return encode_column(counts, "<i4"), ends


def build_shard_state(form: StateForm, parts: list[SegmentContent]) -> ShardState:
    """Return the state of the keys in several contents, one after the other."""
    counts = [part.key_count for part in parts]
    return ShardState(
        keys_of(parts),
        decode_clocks(form.clock, [part.clocks for part in parts], counts),
        decode_or_default([part.arrival_counts for part in parts], counts, 0),
        decode_or_default([part.entry_counts for part in parts], counts, 0),
        decode_or_default([part.counted_values for part in parts], counts, 0),
        _windows_of(form, parts, sum(counts)),
        _buffered_of(form.kind, parts, counts),
        _blocks_of(parts, counts),
    )


def without_blocks(
    content: SegmentContent,
    take: BlockReader,
    load: Callable[[memoryview], Any] = pickle.loads,
) -> SegmentContent:
    """Return a segment with all its values and no blocks, given a reader of blocks.

    The function reads no pickled value; `load` reads the pickles of blocks.
    """
    accumulators = tuple(_without_list_blocks(one, take) for one in content.accumulators)
    content = content._replace(accumulators=accumulators)
    if not content.blocks:
        return content
    keys = [content.key_count]
    blocks = _blocks_of([content], keys)
    buffered = _buffered_of(content.kind, [content], keys)
    values = with_blocks(
        buffered, blocks, take(blocks["number"].tolist()), content.kind == "interval", load
    )
    return content._replace(
        buffered_counts=_count_rows(values.slots, *keys)[0],
        times_us=encode_column(values.times_us),
        numbers=encode_column(values.numbers),
        values=encoder_of(values.values)(0, len(values)),
        block_counts=b"",
        blocks=b"",
    )


def _without_list_blocks(
    accumulators: EncodedAccumulators, take: BlockReader
) -> EncodedAccumulators:
    """Return the accumulators of an aggregate with the content of the blocks of their lists."""
    kind, states, *pieces = accumulators
    if kind != ObjectAccumulators.kind:
        return accumulators
    return kind, states, *([read_pieces(row, take) for row in rows] for rows in pieces)


def _windows_of(form: StateForm, parts: list[SegmentContent], key_count: int) -> OpenWindows:
    window_counts = [len(part.ids) // 8 for part in parts]
    windows_of_key = decode_column([part.window_counts for part in parts], "<i4")
    accumulators = [
        AccumulatorColumn.decode(aggregator, [part.accumulators[at] for part in parts if part.ids])
        for at, aggregator in enumerate(form.aggregators)
    ]
    return OpenWindows(
        np.repeat(np.arange(key_count), windows_of_key),
        decode_column([part.ids for part in parts]),
        decode_or_default([part.latest_us for part in parts], window_counts, -NEVER),
        accumulators,
        None if form.kind in ("index", "interval") else _spans_of(parts, window_counts),
        is_emitted=_emitted_of(parts, window_counts),
    )


def _spans_of(parts: list[SegmentContent], counts: list[int]) -> Spans:
    merged_ids: list[tuple[int, ...]] = []
    for part, count in zip(parts, counts, strict=True):
        merged_ids += part.merged_ids or [()] * count
    return Spans(
        decode_column([part.first_us for part in parts]),
        decode_column([part.last_us for part in parts]),
        merged_ids_column(merged_ids),
    )


def _emitted_of(parts: list[SegmentContent], counts: list[int]) -> Mask | None:
    if not any(part.is_emitted for part in parts):
        return None
    emitted = (part.is_emitted or bytes(count) for part, count in zip(parts, counts, strict=True))
    return np.frombuffer(b"".join(emitted), np.bool_).copy()


def _blocks_of(parts: list[SegmentContent], counts: list[int]) -> Directory:
    blocks = np.frombuffer(b"".join(part.blocks for part in parts), DIRECTORY).copy()
    blocks["slot"] = _slots_of([part.block_counts for part in parts], counts)
    return blocks


def _buffered_of(
    kind: WindowKind, parts: list[SegmentContent], counts: list[int]
) -> BufferedValues:
    slots = _slots_of([part.buffered_counts for part in parts], counts)
    stored = [(part.times_us, part.numbers, part.values) for part in parts]
    return restored_values(slots, stored, kind == "interval")


def _slots_of(row_counts: list[bytes], key_counts: list[int]) -> Ints:
    """Return the slot of each row, given the number of rows of each key in several segments."""
    rows_of_key = [
        decode_column([counts], "<i4") if counts else np.zeros(keys, np.int64)
        for counts, keys in zip(row_counts, key_counts, strict=True)
    ]
    rows = np.concatenate([np.empty(0, np.int64), *rows_of_key])
    return np.repeat(np.arange(sum(key_counts)), rows)
