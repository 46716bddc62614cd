"""Calendar windows: local days, weeks, months and years in a time zone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta, tzinfo
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from typing_extensions import override

from flow.checks import check_choice, check_whole
from flow.durations import Duration
from flow.errors import FlowBuildError, FlowTypeError, first_line, shorten
from flow.instants import MAX_US, MIN_US, from_us, zone_named
from flow_windowing.windowers.windower import GraceWindower, IndexedLogic, WindowerLogic

CalendarUnit: TypeAlias = Literal["day", "week", "month", "year"]
"""The unit of a calendar window."""
Weekday: TypeAlias = Literal[
    "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"
]
"""The day on which a week starts."""

_WEEKDAYS = get_args(Weekday)
_MICRO = timedelta(microseconds=1)
_DAY_US = 86_400_000_000
# tzinfo.fromutc() raises near the ends of datetime: within an offset of them, which is less than a
# day, or within two days if it adds the standard offset and daylight saving separately.
_FIRST_US = MIN_US + 2 * _DAY_US
_LAST_US = MAX_US - 2 * _DAY_US
_LAST_SHIFT_US = 2_145_916_800_000_000
"""The end of the years whose offsets from UTC are compared, 2038."""
_PERIODS = 400
"""The number of periods whose lengths are compared; the calendar repeats after 400 years."""
# The cache holds eleven years of days, enough for most backlogs, in less than two megabytes.
_CACHE_SIZE = 4096


@dataclass(frozen=True)
class CalendarWindower(GraceWindower[list[int]]):
    """Consecutive local days, weeks, months or years in a time zone.

    A window's id is the number of units since the unit that holds 1970-01-01 of the local calendar,
    floor-divided by `every`; it is negative before that unit. So a day's id is its number of days
    since 1970-01-01, and with unit month and ``every=3`` an id is a quarter, 0 for the first of
    1970.

    A window opens at the first instant at which local clocks show midnight of its first day, or
    later, and closes when the next window opens. So, when the clocks change:

    - A day may be 23 or 25 hours long, or have another length.
    - If the clocks skip midnight, the day opens at the instant of the change; if midnight occurs
      twice, at the first.
    - If the clocks go back over midnight, the new day stays open: the repeated end of the old day
      belongs to the new day.
    - A day that a zone leaves out (2011-12-30 in Pacific/Apia) is a window that holds no instant.

    The rules of the zone are in the machine's time zone data; without such data, in the package
    ``tzdata``. An update that changes a rule moves the bounds of open windows.

    Args:
        unit: ``"day"``, ``"week"``, ``"month"`` or ``"year"``.
        tz: the name of an IANA time zone, or a `tzinfo` such as a `zoneinfo.ZoneInfo` or a
            `pendulum` time zone. A windower with a name and one with the equal `tzinfo` differ.
        every: the number of units in each window; 3 months are quarters.
        week_starts: the first day of a week, in lower case; only used with ``"week"``.
        grace: the time past its close for which a window stays open for values behind the
            watermark; by default a value behind the watermark is late, whatever its window.

    Raises:
        FlowBuildError, FlowTypeError, DurationError: when an argument is invalid.

    >>> from datetime import date
    >>> number = (date(2024, 10, 27) - date(1970, 1, 1)).days
    >>> day = CalendarWindower("day", tz="Europe/Paris").build(None).metadata(number)
    >>> str(day.open_time), str(day.close_time - day.open_time)
    ('2024-10-26 22:00:00+00:00', '1 day, 1:00:00')
    """

    follows_time_alone = True

    unit: CalendarUnit
    tz: str | tzinfo
    every: int = 1
    week_starts: Weekday = "monday"
    grace: Duration | None = None

    def __post_init__(self) -> None:
        check_choice("CalendarWindower: unit", self.unit, get_args(CalendarUnit))
        check_choice("CalendarWindower: week_starts", self.week_starts, _WEEKDAYS)
        check_whole("CalendarWindower: every", self.every, 1)
        _ = self.grace_us, self.calendar

    @cached_property
    def calendar(self) -> Calendar:
        """The calendar that determines the bounds of windows."""
        return Calendar(_counting(self.unit, self.week_starts), _zone(self.tz), self.every)

    @cached_property
    @override
    def lengths_us(self) -> tuple[int, int]:
        counting, every = _counting(self.unit, self.week_starts), self.every
        starts = [counting.first_day(index * every) for index in range(_PERIODS)]
        days = [after - before for before, after in pairwise(starts)]
        shift_us = _greatest_shift_us(_zone(self.tz))
        return min(days) * _DAY_US - shift_us, max(days) * _DAY_US + shift_us

    @override
    def build(self, state: list[int] | None) -> WindowerLogic[list[int]]:
        return CalendarLogic(self.calendar, self.grace_us, state)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the calendar, as its cache cannot be pickled."""
        return {name: value for name, value in vars(self).items() if name != "calendar"}


class CalendarLogic(IndexedLogic):
    """The calendar windows of one key.

    The bounds of the last window are cached, as consecutive values are mostly in the same window.
    """

    __slots__ = ("_calendar", "_close_us", "_grace_us", "_ids", "_open_us")

    def __init__(self, calendar: Calendar, grace_us: int | None, state: list[int] | None) -> None:
        self._calendar = calendar
        self._grace_us = grace_us or 0
        self._ids: tuple[int, ...] = ()
        self._open_us = self._close_us = 0
        super().__init__(state)

    @override
    def ids_at(self, timestamp_us: int) -> Sequence[int]:
        if not self._open_us <= timestamp_us < self._close_us:
            window_id = self._calendar.index_at(timestamp_us)
            self._ids = (window_id,)
            self._open_us, self._close_us = self.bounds_us(window_id)
        return self._ids

    @override
    def bounds_us(self, window_id: int) -> tuple[int, int]:
        return self._calendar.start_us(window_id), self._calendar.start_us(window_id + 1)

    @override
    def closed_at_us(self, window_id: int) -> int:
        return self._calendar.start_us(window_id + 1) + self._grace_us


class Calendar:
    """Periods of `every` units of a local calendar, by index, and the instants at which they start.

    Starts never decrease with the index. For instants outside the years 1 to 9999, the offset from
    UTC is the nearest offset within these years.

    Args:
        counting: the unit.
        zone: the time zone. Only conversions from UTC to local time are used, as not every tzinfo
            converts local time to UTC where the clocks change.
        every: the number of units in a period.

    Attributes:
        start_us: returns the start of a period, in microseconds since the Unix epoch.
    """

    __slots__ = ("_counting", "_every", "_least_index", "_zone", "start_us")

    def __init__(self, counting: Counting, zone: tzinfo, every: int) -> None:
        self._counting = counting
        self._zone = zone
        self._every = every
        # The logics of all keys that one windower builds share this cache.
        self.start_us: Callable[[int], int] = lru_cache(_CACHE_SIZE)(self._find_start_us)
        self._least_index = lru_cache(_CACHE_SIZE)(self._find_least_index)

    def index_at(self, timestamp_us: int) -> int:
        """Return the last index that starts at or before an instant."""
        # The local time is looked up once a day, as the lookup costs far more than the rest.
        index = self._least_index(timestamp_us // _DAY_US)
        while self.start_us(index + 1) <= timestamp_us:
            index += 1
        return index

    def _find_start_us(self, index: int) -> int:
        return day_start_us(self._zone, self._counting.first_day(index * self._every))

    def _find_least_index(self, utc_day: int) -> int:
        """Return the index of the local day at the start of a UTC day, the least index in that day.

        If the clocks went back over midnight, the period may have ended before the UTC day starts.
        """
        local_day = local_us(self._zone, utc_day * _DAY_US) // _DAY_US
        return self._counting.unit_of(local_day) // self._every


def local_us(zone: tzinfo, instant_us: int) -> int:
    """Return the local time of an instant, in microseconds since local 1970-01-01 00:00."""
    utc = from_us(min(max(instant_us, _FIRST_US), _LAST_US))
    local = utc.astimezone(zone)
    return instant_us + (local.replace(tzinfo=None) - utc.replace(tzinfo=None)) // _MICRO


def _greatest_shift_us(zone: tzinfo) -> int:
    """Return the greatest difference of two offsets of a zone from UTC, in µs."""
    shifts = [local_us(zone, at_us) - at_us for at_us in range(0, _LAST_SHIFT_US, 30 * _DAY_US)]
    return max(shifts) - min(shifts)


def day_start_us(zone: tzinfo, day: int) -> int:
    """Return the first instant at which local clocks show a day or a later one.

    Args:
        zone: the time zone.
        day: days since 1970-01-01.
    """
    midnight_us = day * _DAY_US
    # Offsets are less than a day, so these instants are before and after the midnight.
    earliest, latest = midnight_us - _DAY_US, midnight_us + _DAY_US
    shifts = {local_us(zone, instant_us) - instant_us for instant_us in (earliest, latest)}
    for shift_us in sorted(shifts, reverse=True):
        if local_us(zone, midnight_us - shift_us) == midnight_us:
            return midnight_us - shift_us
    # The clocks skip midnight.
    instants = range(earliest, latest)
    return instants[bisect_left(instants, midnight_us, key=lambda one: local_us(zone, one))]


class Counting(NamedTuple):
    """The numbering of a calendar unit. Days count from 1970-01-01, and unit 0 holds that day.

    Attributes:
        unit_of: returns the unit that holds a day.
        first_day: returns the first day of a unit.
    """

    unit_of: Callable[[int], int]
    first_day: Callable[[int], int]


def _counting(unit: CalendarUnit, week_starts: Weekday) -> Counting:
    if unit == "day":
        return Counting(int, int)
    if unit == "week":
        first = -((_WEEKDAYS.index("thursday") - _WEEKDAYS.index(week_starts)) % 7)
        return Counting(lambda day: (day - first) // 7, lambda week: first + week * 7)
    if unit == "month":
        return Counting(month_of, first_day_of_month)
    return Counting(lambda day: month_of(day) // 12, lambda year: first_day_of_month(year * 12))


# numpy counts days and months of the proleptic Gregorian calendar in any year, while datetime.date
# has only the years 1 to 9999.


def first_day_of_month(month: int) -> int:
    """Return the first day of a month, in days since 1970-01-01; month 0 is January 1970.

    >>> first_day_of_month(1), first_day_of_month(-1)
    (31, -31)
    """
    return int(np.datetime64(month, "M").astype("M8[D]").astype(np.int64))


def month_of(day: int) -> int:
    """Return the month that holds a day, both counted from 1970-01-01.

    >>> month_of(30), month_of(31), month_of(-1)
    (0, 1, -1)
    """
    return int(np.datetime64(day, "D").astype("M8[M]").astype(np.int64))


def _zone(tz: object) -> tzinfo:
    """Return the time zone of a `tz` argument."""
    if isinstance(tz, str):
        return zone_named("CalendarWindower: tz", tz)
    if not isinstance(tz, tzinfo):
        raise FlowTypeError(
            "CalendarWindower: tz must be the name of an IANA time zone or a tzinfo, "
            f"got {shorten(tz)}"
        )
    try:
        local_us(tz, 0)
    except Exception as error:  # A user's tzinfo may raise any exception.
        raise FlowBuildError(
            "CalendarWindower: tz must have a local time at every instant, "
            f"but {shorten(tz)} raised {type(error).__name__}: {first_line(error)}"
        ) from error
    return tz
