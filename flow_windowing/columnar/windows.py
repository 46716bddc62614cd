"""Windows of many keys at once, for windowers whose windows have an index."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from typing_extensions import override

from flow_windowing.aligned import SlidingWindower, TumblingWindower
from flow_windowing.columnar.segmented import Ints


class WindowIndex(ABC):
    """Windows with bounds that follow from their index, closing in order of it.

    Attributes:
        late_at_once: whether a value behind the watermark is late, whatever its window.
        has_gaps: whether a timestamp may be in no window.
    """

    late_at_once: bool
    has_gaps: bool

    @abstractmethod
    def ids_at(self, time_us: Ints) -> tuple[Ints, Ints]:
        """The first window of each timestamp, and in how many from there on it is."""

    @abstractmethod
    def bounds_us(self, window_ids: Ints) -> tuple[Ints, Ints]:
        """When windows open and close."""

    @abstractmethod
    def closed_at_us(self, window_ids: Ints) -> Ints:
        """The watermark at which each window closes, grace included."""


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
    def bounds_us(self, window_ids: Ints) -> tuple[Ints, Ints]:
        open_us = self._align_us + window_ids * self._offset_us
        return open_us, open_us + self._length_us

    @override
    def closed_at_us(self, window_ids: Ints) -> Ints:
        return self._closing_us + window_ids * self._offset_us
