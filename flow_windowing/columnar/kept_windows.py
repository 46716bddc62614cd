"""What is remembered of keys, to segments and back."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from flow.instants import NEVER
from flow.operators.shards import Dumped
from flow_windowing.clocks import NO_WATERMARK
from flow_windowing.columnar import segments
from flow_windowing.columnar.aggregated import Aggregated
from flow_windowing.columnar.holding import Holding
from flow_windowing.columnar.open_windows import OpenWindows
from flow_windowing.columnar.segmented import Ints
from flow_windowing.columnar.segments import Kept
from flow_windowing.columnar.snapshots import kept_of_snapshots
from flow_windowing.columnar.waiting_values import Pickled, WaitingValues, pickled
from flow_windowing.columnar.watermarks import KeyClocks

if TYPE_CHECKING:
    from flow_windowing.columnar.planning import WindowPlan


def segment_parts(plan: WindowPlan, content: bytes) -> Iterator[Kept]:
    """What a segment holds, also one that was written key by key, whose keys are in parts then."""
    if content[0] == segments.FORMAT:
        yield Kept.decode(content)
        return
    keys, snapshots, dues = pickle.loads(memoryview(content)[1:])
    due_us = np.frombuffer(dues, "<i8").astype(np.int64)
    whole = [at for at, one in enumerate(snapshots) if one[0] != segments.FORMAT]
    yield from (Kept.decode(one) for one in snapshots if one[0] == segments.FORMAT)
    if whole:
        states = [pickle.loads(snapshots[at]) for at in whole]
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
    figures = [
        Aggregated.unpacked(aggregator, [part.figures[at] for part in parts if part.ids])
        for at, aggregator in enumerate(plan.aggregators)
    ]
    return Holding(
        segments.joined_keys(parts),
        KeyClocks(
            segments.filled([part.base_us for part in parts], counts, NO_WATERMARK),
            segments.filled([part.set_at_us for part in parts], counts, 0),
            segments.filled([part.heard_us for part in parts], counts, 0),
        ),
        segments.filled([part.arrived for part in parts], counts, 0),
        segments.filled([part.entered for part in parts], counts, 0),
        OpenWindows(
            np.repeat(places, windows_of),
            segments.numbers_of([part.ids for part in parts]),
            segments.filled([part.latest_us for part in parts], window_counts, -NEVER),
            figures,
        ),
        WaitingValues(
            np.repeat(places, waiting_of),
            segments.numbers_of([part.times_us for part in parts]),
            segments.numbers_of([part.numbers for part in parts]),
            [Pickled(one) for part in parts for one in part.values],
        ),
    )


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
    """Writes runs of keys as segments; they lie in order of segment."""

    def __init__(self, plan: WindowPlan, held: Holding, due_us: Ints) -> None:
        self._plan = plan
        self._held = held
        self._due_us = due_us
        self._text_ends, self._texts = _texts_of(held.keys)
        self._windows_of = np.bincount(held.windows.places, minlength=held.count)
        self._window_ends = np.concatenate([[0], np.cumsum(self._windows_of)])
        self._waiting_of = np.bincount(held.waiting.places, minlength=held.count)
        self._waiting_ends = np.concatenate([[0], np.cumsum(self._waiting_of)])

    def segment(self, begin: int, end: int) -> Dumped:
        """The keys from `begin` to `end`."""
        if begin == end:
            return Dumped(None, 0, NEVER)
        held, keys = self._held, slice(begin, end)
        windows = slice(int(self._window_ends[begin]), int(self._window_ends[end]))
        waiting = slice(int(self._waiting_ends[begin]), int(self._waiting_ends[end]))
        ends = self._text_ends[begin : end + 1]
        clocks, column = held.clocks, segments.column
        kept = Kept(
            np.diff(ends).astype("<i4").tobytes(),
            self._texts[int(ends[0]) : int(ends[-1])],
            column(clocks.base_us[keys], NO_WATERMARK),
            column(clocks.set_at_us[keys], 0),
            b"" if self._plan.rule.forget_after_us >= NEVER else column(clocks.heard_us[keys], 0),
            column(held.arrived[keys], 0) if self._plan.counts_arrivals else b"",
            column(held.entered[keys], 0) if self._plan.counts_arrivals else b"",
            self._due_us[keys].astype("<i8").tobytes(),
            self._windows_of[keys].astype("<i4").tobytes(),
            held.windows.ids[windows].astype("<i8").tobytes(),
            column(held.windows.latest_us[windows], -NEVER),
            tuple(one.packed(windows.start, windows.stop) for one in held.windows.figures),
            self._waiting_of[keys].astype("<i4").tobytes() if waiting.stop > waiting.start else b"",
            held.waiting.times_us[waiting].astype("<i8").tobytes(),
            held.waiting.numbers[waiting].astype("<i8").tobytes(),
            [pickled(value) for value in held.waiting.values[waiting]],
            self._plan.named,
        )
        return Dumped(kept.encode(), end - begin, int(self._due_us[keys].min()))


def _texts_of(keys: pa.Array) -> tuple[Ints, Any]:
    """Where each key's text ends, the first one's start before them, and all texts."""
    _, offsets, texts = keys.buffers()
    ends = np.frombuffer(offsets, "<i8", len(keys) + 1, keys.offset * 8)
    return ends, b"" if texts is None else texts.to_pybytes()
