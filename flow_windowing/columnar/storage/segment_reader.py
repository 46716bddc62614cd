"""Reading shard state from segments."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np

from flow.columns.arrays import Ints, Mask
from flow.instants import NEVER
from flow.keyed.segments import WINDOWS, WholeKeys, kind_of
from flow_windowing.columnar.admission.key_clocks import KeyClocks, KeyColumns
from flow_windowing.columnar.admission.shard_clocks import LogicShardClock
from flow_windowing.columnar.aggregates.accumulator_column import AccumulatorColumn
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.state.shard_state import ShardState
from flow_windowing.columnar.state.spans import Spans, merged_ids_column
from flow_windowing.columnar.state.state_form import StateForm
from flow_windowing.columnar.storage.segments import (
    SegmentContent,
    decode_column,
    decode_or_default,
    keys_of,
)
from flow_windowing.columnar.storage.snapshots import content_of_snapshots
from flow_windowing.columnar.values.buffered_values import BufferedValues, RetainedValues
from flow_windowing.columnar.values.encoding import lazy_values
from flow_windowing.columnar.values.retained_values import restored_records
from flow_windowing.rules.tags import side_of
from flow_windowing.rules.watermark import NO_WATERMARK


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
        _buffered_of(form, parts, counts),
    )


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


def _buffered_of(form: StateForm, parts: list[SegmentContent], counts: list[int]) -> BufferedValues:
    values_of_key = [
        decode_column([part.buffered_counts], "<i4")
        if part.buffered_counts
        else np.zeros(count, np.int64)
        for part, count in zip(parts, counts, strict=True)
    ]
    times_us = decode_column([part.times_us for part in parts])
    numbers = decode_column([part.numbers for part in parts])
    return BufferedValues(
        np.repeat(np.arange(sum(counts)), np.concatenate([np.empty(0, np.int64), *values_of_key])),
        times_us,
        numbers,
        _values_of(form, parts, numbers),
        times_us,
    )


def _values_of(form: StateForm, parts: list[SegmentContent], numbers: Ints) -> RetainedValues:
    """Return buffered values; those of a join by time as records of each side if they can be."""
    contents = [part.values for part in parts]
    records = None
    if form.kind == "interval":
        records = restored_records(contents, side_of(numbers))
    return [value for one in contents for value in lazy_values(one)] if records is None else records
