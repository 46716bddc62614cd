"""Calendar windows over columns, compared with the calendar instant by instant."""

from __future__ import annotations

import pickle
from typing import get_args

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flow.instants import MAX_US, MIN_US, instant_us
from flow.keyed.step import OverColumns
from flow_windowing import CalendarWindower, Count, EventClock
from flow_windowing.aggregates.folding import FoldingBuilder
from flow_windowing.columnar.windows.calendar_windows import CalendarWindows
from flow_windowing.lowering import DriverBuilder
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


def micros_of(*instants: str) -> np.ndarray:
    return np.array([instant_us(one) for one in instants], np.int64)


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


def test_days_are_23_and_25_hours_long_where_the_clocks_change() -> None:
    windows = CalendarWindows(CalendarWindower("day", "Europe/Paris"))
    times = micros_of("2024-03-31T12:00Z", "2024-10-27T12:00Z", "2024-07-01T12:00Z")
    opens, closes = windows.bounds_of(windows.ids_at(times)[0])
    assert ((closes - opens) // HOUR).tolist() == [23, 25, 24]


def test_a_day_skipped_by_its_zone_has_no_values() -> None:
    windows = CalendarWindows(CalendarWindower("day", "Pacific/Apia"))
    before, after = windows.ids_at(
        micros_of("2011-12-30T09:59:59.999999Z", "2011-12-30T10:00:00Z")
    )[0].tolist()
    assert after - before == 2


def test_quarters_before_1970_have_negative_ids() -> None:
    windows = CalendarWindows(CalendarWindower("month", "UTC", every=3))
    times = micros_of("1969-12-31T23:59Z", "1970-01-01T00:00Z", "1969-09-30T00:00Z")
    assert windows.ids_at(times)[0].tolist() == [-1, 0, -2]


def test_a_step_with_calendar_windows_runs_over_columns_and_can_be_pickled() -> None:
    config = DriverBuilder(
        EventClock("ts", "0s"),
        CalendarWindower("day", "Europe/Paris"),
        FoldingBuilder(Count(), "close"),
    )
    lowering = config.lower()
    assert isinstance(lowering, OverColumns)
    assert len(pickle.loads(pickle.dumps(lowering.shard_logic))().keys()) == 0
