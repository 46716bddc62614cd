"""Writing shard state to segments."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints
from flow.instants import NEVER
from flow.keyed.due import split_dues
from flow.keyed.segments import StateCounts
from flow.keyed.shard_logic import SegmentDump
from flow_windowing.columnar.admission.key_clocks import KeyClocks, KeyColumns, KeyLogics
from flow_windowing.columnar.state.shard_state import ShardState
from flow_windowing.columnar.state.spans import Spans
from flow_windowing.columnar.state.state_form import StateForm
from flow_windowing.columnar.storage.segments import (
    SegmentContent,
    encode_column,
    encode_unless_default,
)
from flow_windowing.columnar.values.encoding import pickle_values
from flow_windowing.columnar.values.retained_values import encoder_of
from flow_windowing.rules.watermark import NO_WATERMARK


class KeyTimes(NamedTuple):
    """Times of keys by slot, int64 µs, shape (slots,).

    Attributes:
        due_us: the due time of each key.
        holds_us: the hold of each key; ``None`` for a step without holds.
    """

    due_us: Ints
    holds_us: Ints | None = None


def write_segments(
    form: StateForm, state: ShardState, times: KeyTimes, segments: Ints, wanted: list[int]
) -> list[SegmentDump]:
    """Write keys to segments.

    Args:
        form: the form of the step's state.
        state: the shard state.
        times: the due time and the hold of each slot.
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
    holds_us = None if times.holds_us is None else times.holds_us[chosen]
    times = KeyTimes(times.due_us[chosen], holds_us)
    writer = _SegmentWriter(form, state.take(chosen), times)
    begin, dumps = 0, []
    for end in key_ends:
        dumps.append(writer.segment(begin, end))
        begin = end
    return dumps


class _SegmentWriter:
    """Writer of ranges of slots as segments; keys are sorted by segment.

    Columns are encoded once for all segments; a segment has slices of the bytes.
    """

    def __init__(self, form: StateForm, state: ShardState, times: KeyTimes) -> None:
        column, counts = encode_unless_default, form.counts_arrivals
        windows, buffered = state.windows, state.buffered
        self._named, self._kind = form.named, form.kind
        self._text_ends, self._texts = _texts_of(state.keys)
        self._lengths = encode_column(np.diff(self._text_ends), "<i4")
        self._encode_clocks(state.clocks, form.clock.expires)
        self._arrivals = column(state.arrival_counts, 0) if counts else b""
        self._entries = column(state.entry_counts, 0) if counts else b""
        self._counted = column(state.counted_values, 0)
        self._due_us, self._held_due_us = split_dues(times.due_us)
        self._due = encode_column(times.due_us)
        self._holds_us = times.holds_us
        self._window_counts, self._window_ends = _count_rows(windows.slots, state.count)
        self._ids = encode_column(windows.ids)
        self._latest = column(windows.latest_us, -NEVER)
        self._first, self._last, self._merged_ids = _encode_spans(windows.spans)
        emitted = windows.is_emitted
        self._emitted = b"" if emitted is None or not emitted.any() else emitted.tobytes()
        self._accumulators = windows.accumulators
        self._buffered_counts, self._buffered_ends = _count_rows(buffered.slots, state.count)
        self._times = encode_column(buffered.times_us)
        self._numbers = encode_column(buffered.numbers)
        self._values = encoder_of(buffered.values)

    def _encode_clocks(self, clocks: KeyClocks, expires: bool) -> None:
        self._base = self._set_at = self._last_value = self._held = b""
        self._logics: list[bytes] = []
        if isinstance(clocks, KeyLogics):
            self._logics = pickle_values(clocks.snapshots())
        elif isinstance(clocks, KeyColumns):
            column, held_us = encode_unless_default, clocks.held_watermark_us
            self._base = column(clocks.base_us, NO_WATERMARK)
            self._set_at = column(clocks.set_at_us, 0)
            self._last_value = column(clocks.last_value_us, 0) if expires else b""
            self._held = b"" if held_us is None else column(held_us, NO_WATERMARK)

    def segment(self, begin: int, end: int) -> SegmentDump:
        """Return the segment of the slots from `begin` to `end`, exclusive."""
        if begin == end:
            return SegmentDump(None, 0, NEVER)
        keys, short_keys = slice(begin * 8, end * 8), slice(begin * 4, end * 4)
        first, last = self._window_ends[begin], self._window_ends[end]
        windows = slice(first * 8, last * 8)
        first_value, last_value = self._buffered_ends[begin], self._buffered_ends[end]
        values = slice(first_value * 8, last_value * 8)
        content = SegmentContent(
            key_lengths=self._lengths[short_keys],
            key_texts=self._texts[self._text_ends[begin] : self._text_ends[end]],
            base_us=self._base[keys],
            set_at_us=self._set_at[keys],
            last_value_us=self._last_value[keys],
            arrival_counts=self._arrivals[keys],
            entry_counts=self._entries[keys],
            counted_values=self._counted[keys],
            due_us=self._due[keys],
            window_counts=self._window_counts[short_keys],
            ids=self._ids[windows],
            latest_us=self._latest[windows],
            first_us=self._first[windows],
            last_us=self._last[windows],
            merged_ids=self._merged_ids[first:last],
            is_emitted=self._emitted[first:last],
            accumulators=tuple(one.encode(first, last) for one in self._accumulators),
            buffered_counts=self._buffered_counts[short_keys] if last_value > first_value else b"",
            times_us=self._times[values],
            numbers=self._numbers[values],
            values=self._values(first_value, last_value),
            named=self._named,
            kind=self._kind,
            clock_logics=self._logics[begin:end],
            held_watermark_us=self._held[keys],
        )
        due_us, held_us = self._due_us[begin:end].min(), self._held_due_us[begin:end].min()
        counts = StateCounts(last - first, last_value - first_value)
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


def _texts_of(keys: pa.Array) -> tuple[Ints, Any]:
    """Return the bounds of each key's text in bytes, and the texts."""
    _, offsets, texts = keys.buffers()
    ends = np.frombuffer(offsets, "<i8", len(keys) + 1, keys.offset * 8)
    return ends, b"" if texts is None else texts.to_pybytes()
