"""Windows of many keys at once: what every way of cutting values into windows has to say there."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints
from flow_windowing.columnar.state.holding import Holding
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.state.spans import Merged
from flow_windowing.columnar.storage.segments import WindowerKind
from flow_windowing.columnar.windows.entering import Gathered, Missing, Newcomers
from flow_windowing.columnar.windows.panes import let_in_by_pane
from flow_windowing.columnar.windows.spreading import Spread, gathered_lots
from flow_windowing.columnar.windows.updates import Update, greatest_so_far
from flow_windowing.windowers.aligned import SlidingWindower, TumblingWindower


class Windowing(ABC):
    """A windower over many keys.

    Attributes:
        kind: what its windows are, in a segment.
        late_at_once: whether a value behind the watermark is late, whatever its window.
        closes_by_time: whether the watermark closes windows; without it no value is late.
        has_gaps: whether a value may be in no window.
        in_turn: whether windows depend on the order in which values enter.
        may_merge: whether two windows may become one.
    """

    kind: WindowerKind
    late_at_once: bool
    closes_by_time: bool = True
    has_gaps: bool = False
    in_turn: bool = False
    may_merge: bool = False

    @abstractmethod
    def missed_by(self, time_us: Ints) -> tuple[Ints, Ints]:
        """The first window that each late timestamp misses, and how many from there on."""

    @abstractmethod
    def missed_bounds_us(self, window_ids: Ints) -> tuple[Ints, Ints]:
        """When windows that were missed open and close."""

    @abstractmethod
    def bounds_us(self, windows: OpenWindows, rows: Ints) -> tuple[Ints, Ints]:
        """When some of the open windows open and close."""

    @abstractmethod
    def closed_at_us(self, held: Holding) -> Ints:
        """The watermark at which each open window closes, grace included.

        It is never less in a later window of the same key.
        """

    @abstractmethod
    def enter(self, held: Holding, newcomers: Newcomers) -> Missing:
        """Let values into the windows that are open when they come; says which do not enter.

        Raises:
            FailedRow: when a user's function raised.
        """

    @abstractmethod
    def bounds_with_each(
        self, windows: OpenWindows, rows: Ints, newcomers: Newcomers, gathered: Gathered
    ) -> tuple[Ints, Ints]:
        """When the window of each value opens and closes, with the value and those before it.

        Args:
            windows: the windows, as they are before these values.
            rows: the rows of those that get values.
            newcomers: the values.
            gathered: the values by window.
        """

    def merged_with_each(self, windows: OpenWindows, rows: Ints, counts: Ints) -> Merged | None:  # noqa: ARG002
        """What has become part of the window of each value; ``None`` where windows do not merge."""
        return None

    def let_in(self, held: Holding, newcomers: Newcomers, gathered: Gathered) -> None:
        """Let values into windows, which are opened if need be.

        Raises:
            FailedRow: when a user's function raised.
        """
        if not len(gathered.at):
            return
        held.windows, rows = held.windows.opened(gathered.windows)
        windows, groups = held.windows, newcomers.groups(gathered.at, gathered.starts)
        if newcomers.emit != "update":
            for figure in windows.figures:
                figure.add(rows, groups)
        else:
            figures = [figure.add_each(rows, groups) for figure in windows.figures]
            counts, times_us = gathered.counts, newcomers.entering.times_us[gathered.at]
            update = Update(
                gathered.at,
                np.repeat(gathered.windows.places, counts),
                np.repeat(gathered.windows.ids, counts),
                self.bounds_with_each(windows, rows, newcomers, gathered),
                greatest_so_far(windows.latest_us[rows], times_us, counts),
                figures,
                self.merged_with_each(windows, rows, counts),
            )
            newcomers.updates.append(update.in_turn())
        newcomers.note(windows, rows, gathered)

    def seen_after(self, held: Holding, closing: Ints) -> Ints:  # noqa: ARG002
        """How many values of each key count as seen once some of the open windows close."""
        return held.seen


class WindowIndex(Windowing):
    """Windows with bounds that follow from their index, closing in order of it."""

    kind = "index"

    @abstractmethod
    def ids_at(self, time_us: Ints) -> tuple[Ints, Ints]:
        """The first window of each timestamp, and in how many from there on it is."""

    @abstractmethod
    def bounds_of(self, window_ids: Ints) -> tuple[Ints, Ints]:
        """When windows open and close."""

    @abstractmethod
    def closes_of(self, window_ids: Ints) -> Ints:
        """The watermark at which each window closes, grace included."""

    def closed_of(self, first: Ints, counts: Ints, watermark_us: Ints) -> Ints:  # noqa: ARG002
        """How many windows, of each run of so many, a watermark has closed; here of one each."""
        return (self.closes_of(first) <= watermark_us).astype(np.int64)

    @override
    def missed_by(self, time_us: Ints) -> tuple[Ints, Ints]:
        return self.ids_at(time_us)

    @override
    def missed_bounds_us(self, window_ids: Ints) -> tuple[Ints, Ints]:
        return self.bounds_of(window_ids)

    @override
    def bounds_us(self, windows: OpenWindows, rows: Ints) -> tuple[Ints, Ints]:
        return self.bounds_of(windows.ids[rows])

    @override
    def closed_at_us(self, held: Holding) -> Ints:
        return self.closes_of(held.windows.ids)

    @override
    def enter(self, held: Holding, newcomers: Newcomers) -> Missing:
        entering, missing = newcomers.entering, Missing.none()
        first, counts = self.ids_at(entering.times_us)
        if self.has_gaps:
            missing = missing._replace(fallen=np.flatnonzero(counts == 0))
        if not self.late_at_once:
            closed = self.closed_of(first, counts, entering.watermark_us)
            late = np.flatnonzero(closed)
            missing = missing._replace(late=late, ids=first[late], counts=closed[late])
            first, counts = first + closed, counts - closed
        spread = Spread.of(first, counts)
        if newcomers.emit != "update":
            spread = let_in_by_pane(held, newcomers, spread, missing.late)
        for gathered in gathered_lots(held, entering, spread):
            self.let_in(held, newcomers, gathered)
        return missing

    @override
    def bounds_with_each(
        self, windows: OpenWindows, rows: Ints, newcomers: Newcomers, gathered: Gathered
    ) -> tuple[Ints, Ints]:
        return self.bounds_of(np.repeat(gathered.windows.ids, gathered.counts))


class AlignedWindows(WindowIndex):
    """Window i holds what is from align + i * offset on, for so long."""

    def __init__(self, windower: TumblingWindower | SlidingWindower) -> None:
        self._length_us = windower.length_us
        self._offset_us = self._length_us
        if isinstance(windower, SlidingWindower):
            self._offset_us = windower.offset_us
        self._align_us = windower.align_us
        self._shift_us = 1 if windower.closed == "right" else 0
        self._closing_us = self._align_us + self._length_us + self._shift_us
        self._closing_us += windower.grace_us or 0
        self.late_at_once = windower.grace_us is None
        self.has_gaps = self._offset_us > self._length_us

    @override
    def ids_at(self, time_us: Ints) -> tuple[Ints, Ints]:
        since = time_us - (self._shift_us + self._align_us)
        last = since // self._offset_us
        if self._length_us == self._offset_us:
            return last, np.ones(len(last), np.int64)
        first = (since - self._length_us) // self._offset_us + 1
        return first, last - first + 1

    @override
    def bounds_of(self, window_ids: Ints) -> tuple[Ints, Ints]:
        open_us = self._align_us + window_ids * self._offset_us
        return open_us, open_us + self._length_us

    @override
    def closes_of(self, window_ids: Ints) -> Ints:
        return self._closing_us + window_ids * self._offset_us

    @override
    def closed_of(self, first: Ints, counts: Ints, watermark_us: Ints) -> Ints:
        if self._length_us == self._offset_us:
            return super().closed_of(first, counts, watermark_us)
        open_from = (watermark_us - self._closing_us) // self._offset_us + 1
        closed: Ints = np.clip(open_from - first, 0, counts)
        return closed
