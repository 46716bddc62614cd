"""Durations: accepted forms, their microseconds, and errors."""

from __future__ import annotations

from datetime import timedelta

import pandas
import pendulum
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.durations import MAX_US, Duration, duration_text, duration_us
from flow.errors import DurationError, shorten

SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000


@pytest.mark.parametrize(
    ("value", "micros"),
    [
        ("30s", 30 * SECOND),
        ("5m", 5 * MINUTE),
        ("1h30m", HOUR + 30 * MINUTE),
        (" 1h 30m ", HOUR + 30 * MINUTE),
        ("100ms", 100_000),
        ("7us", 7),
        ("7µs", 7),
        ("2d", 2 * DAY),
        ("1w", 7 * DAY),
        ("0s", 0),
        ("1.5h", HOUR + 30 * MINUTE),
        ("0.000001s", 1),
        ("-5m", -5 * MINUTE),
        ("+5m", 5 * MINUTE),
        ("-1h30m", -HOUR - 30 * MINUTE),
        # Units that are written out.
        ("5 minutes", 5 * MINUTE),
        ("1min", MINUTE),
        ("2 hours 3 min", 2 * HOUR + 3 * MINUTE),
        ("1 day", DAY),
        ("10 secs", 10 * SECOND),
        ("250 milliseconds", 250_000),
        # Decimal fractions are not rounded through a float.
        ("0.3s", 300_000),
        ("1.000001s", 1_000_001),
        # ISO 8601.
        ("PT5M", 5 * MINUTE),
        ("PT1H30M10S", HOUR + 30 * MINUTE + 10 * SECOND),
        ("PT0.5S", 500_000),
        ("P1D", DAY),
        ("P1DT2H", DAY + 2 * HOUR),
        ("P1W", 7 * DAY),
        ("PT0.001H", 3_600_000),
        ("P0.01D", 864 * SECOND),
        ("P0.0001D", 8_640_000),
        ("P1,5W", 10 * DAY + 12 * HOUR),
        ("pt1.25h", 75 * MINUTE),
        ("PT4294967297S", 4_294_967_297 * SECOND),
        ("P0Y0M1DT0H", DAY),
        # Objects.
        (timedelta(milliseconds=100), 100_000),
        (timedelta(microseconds=-1), -1),
        (timedelta(days=1, microseconds=1), DAY + 1),
        (pendulum.duration(hours=1), HOUR),
        (pendulum.duration(weeks=1, days=2), 9 * DAY),
        (timedelta.max, 86_399_999_999_999_999_999),
    ],
)
def test_a_duration_is_read_as_microseconds(value: Duration, micros: int) -> None:
    assert duration_us(value) == micros


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "5",
        "m5",
        "soon",
        "1h-30m",
        "1 fortnight",
        "5M",
        "P",
        "P5X",
        "PT",
        "P1DT",
        "PT12M3M1M",
        "PT1.5H30M",
        "P1W2D",
        "PT٣S",
        "٣s",
        "9" * 5_000 + "s",
        "-PT5M",
        "1,5h",
        "2013-01-01",
    ],
)
def test_other_text_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(DurationError) as caught:
        duration_us(text, "length")
    assert str(caught.value) == (
        f"length {shorten(text)} is not a duration: write it as a timedelta, "
        '"30s", "5m", "1h30m", "100ms" or ISO 8601 "PT5M"'
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [(5, "int 5"), (0.5, "float 0.5"), (None, "NoneType None"), (True, "bool True")],
)
def test_a_bare_number_is_refused_because_it_has_no_unit(value: Duration, shown: str) -> None:
    with pytest.raises(DurationError, match=f"wait must be a duration, got {shown}: write it as"):
        duration_us(value, "wait")


@pytest.mark.parametrize(
    "value", ["P1M", "P1Y", pendulum.duration(months=1), pendulum.duration(years=1, hours=1)]
)
def test_months_and_years_are_refused_because_their_length_varies(value: Duration) -> None:
    with pytest.raises(DurationError, match="holds years or months, which have no fixed length"):
        duration_us(value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("1.0000009s", "is finer than a microsecond"),
        ("PT0.0000001S", "is finer than a microsecond"),
        (pandas.Timedelta(1, "ns"), "is finer than a microsecond"),
        ("P1000000000D", "is longer than timedelta.max"),
        ("-1000000000d", "is longer than timedelta.max"),
    ],
)
def test_a_duration_is_exact_or_refused(value: Duration, problem: str) -> None:
    with pytest.raises(DurationError, match=problem):
        duration_us(value)


def test_a_duration_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="duration 'x' is not a duration"):
        duration_us("x")


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0s"),
        (1, "1us"),
        (1_500_000, "1s500ms"),
        (HOUR + 30 * MINUTE, "1h30m"),
        (DAY + HOUR + MINUTE + SECOND + 1_001, "1d1h1m1s1ms1us"),
        (-MINUTE, "-1m"),
        (MAX_US, "forever"),
        (MAX_US + 1, "forever"),
    ],
)
def test_microseconds_are_written_in_the_shortest_form(micros: int, text: str) -> None:
    assert duration_text(micros) == text


@given(st.integers(-MAX_US + 1, MAX_US - 1))
def test_a_written_duration_survives_a_round_trip(micros: int) -> None:
    assert duration_us(duration_text(micros)) == micros


@given(st.timedeltas())
def test_a_timedelta_keeps_every_microsecond(value: timedelta) -> None:
    assert timedelta(microseconds=1) * duration_us(value) == value
