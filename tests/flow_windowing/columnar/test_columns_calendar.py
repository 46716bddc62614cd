"""Calendar windows over columns, compared with the calendar instant by instant."""

from __future__ import annotations

from typing import get_args

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flow.instants import MAX_US, MIN_US, instant_us
from flow_windowing import CalendarWindower
from flow_windowing.columnar.windows.indexed_windows import CalendarWindows
from flow_windowing.windowers.calendar import CalendarUnit, Weekday

HOUR = 3_600_000_000

ZONES = [
    "UTC",
    "Europe/Paris",
    "America/New_York",
    "America/St_Johns",
    "America/Havana",
    "America/Sao_Paulo",
    "Asia/Beirut",
    "Pacific/Apia",
    "Pacific/Kwajalein",
]
CHANGES = [
    "1969-10-01T12:00Z",
    "2010-11-07T02:30Z",
    "2011-12-30T10:00Z",
    "2018-11-04T03:00Z",
    "2024-03-31T01:00Z",
    "2024-10-27T01:00Z",
    "1970-01-01T00:00Z",
]
near_changes = st.builds(
    lambda change, hours, micros: instant_us(change) + hours * HOUR + micros,
    st.sampled_from(CHANGES),
    st.integers(-60, 60),
    st.integers(-2, 2),
)
instants = st.one_of(
    near_changes,
    st.integers(MIN_US, MAX_US),
    st.integers(MIN_US, MIN_US + 50 * HOUR),
    st.integers(MAX_US - 50 * HOUR, MAX_US),
)
windowers = st.builds(
    CalendarWindower,
    st.sampled_from(get_args(CalendarUnit)),
    st.sampled_from(ZONES),
    every=st.sampled_from([1, 1, 2, 3, 10]),
    week_starts=st.sampled_from(get_args(Weekday)),
    grace=st.sampled_from([None, "36h"]),
)


@given(windowers, st.lists(instants, max_size=12))
def test_ids_and_bounds_are_those_of_the_calendar(
    windower: CalendarWindower, times: list[int]
) -> None:
    windows, calendar = CalendarWindows(windower), windower.calendar
    ids, counts = windows.ids_at(np.array(times, np.int64))
    expected = [calendar.index_at(time) for time in times]
    assert ids.tolist() == expected
    assert counts.tolist() == [1] * len(times)
    opens, closes = windows.bounds_of(ids)
    assert opens.tolist() == [calendar.start_us(one) for one in expected]
    assert closes.tolist() == [calendar.start_us(one + 1) for one in expected]
    grace_us = windower.grace_us or 0
    assert windows.closes_of(ids).tolist() == [one + grace_us for one in closes.tolist()]
