"""Clocks: timestamps, watermarks and snapshots."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pendulum
import pytest

from flow.instants import NEVER, Moment, instant_us
from flow.operators import RejectedValue
from flow_windowing import EventClock, SystemClock


def at(clock_time: str) -> int:
    return instant_us(f"2023-12-14T{clock_time}:00Z")


def test_due_times_follow_system_time() -> None:
    clock = EventClock(lambda seconds: seconds, "10s").build(None)
    clock.on_item(100, Moment(50, downtime_us=7))
    clock.settle(Moment(50, downtime_us=7))
    due = clock.due_us(95_000_000, Moment(60, downtime_us=9))
    assert clock.watermark(Moment(due, downtime_us=9)) == 95_000_000


def test_an_endless_wait_keeps_the_watermark_at_the_beginning() -> None:
    clock = EventClock(lambda seconds: seconds, timedelta.max).build(None)
    timestamp, watermark, _ = clock.on_item(253_402_300_799, Moment(at("10:00")))
    assert watermark < instant_us(-62_135_596_800) < timestamp
    assert clock.due_us(timestamp, Moment(at("10:00"))) > instant_us(253_402_300_799)


def test_system_time_is_both_timestamp_and_watermark() -> None:
    clock = SystemClock().build(None)
    assert clock.on_item("anything", Moment(123)) == (123, 123, None)
    assert clock.watermark(Moment(456)) == 456
    assert clock.due_us(789, Moment(456)) == 789
    assert clock.snapshot() is None


@pytest.mark.parametrize(
    "value",
    [
        datetime(2023, 12, 14, 10, 35, tzinfo=UTC),
        datetime(2023, 12, 14, 12, 35, tzinfo=timezone(timedelta(hours=2))),
        pendulum.datetime(2023, 12, 14, 11, 35, tz="Europe/Paris"),
        1702550100,
        1702550100.0,
        "2023-12-14T10:35:00Z",
        "2023-12-14T11:35:00+01:00",
    ],
)
def test_a_timestamp_may_be_a_datetime_unix_seconds_or_text(value: object) -> None:
    clock = EventClock(lambda found: found, "0s").build(None)
    assert clock.on_item(value, Moment(0)) == (at("10:35"), at("10:35"), None)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, "there is no field 'at'"),
        ({"at": None}, "None (NoneType) is not a timestamp"),
        ({"at": datetime(2023, 1, 1)}, "naive datetime"),  # noqa: DTZ001
        ({"at": "yesterday"}, "'yesterday' is not an ISO 8601 timestamp"),
        ({"at": float("nan")}, "nan is not a timestamp"),
        ({"at": True}, "True is not a timestamp"),
        ({"at": 10**15}, "outside the years 1 to 9999"),
    ],
)
def test_an_invalid_timestamp_is_rejected_with_the_value(value: object, problem: str) -> None:
    clock = EventClock("at", "0s").build(None)
    with pytest.raises(RejectedValue) as caught:
        clock.on_item(value, Moment(0))
    assert caught.value.value is value
    assert "ts_getter 'at' gave no timestamp" in caught.value.problem
    assert problem in caught.value.problem


def test_clocks_compare_by_value_and_their_repr_is_valid_code() -> None:
    assert EventClock("at", "5m") == EventClock("at", "5m") != EventClock("at", "6m")
    assert eval(repr(EventClock("at", "5m"))) == EventClock("at", "5m")
    assert SystemClock() == SystemClock()
    assert EventClock("at", "5m").build(None).due_us(5, Moment(0)) == NEVER
