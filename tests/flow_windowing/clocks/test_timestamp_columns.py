"""Timestamps in columns: which are read as a column, equal to those that are read one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.errors import TimestampError
from flow.instants import instant_us
from flow_windowing.clocks.timestamp_columns import read_times

NS = pa.timestamp("ns", "Asia/Tokyo")
FORMS = [
    "2013-01-01T00:00:00Z",
    "2013-01-01 05:30+05:30",
    "1969-12-31T23:59:59.9999999-01",
    "2013-01-01T00:00:00.1Z",
]


def read(column: pa.Array) -> list[int | None]:
    """The timestamps of a column; ``None`` where it has to be read one by one."""
    found = read_times(pa.record_batch({"at": column}), "at")
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


@given(
    st.sampled_from(FORMS),
    st.integers(0, 30),
    st.sampled_from([*"0189-+:.,TZ ", ""]),
    st.booleans(),
)
def test_a_text_that_is_read_as_a_column_is_read_alike_alone(
    text: str, at: int, piece: str, replaces: bool
) -> None:
    changed = text[:at] + piece + text[at + replaces :]
    (time,) = read(pa.array([changed]))
    try:
        alone: Any = instant_us(changed)
    except TimestampError:
        alone = None
    assert time in (alone, None)
