"""First and last values over columns."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow import Dataflow
from flow.testing import TestDriver
from flow_windowing import (
    Earliest,
    EventClock,
    First,
    Last,
    Latest,
    SessionWindower,
    TumblingWindower,
)
from tests.support.sampling import sampled
from tests.support.window_flow import START, on_path, window_flow

SCHEMA = pa.schema(
    [("user", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int64()), ("x", "f8")]
)
EDGES: dict[str, Any] = {
    "first": First("n"),
    "last": Last("x"),
    "earliest": Earliest("x"),
    "latest": Latest("n"),
}


def edges_of(windower: Any) -> Dataflow:
    return window_flow(EventClock("ts", "1m"), windower, EDGES)


def records(seconds: list[int], first_number: int) -> pa.RecordBatch:
    """Values of one key: what each holds says when it came."""
    rows = [
        {"user": "a", "ts": START + timedelta(seconds=second), "n": number, "x": number / 2}
        for number, second in enumerate(seconds, first_number)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def outcome(windower: Any, epochs: list[list[int]], ways: list[bool]) -> list[Any]:
    """Return the results of the windows, with some of the epochs run key by key."""
    sent = 0
    with TestDriver(edges_of(windower), now=START) as t:
        for seconds, alone in zip(epochs, ways, strict=False):
            batch = records(seconds, sent)
            sent += len(seconds)
            with on_path(alone):
                t.send("in", batch)
        t.end()
        return [(one.open_time, value) for _, (one, value) in t.received("down")]


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
def test_merged_sessions_keep_first_and_last_values(cut: int) -> None:
    # 20 then 10 open a session each, 15 joins them; 5 comes last, and is the earliest.
    seconds = [20, 10, 10, 15, 5]
    epochs = [seconds[:cut], seconds[cut:]]
    ((_, value),) = outcome(SessionWindower("6s"), epochs, [False] * 2)
    assert value == {"first": 0, "last": 2.0, "earliest": 2.0, "latest": 0}


@sampled(100, by_default=25)
@given(
    st.sampled_from([TumblingWindower("20s"), SessionWindower("3s"), SessionWindower("8s")]),
    st.lists(st.lists(st.integers(0, 30), max_size=6), min_size=1, max_size=4),
    st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_first_and_last_agree_over_changes_of_path(
    windower: Any, epochs: list[list[int]], ways: list[bool]
) -> None:
    expected = outcome(windower, epochs, [True] * 4)
    assert outcome(windower, epochs, [False] * 4) == expected
    assert outcome(windower, epochs, ways) == expected
