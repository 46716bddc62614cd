"""Tumbling windows: assignment, close and refused arguments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.errors import DurationError, FlowBuildError, FlowTypeError
from flow.instants import MAX_US, MIN_US, NEVER, instant_us
from flow_windowing import TumblingWindower, WindowMetadata

HOUR = 3_600_000_000


def test_open_is_inclusive_and_close_exclusive() -> None:
    # |  0        |  1        |
    # 0           1h          2h
    windows = TumblingWindower("1h").build(None)
    assert windows.open_for(0, -NEVER).ids == [0]
    assert windows.open_for(HOUR - 1, -NEVER).ids == [0]
    assert windows.open_for(HOUR, -NEVER).ids == [1]


def test_windows_before_align_to_have_negative_ids() -> None:
    align = datetime(2024, 1, 1, 0, 30, tzinfo=UTC)
    windows = TumblingWindower("1h", align_to=align).build(None)
    before = instant_us("2024-01-01T00:29:59.999999Z")
    assert windows.open_for(before, -NEVER).ids == [-1]
    assert windows.metadata(-1) == WindowMetadata(
        -1, align - timedelta(hours=1), align, frozenset()
    )


def test_a_window_closes_when_the_watermark_reaches_its_close() -> None:
    windows = TumblingWindower("1h").build(None)
    windows.open_for(5, -NEVER)
    windows.open_for(HOUR + 5, -NEVER)
    assert windows.next_close_us() == HOUR
    assert windows.close_for(HOUR - 1) == []
    assert [closed.window_id for closed in windows.close_for(HOUR)] == [0]
    assert windows.next_close_us() == 2 * HOUR
    assert [closed.window_id for closed in windows.close_for(NEVER)] == [1]
    assert windows.next_close_us() == NEVER
    assert windows.snapshot() is None


def test_a_snapshot_keeps_open_windows() -> None:
    windower = TumblingWindower("1h")
    windows = windower.build(None)
    windows.open_for(5, -NEVER)
    again = windower.build(windows.snapshot())
    assert [closed.window_id for closed in again.close_for(NEVER)] == [0]


def test_a_closed_window_does_not_open_again() -> None:
    windows = TumblingWindower("1h").build(None)
    opened = windows.open_for(5, HOUR)
    assert (opened.ids, [missed.window_id for missed in opened.missed]) == ([], [0])


@given(st.integers(MIN_US, MAX_US), st.integers(1, 10**15), st.integers(-(10**15), 10**15))
def test_every_timestamp_lies_in_exactly_one_window(
    timestamp: int, length: int, align: int
) -> None:
    windower = TumblingWindower(
        timedelta(microseconds=length),
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=align),
    )
    (number,) = windower.build(None).open_for(timestamp, -NEVER).ids
    open_us = align + number * length
    assert open_us <= timestamp < open_us + length


@pytest.mark.parametrize("timestamp", [MIN_US, MAX_US])
def test_the_ends_of_the_calendar_have_windows(timestamp: int) -> None:
    windows = TumblingWindower("400d").build(None)
    (number,) = windows.open_for(timestamp, -NEVER).ids
    metadata = windows.metadata(number)
    assert instant_us(metadata.open_time) <= timestamp <= instant_us(metadata.close_time)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"length": "0s"}, FlowBuildError, "length must be positive, got '0s'"),
        ({"length": "-1h"}, FlowBuildError, "length must be positive, got '-1h'"),
        ({"length": "an hour"}, DurationError, "TumblingWindower: length 'an hour' is not a"),
        ({"length": "1h", "align_to": "now"}, FlowTypeError, "align_to must be an aware datetime"),
        (
            {"length": "1h", "align_to": datetime(2024, 1, 1)},  # noqa: DTZ001
            FlowBuildError,
            "align_to: 2024-01-01T00:00:00 is a naive datetime",
        ),
    ],
)
def test_an_invalid_argument_is_refused_when_the_windower_is_made(
    arguments: dict[str, object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        TumblingWindower(**arguments)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_metadata_is_hashable_frozen_and_ordered_by_open_time() -> None:
    windows = TumblingWindower("1h").build(None)
    first, second = windows.metadata(0), windows.metadata(1)
    assert sorted({second, first}) == [first, second]
    with pytest.raises(AttributeError):
        first.window_id = 7  # type: ignore[misc]
