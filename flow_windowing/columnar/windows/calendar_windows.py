"""Calendar windows of many keys at once."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from flow.columns.arrays import Ints, distinct
from flow_windowing.columnar.windows.indexed_windows import IndexedWindows
from flow_windowing.windowers.calendar import Calendar, CalendarWindower

_DAY_US = 86_400_000_000


class CalendarWindows(IndexedWindows):
    """Windows of a local calendar; window i lasts from the start of unit i to the next start.

    The calendar computes the starts of windows once for each UTC day with a value and once for each
    window, independent of the number of values and keys. A binary search among the starts finds the
    window of each timestamp.
    """

    has_gaps = False

    def __init__(self, windower: CalendarWindower) -> None:
        # The attribute is the windower, because its calendar has a cache that cannot be pickled.
        self._windower = windower
        self._grace_us = windower.grace_us or 0
        self.is_late_at_once = windower.grace_us is None

    @override
    def ids_at(self, times_us: Ints) -> tuple[Ints, Ints]:
        ids = self._ids_near(times_us)
        # Of windows with equal starts all but the last are empty, and the search finds the last.
        index = np.searchsorted(self._starts_us(ids), times_us, "right") - 1
        return ids[index], np.ones(len(times_us), np.int64)

    @override
    def bounds_of(self, window_ids: Ints) -> tuple[Ints, Ints]:
        return self._starts_us(window_ids), self._starts_us(window_ids + 1)

    @override
    def closes_of(self, window_ids: Ints) -> Ints:
        return self._starts_us(window_ids + 1) + self._grace_us

    @property
    def _calendar(self) -> Calendar:
        return self._windower.calendar

    def _ids_near(self, times_us: Ints) -> Ints:
        """Return the ids of the windows that overlap a UTC day with a timestamp, ascending."""
        index_at = self._calendar.index_at
        near: set[int] = set()
        for day in distinct(times_us // _DAY_US).tolist():
            first, last = index_at(day * _DAY_US), index_at((day + 1) * _DAY_US - 1)
            near.update(range(first, last + 1))
        return np.array(sorted(near), np.int64)

    def _starts_us(self, window_ids: Ints) -> Ints:
        """Return the open times of windows; each distinct window is looked up once."""
        ids = distinct(window_ids)
        starts_us = np.array([self._calendar.start_us(one) for one in ids.tolist()], np.int64)
        return starts_us[np.searchsorted(ids, window_ids)] if len(ids) else ids
