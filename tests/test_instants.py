"""Instants: accepted forms of a point in time, and errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pendulum
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.errors import TimestampError
from flow.instants import MAX_US, MIN_US, NEVER, Instant, Moment, datetime_us, from_us, instant_us

NEW_YEAR_US = 1_356_998_400_000_000  # 2013-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("instant", "micros"),
    [
        (datetime(2013, 1, 1, tzinfo=UTC), NEW_YEAR_US),
        (datetime(2013, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), NEW_YEAR_US),
        (pendulum.datetime(2013, 1, 1, tz="Europe/Berlin"), NEW_YEAR_US - 3_600_000_000),
        (1_356_998_400, NEW_YEAR_US),
        (1_356_998_400.5, NEW_YEAR_US + 500_000),
        (-0.5, -500_000),
        (0.999_999_9, 1_000_000),
        ("2013-01-01T00:00:00Z", NEW_YEAR_US),
        ("2013-01-01T00:00Z", NEW_YEAR_US),
        ("2013-01-01 01:00:00.000001+01:00", NEW_YEAR_US + 1),
        ("1969-12-31T23:59:59.999999Z", -1),
    ],
)
def test_an_instant_is_read_as_utc_microseconds(instant: Instant, micros: int) -> None:
    assert instant_us(instant) == micros


@pytest.mark.parametrize("naive", [datetime(2013, 1, 1), "2013-01-01T00:00:00", "2013-01-01"])  # noqa: DTZ001
def test_a_naive_datetime_is_refused_with_advice(naive: Instant) -> None:
    with pytest.raises(
        TimestampError,
        match="2013-01-01T00:00:00 is a naive datetime, which names no point in time: "
        r"give it a time zone, e\.g\. value\.replace\(tzinfo=timezone\.utc\); for the values "
        r"of an event clock write EventClock\(\.\.\., timezone='Europe/Berlin'\)",
    ):
        instant_us(naive)


@pytest.mark.parametrize("text", ["", "yesterday", "2013-13-01T00:00:00Z", "1356998400"])
def test_text_that_is_not_iso_8601_is_refused(text: str) -> None:
    with pytest.raises(TimestampError, match=f"'{text}' is not an ISO 8601 timestamp"):
        instant_us(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), True])
def test_numbers_that_are_no_seconds_are_refused(value: float) -> None:
    with pytest.raises(TimestampError, match=f"{value!r} is not a timestamp"):
        instant_us(value)


@pytest.mark.parametrize("value", [None, b"2013", (2013, 1, 1)])
def test_other_types_are_refused_by_name(value: object) -> None:
    with pytest.raises(
        TimestampError,
        match=rf"\({type(value).__name__}\) is not a timestamp: give an aware datetime",
    ):
        instant_us(value)


@pytest.mark.parametrize("seconds", [10**12, -(10**12), 1e300])
def test_seconds_beyond_the_calendar_are_refused(seconds: float) -> None:
    with pytest.raises(TimestampError, match="lies outside the years 1 to 9999 as Unix seconds"):
        instant_us(seconds)


def test_the_ends_of_the_calendar_are_instants() -> None:
    assert instant_us(datetime.max.replace(tzinfo=UTC)) == MAX_US
    assert instant_us(datetime.min.replace(tzinfo=UTC)) == MIN_US


def test_microseconds_beyond_the_calendar_show_as_its_ends() -> None:
    assert from_us(NEVER) == datetime.max.replace(tzinfo=UTC)
    assert from_us(-NEVER) == datetime.min.replace(tzinfo=UTC)


@given(st.integers(MIN_US, MAX_US))
def test_microseconds_survive_a_round_trip_through_a_datetime(micros: int) -> None:
    assert datetime_us(from_us(micros)) == micros


@given(st.datetimes(timezones=st.timezones()))
def test_the_time_zone_of_a_datetime_does_not_matter(value: datetime) -> None:
    assert datetime_us(value) == (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )


@given(st.integers(0, 4_000_000_000_000_000))
def test_seconds_as_a_float_keep_the_microsecond(micros: int) -> None:
    assert instant_us(micros / 1_000_000) == micros


def test_a_moment_has_the_system_time_and_the_running_time() -> None:
    moment = Moment(now_us=NEW_YEAR_US, downtime_us=3_600_000_000)
    assert moment.now == datetime(2013, 1, 1, tzinfo=UTC)
    assert moment.running_us == NEW_YEAR_US - 3_600_000_000
