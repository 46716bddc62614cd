"""Calendar windows: bounds of local days, weeks, months and years."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pandas as pd
import pendulum
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flow.errors import DurationError, FlowBuildError, FlowTypeError
from flow.instants import EPOCH, MAX_US, MIN_US, NEVER, instant_us
from flow_windowing.rules.metadata import WindowMetadata
from flow_windowing.windowers.calendar import (
    CalendarUnit,
    CalendarWindower,
    Weekday,
    first_day_of_month,
    month_of,
)
from flow_windowing.windowers.windower import WindowerLogic

HOUR = 3_600_000_000
DAY = 24 * HOUR
FIRST = date(1970, 1, 1)

Windows = WindowerLogic[list[int]]


def days_in(tz: str) -> Windows:
    return CalendarWindower("day", tz).build(None)


def number_of(day: str) -> int:
    """The id of the window that is one day."""
    return (date.fromisoformat(day) - FIRST).days


def id_at(windows: Windows, instant: str | int) -> int:
    micros = instant if isinstance(instant, int) else instant_us(instant)
    (window_id,) = windows.open_for(micros, -NEVER).ids
    return window_id


def utc_bounds(window: WindowMetadata) -> tuple[str, str]:
    return f"{window.open_time:%Y-%m-%d %H:%M}", f"{window.close_time:%Y-%m-%d %H:%M}"


def bounds_us(windower: CalendarWindower, window_id: int) -> tuple[int, int]:
    return windower.calendar.start_us(window_id), windower.calendar.start_us(window_id + 1)


@pytest.mark.parametrize(
    ("tz", "day", "opens", "closes", "hours"),
    [
        ("UTC", "1970-01-01", "1970-01-01 00:00", "1970-01-02 00:00", 24),
        ("Asia/Kathmandu", "2024-01-01", "2023-12-31 18:15", "2024-01-01 18:15", 24),
        # The clocks change in the middle of the day.
        ("Europe/Paris", "2024-03-31", "2024-03-30 23:00", "2024-03-31 22:00", 23),
        ("Europe/Paris", "2024-10-27", "2024-10-26 22:00", "2024-10-27 23:00", 25),
        ("America/New_York", "2024-03-10", "2024-03-10 05:00", "2024-03-11 04:00", 23),
        ("America/New_York", "2024-11-03", "2024-11-03 04:00", "2024-11-04 05:00", 25),
        ("Australia/Lord_Howe", "2024-04-07", "2024-04-06 13:00", "2024-04-07 13:30", 24.5),
        ("Australia/Lord_Howe", "2024-10-06", "2024-10-05 13:30", "2024-10-06 13:00", 23.5),
        # They skip midnight: 00:00 -> 01:00, and 00:00 -> 00:15.
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04 03:00", "2018-11-05 02:00", 23),
        ("Asia/Beirut", "2024-03-31", "2024-03-30 22:00", "2024-03-31 21:00", 23),
        ("Africa/Cairo", "2024-04-26", "2024-04-25 22:00", "2024-04-26 21:00", 23),
        ("Asia/Kathmandu", "1986-01-01", "1985-12-31 18:30", "1986-01-01 18:15", 23.75),
        # They skip it from before: 23:30 -> 00:30.
        ("America/Toronto", "1919-03-30", "1919-03-30 05:00", "1919-03-31 04:30", 23.5),
        ("America/Toronto", "1919-03-31", "1919-03-31 04:30", "1919-04-01 04:00", 23.5),
        # Midnight comes twice: 01:00 -> 00:00.
        ("America/Havana", "2024-11-02", "2024-11-02 04:00", "2024-11-03 04:00", 24),
        ("America/Havana", "2024-11-03", "2024-11-03 04:00", "2024-11-04 05:00", 25),
        # They go back to midnight, and never showed it before: 00:00 -> 23:00.
        ("America/Sao_Paulo", "2018-02-17", "2018-02-17 02:00", "2018-02-18 03:00", 25),
        # They go back over midnight: 00:01 -> 23:01.
        ("America/St_Johns", "2010-11-06", "2010-11-06 02:30", "2010-11-07 02:30", 24),
        ("America/St_Johns", "2010-11-07", "2010-11-07 02:30", "2010-11-08 03:30", 25),
        # A day is left out, and a day lasts nearly two.
        ("Pacific/Apia", "2011-12-29", "2011-12-29 10:00", "2011-12-30 10:00", 24),
        ("Pacific/Apia", "2011-12-30", "2011-12-30 10:00", "2011-12-30 10:00", 0),
        ("Pacific/Apia", "2011-12-31", "2011-12-30 10:00", "2011-12-31 10:00", 24),
        ("Pacific/Kwajalein", "1969-09-30", "1969-09-29 13:00", "1969-10-01 12:00", 47),
    ],
)
def test_a_day_lasts_from_the_first_instant_of_its_date_to_that_of_the_next(
    tz: str, day: str, opens: str, closes: str, hours: float
) -> None:
    window = days_in(tz).metadata(number_of(day))
    assert utc_bounds(window) == (opens, closes)
    assert window.close_time - window.open_time == timedelta(hours=hours)


def test_open_is_inclusive_and_close_exclusive() -> None:
    # |  2024-10-26  |  2024-10-27, 25 h  |  2024-10-28
    #             22:00Z               23:00Z
    windows = days_in("Europe/Paris")
    assert id_at(windows, "2024-10-26T21:59:59.999999Z") == number_of("2024-10-26")
    assert id_at(windows, "2024-10-26T22:00:00Z") == number_of("2024-10-27")
    assert id_at(windows, "2024-10-27T22:59:59.999999Z") == number_of("2024-10-27")
    assert id_at(windows, "2024-10-27T23:00:00Z") == number_of("2024-10-28")


def test_repeated_local_times_of_the_old_day_belong_to_the_new_one() -> None:
    # clocks show  ... the 6th  |  the 7th  |  the 6th, 23:01 on  |  the 7th ...
    # windows      ... the 6th  |  the 7th                                   ...
    #                        02:30Z      02:31Z                03:30Z
    windows = days_in("America/St_Johns")
    instants = ["2010-11-07T02:29:59Z", "2010-11-07T02:30:30Z", "2010-11-07T03:00:00Z"]
    zone = ZoneInfo("America/St_Johns")
    shown = [datetime.fromisoformat(one).astimezone(zone) for one in instants]
    assert [f"{one:%d %H:%M:%S}" for one in shown] == ["06 23:59:59", "07 00:00:30", "06 23:30:00"]
    assert [id_at(windows, one) - number_of("2010-11-06") for one in instants] == [0, 1, 1]


def test_a_day_skipped_by_its_zone_has_no_values() -> None:
    windows = days_in("Pacific/Apia")
    assert id_at(windows, "2011-12-30T09:59:59.999999Z") == number_of("2011-12-29")
    assert id_at(windows, "2011-12-30T10:00:00Z") == number_of("2011-12-31")


@pytest.mark.parametrize(
    ("unit", "every", "window_id", "opens", "closes"),
    [
        ("day", 1, 0, "1970-01-01", "1970-01-02"),
        ("day", 1, -1, "1969-12-31", "1970-01-01"),
        ("day", 10, 1, "1970-01-11", "1970-01-21"),
        ("day", 10, -1, "1969-12-22", "1970-01-01"),
        ("week", 1, 0, "1969-12-29", "1970-01-05"),
        ("week", 1, -1, "1969-12-22", "1969-12-29"),
        ("week", 2, 1, "1970-01-12", "1970-01-26"),
        ("week", 2, -1, "1969-12-15", "1969-12-29"),
        ("month", 1, 0, "1970-01-01", "1970-02-01"),
        ("month", 1, -1, "1969-12-01", "1970-01-01"),
        ("month", 1, 649, "2024-02-01", "2024-03-01"),
        ("month", 1, 361, "2000-02-01", "2000-03-01"),
        ("month", 1, -839, "1900-02-01", "1900-03-01"),
        ("month", 3, 216, "2024-01-01", "2024-04-01"),
        ("month", 3, 219, "2024-10-01", "2025-01-01"),
        ("month", 3, -1, "1969-10-01", "1970-01-01"),
        ("month", 5, -1, "1969-08-01", "1970-01-01"),
        ("year", 1, 0, "1970-01-01", "1971-01-01"),
        ("year", 1, 54, "2024-01-01", "2025-01-01"),
        ("year", 1, -1, "1969-01-01", "1970-01-01"),
        ("year", 10, 5, "2020-01-01", "2030-01-01"),
        ("year", 10, -1, "1960-01-01", "1970-01-01"),
    ],
)
def test_an_id_counts_units_from_the_one_that_holds_the_first_of_1970(
    unit: CalendarUnit, every: int, window_id: int, opens: str, closes: str
) -> None:
    windows = CalendarWindower(unit, "UTC", every).build(None)
    window = windows.metadata(window_id)
    assert (str(window.open_time.date()), str(window.close_time.date())) == (opens, closes)
    assert id_at(windows, f"{opens}T00:00:00Z") == window_id
    assert id_at(windows, instant_us(f"{closes}T00:00:00Z") - 1) == window_id


@pytest.mark.parametrize(
    ("week_starts", "opens"),
    [
        ("monday", "1969-12-29"),
        ("tuesday", "1969-12-30"),
        ("wednesday", "1969-12-31"),
        ("thursday", "1970-01-01"),
        ("friday", "1969-12-26"),
        ("saturday", "1969-12-27"),
        ("sunday", "1969-12-28"),
    ],
)
def test_week_zero_holds_the_first_of_1970_a_thursday(week_starts: Weekday, opens: str) -> None:
    windows = CalendarWindower("week", "UTC", week_starts=week_starts).build(None)
    window = windows.metadata(0)
    assert str(window.open_time.date()) == opens
    assert f"{window.open_time:%A}".lower() == week_starts
    assert window.close_time - window.open_time == timedelta(days=7)


def test_longer_units_change_length_with_the_clocks() -> None:
    quarter = CalendarWindower("month", "Europe/Paris", every=3).build(None).metadata(216)
    assert utc_bounds(quarter) == ("2023-12-31 23:00", "2024-03-31 22:00")
    week = CalendarWindower("week", "America/New_York", week_starts="sunday").build(None)
    (number,) = week.open_for(instant_us("2024-11-05T12:00:00Z"), -NEVER).ids
    assert utc_bounds(week.metadata(number)) == ("2024-11-03 04:00", "2024-11-10 05:00")


def old_fashioned_zones() -> list[tzinfo]:
    """Return time zones of packages that are older than `datetime.fold`; pandas requires them."""
    pytz = pytest.importorskip("pytz")
    dateutil = pytest.importorskip("dateutil.tz")
    return [pytz.timezone("America/Havana"), dateutil.gettz("America/Havana")]


def test_every_kind_of_tzinfo_makes_the_same_days() -> None:
    zones = [
        ZoneInfo("America/Havana"),
        pendulum.timezone("America/Havana"),
        *old_fashioned_zones(),
    ]
    for zone in zones:
        window = CalendarWindower("day", zone).build(None).metadata(number_of("2024-11-03"))
        assert utc_bounds(window) == ("2024-11-03 04:00", "2024-11-04 05:00")


@pytest.mark.parametrize("hours", [-23, 0, 23])
def test_a_fixed_offset_is_a_time_zone_as_well(hours: int) -> None:
    windower = CalendarWindower("day", timezone(timedelta(hours=hours)))
    assert bounds_us(windower, 0) == (-hours * HOUR, DAY - hours * HOUR)


ZONES = [
    "UTC",
    "Africa/Cairo",
    "America/Havana",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "America/Toronto",
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Europe/Paris",
    "Pacific/Apia",
    "Pacific/Kiritimati",
    "Pacific/Kwajalein",
]


SKIPPING_MIDNIGHT = {"America/Havana", "America/Sao_Paulo", "Pacific/Apia"}


def scanned_start_us(tz: str, day: date) -> int:
    """The first full minute at which local clocks show a day or a later one."""
    zone, instant = ZoneInfo(tz), datetime(day.year, day.month, day.day, tzinfo=UTC)
    instant -= timedelta(days=1)
    while instant.astimezone(zone).date() < day:
        instant += timedelta(minutes=1)
    return (instant - EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    "tz",
    [
        pytest.param(tz, marks=() if tz in SKIPPING_MIDNIGHT else pytest.mark.extended)
        for tz in ZONES
    ],
)
def test_days_start_at_the_midnight_of_pandas_or_of_a_scan_by_minute(tz: str) -> None:
    midnights = pd.date_range("1967-01-01", "2037-12-31", freq="D")
    # True: where midnight comes twice, take it as summer time, which is the first. Its
    # nonexistent="shift_forward" moves on to the next full hour, even if the clocks skip less.
    starts = midnights.tz_localize(
        ZoneInfo(tz), ambiguous=[True] * len(midnights), nonexistent="NaT"
    )
    expected = [
        scanned_start_us(tz, midnights[number].date()) if skipped else nanos // 1_000
        for number, (skipped, nanos) in enumerate(
            zip(starts.isna().tolist(), starts.asi8.tolist(), strict=True)
        )
    ]
    first = number_of("1967-01-01")
    calendar = CalendarWindower("day", tz).calendar
    found = [calendar.start_us(first + number) for number in range(len(midnights))]
    assert found == expected


windowers = st.builds(
    CalendarWindower,
    st.sampled_from(["day", "week", "month", "year"]),
    st.sampled_from(ZONES),
    st.integers(1, 30),
    st.sampled_from(["monday", "wednesday", "thursday", "saturday", "sunday"]),
)
near_midnight = st.builds(
    lambda day, shift: day * DAY + shift,
    st.integers(number_of("1900-01-01"), number_of("2040-01-01")),
    st.integers(-15 * HOUR, 15 * HOUR),
)
timestamps = near_midnight | st.integers(MIN_US, MAX_US) | st.integers(-NEVER, NEVER)


@given(windowers, timestamps)
def test_every_timestamp_lies_in_exactly_one_window(
    windower: CalendarWindower, timestamp: int
) -> None:
    window_id = id_at(windower.build(None), timestamp)
    open_us, close_us = bounds_us(windower, window_id)
    assert open_us <= timestamp < close_us
    assert bounds_us(windower, window_id - 1)[0] <= open_us
    assert close_us <= bounds_us(windower, window_id + 1)[1]


@given(windowers, st.lists(timestamps, min_size=2))
def test_ids_never_decrease_with_time(windower: CalendarWindower, instants: list[int]) -> None:
    windows = windower.build(None)
    ids = {instant: id_at(windows, instant) for instant in instants}
    assert [ids[instant] for instant in sorted(ids)] == sorted(ids.values())


def first_date(windower: CalendarWindower, window_id: int) -> date:
    """Return the first day of a window, computed with `datetime.date`."""
    units = window_id * windower.every
    if windower.unit == "day":
        return FIRST + timedelta(days=units)
    if windower.unit == "week":
        start = FIRST
        while f"{start:%A}".lower() != windower.week_starts:
            start -= timedelta(days=1)
        return start + timedelta(weeks=units)
    years, months = (units, 0) if windower.unit == "year" else divmod(units, 12)
    return date(1970 + years, months + 1, 1)


def local_date(windower: CalendarWindower, micros: int) -> date:
    instant = EPOCH + timedelta(microseconds=micros)
    return instant.astimezone(ZoneInfo(str(windower.tz))).date()


years_1_to_9999 = st.integers(MIN_US + 12_000 * DAY, MAX_US - 12_000 * DAY)


@given(windowers, near_midnight | years_1_to_9999)
def test_a_window_opens_at_the_first_instant_of_its_first_day(
    windower: CalendarWindower, timestamp: int
) -> None:
    window_id = id_at(windower.build(None), timestamp)
    open_us, _ = bounds_us(windower, window_id)
    expected = first_date(windower, window_id)
    assert local_date(windower, open_us - 1) < expected
    assert local_date(windower, open_us) >= expected
    if windower.tz not in {"Pacific/Apia", "Pacific/Kiritimati", "Pacific/Kwajalein"}:
        assert local_date(windower, open_us) == expected


@given(windowers, near_midnight | years_1_to_9999)
def test_a_window_is_whole_days_long_unless_the_offset_differs_at_its_ends(
    windower: CalendarWindower, timestamp: int
) -> None:
    window_id = id_at(windower.build(None), timestamp)
    bounds = bounds_us(windower, window_id)
    zone = ZoneInfo(str(windower.tz))
    offsets = {(EPOCH + timedelta(microseconds=one)).astimezone(zone).utcoffset() for one in bounds}
    assume(len(offsets) == 1)
    days = first_date(windower, window_id + 1) - first_date(windower, window_id)
    assert bounds[1] - bounds[0] == days.days * DAY


def test_months_agree_with_datetime_on_every_day_of_the_calendars_400_years() -> None:
    first, last = date(1800, 1, 1).toordinal(), date(2200, 1, 1).toordinal()
    for day in map(date.fromordinal, range(first, last)):
        number, month = (day - FIRST).days, (day.year - 1970) * 12 + day.month - 1
        assert (month_of(number), day) == (month, day)
        assert first_day_of_month(month) == number - day.day + 1


@given(st.integers(-(10**12), 10**12))
def test_months_have_no_first_or_last_year(month: int) -> None:
    first, following = first_day_of_month(month), first_day_of_month(month + 1)
    assert 28 <= following - first <= 31
    assert [month_of(first - 1), month_of(first), month_of(following - 1)] == [
        month - 1,
        month,
        month,
    ]


@pytest.mark.parametrize("tz", ["America/Los_Angeles", "Pacific/Kiritimati", "UTC"])
@pytest.mark.parametrize("unit", ["day", "week", "month", "year"])
@pytest.mark.parametrize("instant", [MIN_US, MIN_US - 1, -NEVER, MAX_US, MAX_US + 1, NEVER])
def test_beyond_the_ends_of_datetime_there_are_windows(
    tz: str, unit: CalendarUnit, instant: int
) -> None:
    windower = CalendarWindower(unit, tz)
    window_id = id_at(windower.build(None), instant)
    open_us, close_us = bounds_us(windower, window_id)
    assert open_us <= instant < close_us
    window = windower.build(None).metadata(window_id)
    assert window.open_time == EPOCH + timedelta(microseconds=min(max(open_us, MIN_US), MAX_US))


def test_the_first_and_last_years_of_datetime_have_their_ids() -> None:
    windows = CalendarWindower("year", "UTC").build(None)
    assert id_at(windows, MIN_US) == 1 - 1970
    assert id_at(windows, MAX_US) == 9999 - 1970
    last = windows.metadata(9999 - 1970)
    assert last.open_time == datetime(9999, 1, 1, tzinfo=UTC)
    assert last.close_time == datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "windower",
    [
        CalendarWindower("day", "Europe/Paris"),
        CalendarWindower("week", ZoneInfo("Europe/Paris"), 2, "sunday", "1h"),
        CalendarWindower("month", pendulum.timezone("Europe/Paris"), every=3),
        CalendarWindower("year", timezone(timedelta(hours=1)), grace=timedelta(hours=1)),
    ],
)
def test_a_windower_compares_by_value_and_survives_a_copy(windower: CalendarWindower) -> None:
    before = windower.build(None).metadata(3)
    for again in (pickle.loads(pickle.dumps(windower)), copy.deepcopy(windower)):
        assert (again, hash(again), repr(again)) == (windower, hash(windower), repr(windower))
        assert again.build(None).metadata(3) == before
    assert windower != CalendarWindower("day", "Europe/London")


def test_the_repr_of_a_windower_is_valid_code() -> None:
    windower = CalendarWindower("week", "Asia/Tokyo", 2, grace="1h")
    assert repr(windower) == (
        "CalendarWindower(unit='week', tz='Asia/Tokyo', every=2, week_starts='monday', grace='1h')"
    )
    assert eval(repr(windower)) == windower


class NoZone(tzinfo):
    """It tells nothing."""

    def __repr__(self) -> str:
        return "NoZone()"


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (
            {"unit": "hour"},
            FlowBuildError,
            "CalendarWindower: unit must be 'day', 'week', 'month' or 'year', got 'hour'",
        ),
        ({"unit": ["day"]}, FlowBuildError, "unit must be 'day', 'week', 'month' or 'year', got ["),
        (
            {"tz": "Mars/Olympus"},
            FlowBuildError,
            "CalendarWindower: tz must be the name of an IANA time zone, such as 'Europe/Paris', "
            "got 'Mars/Olympus'",
        ),
        ({"tz": ""}, FlowBuildError, "such as 'Europe/Paris', got ''"),
        ({"tz": "America"}, FlowBuildError, "such as 'Europe/Paris', got 'America'"),
        ({"tz": "../Europe/Paris"}, FlowBuildError, "got '../Europe/Paris'"),
        ({"tz": "+02:00"}, FlowBuildError, "got '+02:00'"),
        (
            {"tz": 3600},
            FlowTypeError,
            "CalendarWindower: tz must be the name of an IANA time zone or a tzinfo, got 3600",
        ),
        (
            {"tz": NoZone()},
            FlowBuildError,
            "CalendarWindower: tz must have a local time at every instant, "
            "but NoZone() raised NotImplementedError: ",
        ),
        (
            {"every": 0},
            FlowBuildError,
            "CalendarWindower: every must be a whole number of at least 1, got 0",
        ),
        ({"every": -1}, FlowBuildError, "every must be a whole number of at least 1, got -1"),
        ({"every": 1.5}, FlowTypeError, "every must be a whole number of at least 1, got 1.5"),
        ({"every": True}, FlowTypeError, "every must be a whole number of at least 1, got True"),
        ({"every": "1"}, FlowTypeError, "every must be a whole number of at least 1, got '1'"),
        (
            {"week_starts": "Sunday"},
            FlowBuildError,
            "CalendarWindower: week_starts must be 'monday', 'tuesday', 'wednesday', 'thursday', "
            "'friday', 'saturday' or 'sunday', got 'Sunday'",
        ),
        (
            {"grace": "-1h"},
            FlowBuildError,
            "CalendarWindower: grace must not be negative, got '-1h'",
        ),
        ({"grace": "soon"}, DurationError, "CalendarWindower: grace 'soon' is not a duration"),
    ],
)
def test_an_invalid_argument_is_refused_when_the_windower_is_made(
    arguments: dict[str, object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        CalendarWindower(**({"unit": "day", "tz": "UTC"} | arguments))  # type: ignore[arg-type]
    assert message in str(caught.value)
