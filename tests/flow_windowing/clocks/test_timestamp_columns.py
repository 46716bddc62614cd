"""Timestamps in columns: which are read as a column, equal to those that are read one by one."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.errors import TimestampError
from flow.instants import UNIX_SECONDS, TimeForm, TimeUnit, instant_us
from flow_windowing.clocks.timestamp_columns import read_times

NS = pa.timestamp("ns", "Asia/Tokyo")
FORMS = [
    "2013-01-01T00:00:00Z",
    "2013-01-01 05:30+05:30",
    "1969-12-31T23:59:59.9999999-01",
    "2013-01-01T00:00:00.1Z",
]


def read(column: pa.Array, form: TimeForm = UNIX_SECONDS) -> list[int | None]:
    """The timestamps of a column; ``None`` where it has to be read one by one."""
    found = read_times(pa.record_batch({"at": column}), "at", form)
    if found is None:
        return [None] * len(column)
    return [time if known else None for time, known in zip(*map(list, found), strict=True)]


@pytest.mark.parametrize(
    ("column", "times"),
    [
        (pa.array([-1, 2_999, None], NS), [-1, 2, None]),
        (pa.array([3, 2**64 - 1, None], pa.uint64()), [3_000_000, None, None]),
        (pa.array(["1970-01-01T00:00:01Z", "1970-01-01T00:00:00.000002+00:00"]), [1_000_000, 2]),
        (pa.array(["1970-01-01T00:00:00.000002999Z"], pa.large_string()), [2]),
        (pa.array(["1970-01-01T00:00:01Z"] * 2).dictionary_encode(), [1_000_000] * 2),
        (pa.array(["1970-01-01T00:00:01Z", "soon", None]), [1_000_000, None, None]),
        (pa.array(["19700101T000001Z", "1970-01-01T00:00:01"]), [None, None]),
        (pa.array(["0000-01-01T00:00:00Z", "1970-02-30T00:00:00Z"]), [None, None]),
    ],
)
def test_a_column_is_read_as_a_whole(column: pa.Array, times: list[int | None]) -> None:
    assert read(column) == times


def alone(value: Any, form: TimeForm) -> int | None:
    try:
        return instant_us(value, form)
    except TimestampError:
        return None


@given(
    st.sampled_from(FORMS),
    st.integers(0, 30),
    st.sampled_from([*"0189-+:.,TZ ", ""]),
    st.booleans(),
    st.sampled_from([UNIX_SECONDS, TimeForm(zone=ZoneInfo("Europe/Berlin"))]),
)
def test_a_text_that_is_read_as_a_column_is_read_alike_alone(
    text: str, at: int, piece: str, replaces: bool, form: TimeForm
) -> None:
    changed = text[:at] + piece + text[at + replaces :]
    (time,) = read(pa.array([changed]), form)
    assert time in (alone(changed, form), None)


UNITS: list[TimeUnit] = ["s", "ms", "us", "ns"]


@given(st.sampled_from(UNITS), st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats()))
def test_a_number_of_any_unit_is_read_alike_in_columns_and_alone(
    unit: TimeUnit, number: float
) -> None:
    form, kinds = TimeForm(unit), [pa.float64()]
    if isinstance(number, int):
        kinds = [pa.uint64()] if number >= 2**63 else [pa.int64()]
    (time,) = read(pa.array([number], kinds[0]), form)
    assert time in (alone(number, form), None)
    listed = read_times([{"at": number}], "at", form)
    assert listed is None or not listed[1][0] or listed[0][0] == alone(number, form)


@pytest.mark.parametrize(
    ("unit", "numbers", "times"),
    [
        ("ms", [1_500, -1, 253_402_300_800_000], [1_500_000, -1_000, None]),
        ("us", [1_500, -1, 2**62], [1_500, -1, None]),
        ("ns", [1_999, -1, 2**62], [1, -1, 4_611_686_018_427_387]),
        ("ms", [1.5, 0.0005, float("nan")], [1_500, 0, None]),
        ("ns", [1_999.5, -1.0, float("inf")], [1, -1, None]),
    ],
)
def test_a_column_of_numbers_has_the_unit_of_the_clock(
    unit: TimeUnit, numbers: list[float], times: list[int | None]
) -> None:
    assert read(pa.array(numbers), TimeForm(unit)) == times
    assert [alone(number, TimeForm(unit)) for number in numbers] == times


# Clocks in Berlin skip 2 to 3 on 31 March 2024, and show 2 to 3 twice on 27 October.
BERLIN = TimeForm(zone=ZoneInfo("Europe/Berlin"))
LOCAL = {
    "2024-01-01T12:00:00": "2024-01-01T11:00:00Z",
    "2024-03-31T01:59:59.999999": "2024-03-31T00:59:59.999999Z",
    "2024-03-31T02:00:00": None,
    "2024-03-31T02:30:00": None,
    "2024-03-31T03:00:00": "2024-03-31T01:00:00Z",
    "2024-10-27T02:00:00": "2024-10-27T00:00:00Z",
    "2024-10-27T02:59:59": "2024-10-27T00:59:59Z",
    "2024-10-27T03:00:00": "2024-10-27T02:00:00Z",
    "2061-07-01T12:00:00": "2061-07-01T10:00:00Z",
}
# Clocks on Lord Howe Island show 1:30 to 2 twice on 7 April 2024, and skip 2 to 2:30 on 6 October.
LORD_HOWE = {
    "2024-04-07T01:29:59.999999": "2024-04-06T14:29:59.999999Z",
    "2024-04-07T01:30:00": "2024-04-06T14:30:00Z",
    "2024-04-07T01:59:59.999999": "2024-04-06T14:59:59.999999Z",
    "2024-04-07T02:00:00": "2024-04-06T15:30:00Z",
    "2024-10-06T01:59:59.999999": "2024-10-05T15:29:59.999999Z",
    "2024-10-06T02:00:00": None,
    "2024-10-06T02:29:59.999999": None,
}
# Samoa left out 30 December 2011.
APIA = {
    "2011-12-29T23:59:59.999999": "2011-12-30T09:59:59.999999Z",
    "2011-12-30T00:00:00": None,
    "2011-12-30T12:30:00": None,
    "2011-12-30T23:59:59.999999": None,
    "2011-12-31T00:00:00": "2011-12-30T10:00:00Z",
}
ZONES = {"Europe/Berlin": LOCAL, "Australia/Lord_Howe": LORD_HOWE, "Pacific/Apia": APIA}


@pytest.mark.parametrize("zone", ZONES)
def test_naive_times_have_the_zone_of_the_clock(zone: str) -> None:
    form, local = TimeForm(zone=ZoneInfo(zone)), ZONES[zone]
    times = [None if utc is None else instant_us(utc) for utc in local.values()]
    texts, naive = [*local], [datetime.fromisoformat(text) for text in local]
    assert [alone(text, form) for text in texts] == times
    assert [alone(time.replace(fold=1), form) for time in naive] == times
    for unit in ("us", "ns"):
        assert read(pa.array(naive, pa.timestamp(unit)), form) == times
    assert read(pa.array(texts), form) == times
    listed = read_times([{"at": time} for time in naive], "at", form)
    assert listed is not None
    assert [us if known else None for us, known in zip(*listed, strict=True)] == times


def test_a_time_after_the_skipped_part_of_an_hour_is_read_alone() -> None:
    form = TimeForm(zone=ZoneInfo("Australia/Lord_Howe"))
    after = datetime(2024, 10, 6, 2, 30)  # noqa: DTZ001  (naive is meant)
    assert read(pa.array([after], pa.timestamp("us")), form) == [None]
    assert alone(after, form) == instant_us("2024-10-05T15:30:00Z")


def test_times_with_a_zone_of_their_own_keep_it() -> None:
    texts = ["2024-07-01T12:00:00Z", "2024-07-01T12:00:00", "2024-07-01T12:00:00+05:30", None]
    times = [instant_us(f"2024-07-01T{clock}Z") for clock in ("12:00:00", "10:00:00", "06:30:00")]
    assert read(pa.array(texts), BERLIN) == [*times, None]
    aware = pa.array([times[0]], pa.timestamp("us", "UTC"))
    assert read(aware, BERLIN) == [times[0]]


@given(
    st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Monrovia"]),
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)),  # noqa: DTZ001  (naive is meant)
)
def test_a_naive_time_is_read_alike_in_columns_and_alone(zone: str, time: datetime) -> None:
    form = TimeForm(zone=ZoneInfo(zone))
    (found,) = read(pa.array([time], pa.timestamp("us")), form)
    assert found in (alone(time, form), None)
