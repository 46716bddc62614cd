"""Writing shard state to segments, and reading it from them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, Mask
from flow.instants import NEVER
from flow.keyed.due import split_dues
from flow.keyed.segments import WINDOWS, BlockReader, StateCounts, WholeKeys, kind_of
from flow.keyed.shard_logic import BlockStore, SegmentDump
from flow_windowing.columnar.admission.key_clocks import KeyClocks, KeyColumns, KeyLogics
from flow_windowing.columnar.admission.shard_clocks import LogicShardClock
from flow_windowing.columnar.aggregates.accumulator_column import AccumulatorColumn
from flow_windowing.columnar.state.open_windows import OpenWindows, Spans, merged_ids_column
from flow_windowing.columnar.state.shard_state import ShardState, StateForm, WindowKind
from flow_windowing.columnar.storage.segments import (
    SegmentContent,
    decode_column,
    decode_or_default,
    encode_column,
    encode_unless_default,
    keys_of,
)
from flow_windowing.columnar.storage.snapshots import content_of_snapshots
from flow_windowing.columnar.values.buffered_values import (
    BufferedValues,
    encoder_of,
    restored_records,
)
from flow_windowing.columnar.values.encoding import lazy_values, pickle_values
from flow_windowing.columnar.values.value_blocks import (
    BLOCK_ROWS,
    DIRECTORY,
    Block,
    Directory,
    directory_entry,
)
from flow_windowing.rules.key_state import side_of
from flow_windowing.rules.watermark import NO_WATERMARK


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
    index_of = np.full(max(int(segments.max(initial=0)), max(wanted, default=0)) + 1, -1)
    index_of[wanted] = np.arange(len(wanted))
    indices = np.where(state.has_state(), index_of[segments], -1)
    chosen = np.flatnonzero(indices >= 0)
    chosen = chosen[np.argsort(indices[chosen], kind="stable")]
    key_ends = np.searchsorted(indices[chosen], np.arange(len(wanted)), "right").tolist()
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
        self._text_ends, texts = _texts_of(state.keys)
        window_counts, self._window_ends = _count_rows(windows.slots, state.count)
        buffered_counts, self._buffered_ends = _count_rows(buffered.slots, state.count)
        self._block_ends = np.searchsorted(state.blocks["slot"], np.arange(state.count + 1))
        first_us, last_us, merged_ids = _encode_spans(windows.spans)
        emitted = windows.is_emitted
        self._all = SegmentContent(
            key_lengths=encode_column(np.diff(self._text_ends), "<i4"),
            key_texts=texts,
            **_encode_clocks(state.clocks, form.clock.expires),
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


def _encode_clocks(clocks: KeyClocks, expires: bool) -> dict[str, Any]:
    """Return clocks as columns of a segment, by name."""
    names = ("base_us", "set_at_us", "last_value_us", "held_watermark_us")
    encoded: dict[str, Any] = {**dict.fromkeys(names, b""), "clock_logics": []}
    if isinstance(clocks, KeyLogics):
        encoded["clock_logics"] = pickle_values(clocks.snapshots())
    elif isinstance(clocks, KeyColumns):
        column, held_us = encode_unless_default, clocks.held_watermark_us
        encoded["base_us"] = column(clocks.base_us, NO_WATERMARK)
        encoded["set_at_us"] = column(clocks.set_at_us, 0)
        encoded["last_value_us"] = column(clocks.last_value_us, 0) if expires else b""
        encoded["held_watermark_us"] = b"" if held_us is None else column(held_us, NO_WATERMARK)
    return encoded


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


def _texts_of(keys: pa.Array) -> tuple[Ints, Any]:
    """Return the bounds of each key's text in bytes, and the texts."""
    _, offsets, texts = keys.buffers()
    ends = np.frombuffer(offsets, "<i8", len(keys) + 1, keys.offset * 8)
    return ends, b"" if texts is None else texts.to_pybytes()


def read_segment(form: StateForm, content: bytes) -> Iterator[SegmentContent]:
    """Yield the content of a segment; a segment that was written key by key has several."""
    if kind_of(content) == WINDOWS:
        yield SegmentContent.decode(content)
        return
    # A snapshot is a segment of its key alone, or the pickled state of a `WindowDriver`.
    keys, snapshots, due_us, *_ = WholeKeys.decode(content, "a segment of windows")
    pickled = [at for at, snapshot in enumerate(snapshots) if kind_of(snapshot) != WINDOWS]
    yield from (SegmentContent.decode(one) for one in snapshots if kind_of(one) == WINDOWS)
    if pickled:
        states = [pickle.loads(snapshots[at]) for at in pickled]
        yield content_of_snapshots(form, [keys[at] for at in pickled], states, due_us[pickled])


def build_shard_state(form: StateForm, parts: list[SegmentContent]) -> ShardState:
    """Return the state of the keys in several contents, one after the other."""
    counts = [part.key_count for part in parts]
    return ShardState(
        keys_of(parts),
        _clocks_of(form, parts, counts),
        decode_or_default([part.arrival_counts for part in parts], counts, 0),
        decode_or_default([part.entry_counts for part in parts], counts, 0),
        decode_or_default([part.counted_values for part in parts], counts, 0),
        _windows_of(form, parts, sum(counts)),
        _buffered_of(form.kind, parts, counts),
        _blocks_of(parts, counts),
    )


def with_blocks(
    kind: WindowKind,
    values: BufferedValues,
    blocks: Directory,
    contents: list[bytes],
    load: Callable[[memoryview], Any] = pickle.loads,
) -> BufferedValues:
    """Return values and those in blocks, given the content of each; sorted by slot and arrival."""
    decoded = [Block.decode(content, load) for content in contents]
    slots = np.repeat(blocks["slot"], blocks["count"])
    both = values.followed_by(_restored(kind, slots, decoded))
    return both.take(np.lexsort((both.numbers, both.slots)))


def without_blocks(
    content: SegmentContent,
    take: BlockReader,
    load: Callable[[memoryview], Any] = pickle.loads,
) -> SegmentContent:
    """Return a segment with all its values and no blocks, given a reader of blocks.

    The function reads no pickled value; `load` reads the pickles of blocks.
    """
    if not content.blocks:
        return content
    keys = [content.key_count]
    blocks = _blocks_of([content], keys)
    buffered = _buffered_of(content.kind, [content], keys)
    values = with_blocks(content.kind, buffered, blocks, take(blocks["number"].tolist()), load)
    return content._replace(
        buffered_counts=_count_rows(values.slots, *keys)[0],
        times_us=encode_column(values.times_us),
        numbers=encode_column(values.numbers),
        values=encoder_of(values.values)(0, len(values)),
        block_counts=b"",
        blocks=b"",
    )


def store_blocks(state: ShardState, store: BlockStore, segments: Ints, wanted: list[int]) -> None:
    """Move the values of keys that have many to new blocks, except for the earliest values.

    Args:
        state: the shard state.
        store: the storage of the blocks.
        segments: the number of the segment of each slot.
        wanted: the numbers of the segments that are written next.
    """
    buffered, entries = state.buffered, list[Any]()
    counts = np.bincount(buffered.slots, minlength=state.count)
    large = np.flatnonzero(counts >= 2 * BLOCK_ROWS)
    large = large[np.isin(segments[large], wanted)]
    if not len(large):
        return
    stays = ~np.isin(buffered.slots, large)
    moved = np.flatnonzero(~stays)
    moved = moved[np.lexsort((buffered.times_us[moved], buffered.slots[moved]))]
    for slot in large.tolist():
        first, end = np.searchsorted(buffered.slots[moved], [slot, slot + 1]).tolist()
        stays[moved[first : first + BLOCK_ROWS]] = True
        later = moved[first + BLOCK_ROWS : end]
        for chosen in np.array_split(later, len(later) // BLOCK_ROWS):
            block = buffered.take(chosen)
            columns = encode_column(block.times_us), encode_column(block.numbers)
            number = store.add(Block(*columns, encoder_of(block.values)(0, len(block))).encode())
            entries.append(directory_entry(slot, number, block.times_us, block.numbers))
    state.blocks = np.append(state.blocks, np.array(entries, DIRECTORY))
    state.buffered = buffered.take(stays)


def _clocks_of(form: StateForm, parts: list[SegmentContent], counts: list[int]) -> KeyClocks:
    if isinstance(form.clock, LogicShardClock):
        return form.clock.restored_clocks(
            pickle.loads(one) for part in parts for one in part.clock_logics
        )
    held_us: Ints | None = None
    if any(part.held_watermark_us for part in parts):
        held = [part.held_watermark_us for part in parts]
        held_us = decode_or_default(held, counts, NO_WATERMARK)
    return KeyColumns(
        decode_or_default([part.base_us for part in parts], counts, NO_WATERMARK),
        decode_or_default([part.set_at_us for part in parts], counts, 0),
        # Segments of steps whose keys do not expire lack the column.
        decode_or_default([part.last_value_us or part.set_at_us for part in parts], counts, 0),
        held_us,
    )


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
    return _restored(kind, _slots_of([part.buffered_counts for part in parts], counts), parts)


def _slots_of(row_counts: list[bytes], key_counts: list[int]) -> Ints:
    """Return the slot of each row, given the number of rows of each key in several segments."""
    rows_of_key = [
        decode_column([counts], "<i4") if counts else np.zeros(keys, np.int64)
        for counts, keys in zip(row_counts, key_counts, strict=True)
    ]
    rows = np.concatenate([np.empty(0, np.int64), *rows_of_key])
    return np.repeat(np.arange(sum(key_counts)), rows)


def _restored(
    kind: WindowKind, slots: Ints, parts: Sequence[SegmentContent | Block]
) -> BufferedValues:
    """Return stored values; those of a join by time as records of each side if they can be."""
    times_us = decode_column([part.times_us for part in parts])
    numbers = decode_column([part.numbers for part in parts])
    contents = [part.values for part in parts]
    records = None
    if kind == "interval":
        records = restored_records(contents, side_of(numbers))
    values = [value for one in contents for value in lazy_values(one)]
    return BufferedValues(
        slots, times_us, numbers, values if records is None else records, times_us
    )
