"""What is remembered of keys, to segments and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from flow.columns.arrays import Ints, Mask
from flow.instants import NEVER
from flow.keyed.due import split_dues
from flow.keyed.pickles import load_pickle
from flow.keyed.shard_logic import Dumped
from flow_windowing.columnar.aggregates.aggregated import Aggregated
from flow_windowing.columnar.state.holding import Holding
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.state.spans import Spans, merged_of
from flow_windowing.columnar.state.watermarks import KeyClocks
from flow_windowing.columnar.storage import segments
from flow_windowing.columnar.storage.segments import Kept
from flow_windowing.columnar.storage.snapshots import kept_of_snapshots
from flow_windowing.columnar.values.waiting_values import WaitingValues
from flow_windowing.columnar.values.written import Written, held, in_columns, pickles
from flow_windowing.columnar.windows.plan import WindowPlan
from flow_windowing.rules.watermark import NO_WATERMARK


def segment_parts(plan: WindowPlan, content: bytes) -> Iterator[Kept]:
    """What a segment holds, also one that was written key by key, whose keys are in parts then."""
    if content[0] == segments.FORMAT:
        yield Kept.decode(content)
        return
    keys, snapshots, dues = load_pickle(memoryview(content)[1:])
    due_us = np.frombuffer(dues, "<i8").astype(np.int64)
    whole = [at for at, one in enumerate(snapshots) if one[0] != segments.FORMAT]
    yield from (Kept.decode(one) for one in snapshots if one[0] == segments.FORMAT)
    if whole:
        states = [load_pickle(snapshots[at]) for at in whole]
        yield kept_of_snapshots(plan, [keys[at] for at in whole], states, due_us[whole])


def joined_parts(plan: WindowPlan, parts: list[Kept]) -> Holding:
    """The keys in parts of segments, one after the other."""
    counts = [part.keys for part in parts]
    total = sum(counts)
    windows_of = segments.numbers_of([part.windows for part in parts], "<i4")
    window_counts = [len(part.ids) // 8 for part in parts]
    waiting_of = np.concatenate(
        [
            segments.numbers_of([part.waiting], "<i4") if part.waiting else np.zeros(n, np.int64)
            for part, n in zip(parts, counts, strict=True)
        ]
        or [np.empty(0, np.int64)]
    )
    places = np.arange(total)
    times_us = segments.numbers_of([part.times_us for part in parts])
    figures = [
        Aggregated.unpacked(aggregator, [part.figures[at] for part in parts if part.ids])
        for at, aggregator in enumerate(plan.aggregators)
    ]
    return Holding(
        segments.joined_keys(parts),
        KeyClocks(
            segments.filled([part.base_us for part in parts], counts, NO_WATERMARK),
            segments.filled([part.set_at_us for part in parts], counts, 0),
            # It is kept only where keys are forgotten, which they may not have been until now.
            segments.filled([part.heard_us or part.set_at_us for part in parts], counts, 0),
            _taken_of(parts, counts),
        ),
        segments.filled([part.arrived for part in parts], counts, 0),
        segments.filled([part.entered for part in parts], counts, 0),
        segments.filled([part.seen for part in parts], counts, 0),
        OpenWindows(
            np.repeat(places, windows_of),
            segments.numbers_of([part.ids for part in parts]),
            segments.filled([part.latest_us for part in parts], window_counts, -NEVER),
            figures,
            None if plan.windowing.kind == "index" else _spans_of(parts, window_counts),
            shown=_shown_of(parts, window_counts),
        ),
        WaitingValues(
            np.repeat(places, waiting_of),
            times_us,
            segments.numbers_of([part.numbers for part in parts]),
            [value for part in parts for value in held(part.values)],
            times_us,
        ),
    )


def _spans_of(parts: list[Kept], counts: list[int]) -> Spans:
    """The bounds of windows in parts of segments."""
    merged: list[tuple[int, ...]] = []
    for part, count in zip(parts, counts, strict=True):
        merged += part.merged or [()] * count
    return Spans(
        segments.numbers_of([part.first_us for part in parts]),
        segments.numbers_of([part.last_us for part in parts]),
        merged_of(merged),
    )


def _taken_of(parts: list[Kept], counts: list[int]) -> Ints | None:
    """What the watermarks of keys in parts of segments were taken for, where any was held."""
    if not any(part.taken_us for part in parts):
        return None
    return segments.filled([part.taken_us for part in parts], counts, NO_WATERMARK)


def _shown_of(parts: list[Kept], counts: list[int]) -> Mask | None:
    """Which windows in parts of segments have emitted what they have come to."""
    if not any(part.shown for part in parts):
        return None
    shown = (part.shown or bytes(count) for part, count in zip(parts, counts, strict=True))
    return np.frombuffer(b"".join(shown), np.bool_).copy()


def write_segments(
    plan: WindowPlan, held: Holding, due_us: Ints, numbers: Ints, wanted: list[int]
) -> list[Dumped]:
    """Keys as segments; `numbers` says, by place, in which each belongs."""
    slot = np.full(max(int(numbers.max(initial=0)), max(wanted, default=0)) + 1, -1)
    slot[wanted] = np.arange(len(wanted))
    slots = np.where(held.remembered(), slot[numbers], -1)
    chosen = np.flatnonzero(slots >= 0)
    chosen = chosen[np.argsort(slots[chosen], kind="stable")]
    key_ends = np.searchsorted(slots[chosen], np.arange(len(wanted)), "right").tolist()
    writer = _Writer(plan, held.take(chosen), due_us[chosen])
    begin, dumped = 0, []
    for end in key_ends:
        dumped.append(writer.segment(begin, end))
        begin = end
    return dumped


class _Writer:
    """Writes runs of keys as segments; they lie in order of segment.

    Columns become bytes once for all segments, which are cut from them.
    """

    def __init__(self, plan: WindowPlan, held: Holding, due_us: Ints) -> None:
        column, counts = segments.column, plan.counts_arrivals
        windows, waiting, clocks = held.windows, held.waiting, held.clocks
        self._named, self._kind = plan.named, plan.windowing.kind
        self._text_ends, self._texts = _texts_of(held.keys)
        self._lengths = np.diff(self._text_ends).astype("<i4").tobytes()
        self._base = column(clocks.base_us, NO_WATERMARK)
        self._set_at = column(clocks.set_at_us, 0)
        self._heard = b"" if plan.rule.forget_after_us >= NEVER else column(clocks.heard_us, 0)
        taken_us = clocks.taken_us
        self._taken = b"" if taken_us is None else column(taken_us, NO_WATERMARK)
        self._arrived = column(held.arrived, 0) if counts else b""
        self._entered = column(held.entered, 0) if counts else b""
        self._seen = column(held.seen, 0)
        self._due_us, self._held_us = split_dues(due_us)
        self._due = due_us.astype("<i8").tobytes()
        self._windows_of, self._window_ends = _counted(windows.places, held.count)
        self._ids = windows.ids.astype("<i8").tobytes()
        self._latest = column(windows.latest_us, -NEVER)
        self._first, self._last, self._merged = _columns_of(windows.spans)
        shown = windows.shown
        self._shown = b"" if shown is None or not shown.any() else shown.tobytes()
        self._figures = windows.figures
        self._waiting_of, self._waiting_ends = _counted(waiting.places, held.count)
        self._times = waiting.times_us.astype("<i8").tobytes()
        self._numbers = waiting.numbers.astype("<i8").tobytes()
        self._values = waiting.values
        self._columns = in_columns(waiting.values)

    def segment(self, begin: int, end: int) -> Dumped:
        """The keys from `begin` to `end`."""
        if begin == end:
            return Dumped(None, 0, NEVER)
        keys, shorts = slice(begin * 8, end * 8), slice(begin * 4, end * 4)
        first, last = self._window_ends[begin], self._window_ends[end]
        windows = slice(first * 8, last * 8)
        wait, waited = self._waiting_ends[begin], self._waiting_ends[end]
        kept = Kept(
            lengths=self._lengths[shorts],
            texts=self._texts[self._text_ends[begin] : self._text_ends[end]],
            base_us=self._base[keys],
            set_at_us=self._set_at[keys],
            heard_us=self._heard[keys],
            arrived=self._arrived[keys],
            entered=self._entered[keys],
            seen=self._seen[keys],
            due_us=self._due[keys],
            windows=self._windows_of[shorts],
            ids=self._ids[windows],
            latest_us=self._latest[windows],
            first_us=self._first[windows],
            last_us=self._last[windows],
            merged=self._merged[first:last],
            shown=self._shown[first:last],
            figures=tuple(one.packed(first, last) for one in self._figures),
            waiting=self._waiting_of[shorts] if waited > wait else b"",
            times_us=self._times[wait * 8 : waited * 8],
            numbers=self._numbers[wait * 8 : waited * 8],
            values=self._written(wait, waited),
            named=self._named,
            kind=self._kind,
            taken_us=self._taken[keys],
        )
        due_us, held_us = self._due_us[begin:end].min(), self._held_us[begin:end].min()
        return Dumped(kept.encode(), end - begin, int(due_us), int(held_us))

    def _written(self, begin: int, end: int) -> Written:
        """The waiting values from `begin` to `end`."""
        if begin == end:
            return []
        if self._columns is None:
            return pickles(self._values[begin:end])
        return self._columns.take(slice(begin, end)).encoded()


def _columns_of(spans: Spans | None) -> tuple[bytes, bytes, list[tuple[int, ...]]]:
    """Bounds as bytes, and the ids that have become part of windows."""
    if spans is None:
        return b"", b"", []
    first, last = (one.astype("<i8").tobytes() for one in (spans.first_us, spans.last_us))
    merged = spans.merged.tolist()
    return first, last, merged if any(merged) else []


def _counted(places: Ints, count: int) -> tuple[bytes, list[int]]:
    """How many rows each of so many places has, as bytes, and where the rows of each begin."""
    counts = np.bincount(places, minlength=count)
    ends: list[int] = np.concatenate([[0], np.cumsum(counts)]).tolist()
    return counts.astype("<i4").tobytes(), ends


def _texts_of(keys: pa.Array) -> tuple[Ints, Any]:
    """Where each key's text ends, the first one's start before them, and all texts."""
    _, offsets, texts = keys.buffers()
    ends = np.frombuffer(offsets, "<i8", len(keys) + 1, keys.offset * 8)
    return ends, b"" if texts is None else texts.to_pybytes()
