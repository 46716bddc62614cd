"""Windows of a number of values, of many keys at once."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints, Mask, ranges, run_starts
from flow.instants import NEVER
from flow_windowing.columnar.state.holding import Holding
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.windows.entering import Gathered, Missing, Newcomers
from flow_windowing.columnar.windows.spreading import Spread, gathered_lots
from flow_windowing.columnar.windows.updates import greatest_so_far
from flow_windowing.columnar.windows.windows import Windowing
from flow_windowing.windowers.counts import CountWindower


class CountWindows(Windowing):
    """Window i holds the values of a key from number i * step on, so many of them.

    A full window closes at once. As windows fill up in the order of their ids, an epoch's values
    may all enter before those close that have become full.
    """

    kind = "counts"
    late_at_once = False
    closes_by_time = False
    in_turn = True

    def __init__(self, windower: CountWindower) -> None:
        self._count = windower.count
        self._step = windower.step_count
        self._unfilled_us = NEVER if windower.partial else NEVER + 1
        self.has_gaps = self._step > self._count

    @override
    def missed_by(self, time_us: Ints) -> tuple[Ints, Ints]:
        nothing = np.zeros(len(time_us), np.int64)
        return nothing, nothing

    @override
    def missed_bounds_us(self, window_ids: Ints) -> tuple[Ints, Ints]:
        return window_ids, window_ids

    @override
    def bounds_us(self, windows: OpenWindows, rows: Ints) -> tuple[Ints, Ints]:
        spans = windows.known_spans()
        return spans.first_us[rows], spans.last_us[rows]

    @override
    def closed_at_us(self, held: Holding) -> Ints:
        return np.where(self._full(held), -NEVER, self._unfilled_us)

    @override
    def enter(self, held: Holding, newcomers: Newcomers) -> Missing:
        places = newcomers.entering.places
        lowest = self._lowest(held)[places]
        numbers = self._numbers(held, places)
        first = np.maximum((numbers - self._count) // self._step + 1, lowest)
        count = np.maximum(numbers // self._step + 1 - first, 0)
        held.windows.known_spans()
        for gathered in gathered_lots(held, newcomers.entering, Spread.of(first, count)):
            self.let_in(held, newcomers, gathered)
            _widen(held.windows, newcomers, gathered)
        return Missing.none()._replace(fallen=np.flatnonzero(count == 0))

    @override
    def bounds_with_each(
        self, windows: OpenWindows, rows: Ints, newcomers: Newcomers, gathered: Gathered
    ) -> tuple[Ints, Ints]:
        spans, times_us = windows.known_spans(), newcomers.entering.times_us[gathered.at]
        least_us = -greatest_so_far(-spans.first_us[rows], -times_us, gathered.counts)
        return least_us, greatest_so_far(spans.last_us[rows], times_us, gathered.counts)

    @override
    def seen_after(self, held: Holding, closing: Ints) -> Ints:
        """None of the windows that close unfilled opens again: counting goes on at the next."""
        seen = held.seen.copy()
        unfilled = closing[~self._full(held)[closing]]
        next_number = (held.windows.ids[unfilled] + 1) * self._step
        np.maximum.at(seen, held.windows.places[unfilled], next_number)
        return seen

    def _full(self, held: Holding) -> Mask:
        windows = held.windows
        full: Mask = held.seen[windows.places] - windows.ids * self._step >= self._count
        return full

    def _lowest(self, held: Holding) -> Ints:
        """The first window of each key that is open or may open: those before it have closed."""
        next_to_open: Ints = -(-held.seen // self._step)
        lowest = np.full(held.count, NEVER, np.int64)
        np.minimum.at(lowest, held.windows.places, held.windows.ids)
        return np.where(lowest < NEVER, lowest, next_to_open)

    def _numbers(self, held: Holding, places: Ints) -> Ints:
        """The number of each value among those of its key, which are counted with it."""
        begins = run_starts(places)
        counts = np.diff(begins, append=len(places))
        numbers: Ints = held.seen[places] + ranges(np.zeros(len(counts), np.int64), counts)
        held.seen[places[begins]] += counts
        return numbers


def _widen(windows: OpenWindows, newcomers: Newcomers, gathered: Gathered) -> None:
    """Let the bounds of windows take in the values that have entered."""
    if len(gathered.at):
        times_us, starts = newcomers.entering.times_us[gathered.at], gathered.starts
        least_us = np.minimum.reduceat(times_us, starts)
        greatest_us = np.maximum.reduceat(times_us, starts)
        rows = windows.rows_of(gathered.windows)
        windows.known_spans().widen(rows, least_us, greatest_us)
