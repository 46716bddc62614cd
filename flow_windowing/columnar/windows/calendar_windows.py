"""Calendar windows of many keys at once: the bounds at hand are looked up, each once."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints, distinct
from flow_windowing.columnar.windows.windows import WindowIndex
from flow_windowing.windowers.calendar import Calendar, CalendarWindower

_DAY_US = 86_400_000_000


class CalendarWindows(WindowIndex):
    """Window i lasts from the start of unit i of a local calendar to that of the next.

    The calendar is asked once for each UTC day that has a value, and once for each window, however
    many values and keys there are; timestamps are then searched for among the starts.
    """

    has_gaps = False

    def __init__(self, windower: CalendarWindower) -> None:
        # Not its calendar, whose cache cannot be pickled.
        self._windower = windower
        self._grace_us = windower.grace_us or 0
        self.late_at_once = windower.grace_us is None

    @override
    def ids_at(self, time_us: Ints) -> tuple[Ints, Ints]:
        ids = self._indices_near(time_us)
        # Of windows that start together all but the last are empty: it is the one that is found.
        at = np.searchsorted(self._starts_us(ids), time_us, "right") - 1
        return ids[at], np.ones(len(time_us), np.int64)

    @override
    def bounds_of(self, window_ids: Ints) -> tuple[Ints, Ints]:
        return self._starts_us(window_ids), self._starts_us(window_ids + 1)

    @override
    def closes_of(self, window_ids: Ints) -> Ints:
        return self._starts_us(window_ids + 1) + self._grace_us

    @property
    def _calendar(self) -> Calendar:
        return self._windower.calendar

    def _indices_near(self, time_us: Ints) -> Ints:
        """In order, all windows that begin or go on in a UTC day that has a timestamp."""
        index_at = self._calendar.index_at
        near: set[int] = set()
        for day in distinct(time_us // _DAY_US).tolist():
            first, last = index_at(day * _DAY_US), index_at((day + 1) * _DAY_US - 1)
            near.update(range(first, last + 1))
        return np.array(sorted(near), np.int64)

    def _starts_us(self, window_ids: Ints) -> Ints:
        """When windows open, each of them looked up once."""
        known = distinct(window_ids)
        starts_us = np.array([self._calendar.start_us(one) for one in known.tolist()], np.int64)
        return starts_us[np.searchsorted(known, window_ids)] if len(known) else known
