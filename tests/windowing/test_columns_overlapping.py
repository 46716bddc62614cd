"""Over whole columns, windows that overlap take values in lots, and no more room for it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.instants import Moment
from flow.operators.shards import ShardEpoch, ShardLogic, ShardRows
from flow_windowing import (
    Aggregator,
    Count,
    CountWindower,
    EventClock,
    Last,
    SlidingWindower,
    Sum,
)
from flow_windowing.columnar import spreading
from flow_windowing.driver import CLOSED, DOWN, LATE, DriverBuilder, Emit
from flow_windowing.folding import FoldingBuilder
from flow_windowing.windowers import Windower
from tests.windowing.test_columns import (
    EDGES,
    NUMBERS,
    OTHERS,
    PICKED,
    Epoch,
    Step,
    as_dicts,
    as_records,
    clocks,
    epochs_of_rows,
    graces,
    key_by_key,
    outcome,
    sides,
)

START = datetime(2023, 12, 14, 10, 30, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000
DAY_OF_MINUTES = SlidingWindower("1d", "1m")
MEGABYTE = 1 << 20


@contextmanager
def lots_of(pairs: int) -> Iterator[None]:
    """Let values into their windows by lots of so many pairs of a value and a window."""
    with mock.patch.object(spreading, "pairs_at_once", return_value=pairs):
        yield


windowers = st.one_of(
    st.builds(
        SlidingWindower,
        st.sampled_from(["20s", "1m"]),
        st.sampled_from(["3s", "5s", "7s"]),
        closed=sides,
        grace=graces,
    ),
    st.builds(CountWindower, st.integers(3, 5), st.sampled_from([1, 2]), st.booleans()),
)
steps = st.builds(
    Step,
    clocks,
    windowers,
    st.sampled_from([NUMBERS, OTHERS, EDGES, PICKED]),
    st.booleans(),
    st.sampled_from([None, "last"]),
    st.sampled_from(["close", "epoch", "update"]),
)


@settings(max_examples=200)
@given(steps, epochs_of_rows, st.integers(1, 30), st.booleans())
def test_lots_of_any_size_give_what_each_key_by_itself_does(
    step: Step, epochs: list[Epoch], pairs: int, plain: bool
) -> None:
    with key_by_key():
        expected = outcome(step, epochs, as_dicts)
    with lots_of(pairs):
        assert outcome(step, epochs, as_dicts if plain else as_records) == expected


def logic_of(windower: Windower[Any], aggregator: Any, emit: Emit = "close") -> ShardLogic:
    config = DriverBuilder(
        EventClock("ts", "1h"),
        windower,
        FoldingBuilder(aggregator, emit),
        ordered=False,
        emit=emit,
    )
    assert config.shard_logic is not None
    return config.shard_logic()


def epoch_of(count: int, from_us: int) -> ShardRows:
    """So many values of one key, a millisecond apart."""
    rows = np.arange(count)
    times = pa.array(from_us + rows * 1000, pa.timestamp("us", tz="UTC"))
    values = pa.RecordBatch.from_pydict({"ts": times, "n": rows})
    return ShardRows(pa.array(["a"]), np.array([count]), rows, rows, values)


def asked(*ports: int) -> ShardEpoch:
    now = Moment(START_US)
    return ShardEpoch(now, now, end_of_input=False, wanted=frozenset(ports))


def room_for(work: Callable[[], object]) -> int:
    """The most bytes that work takes at a time, besides those taken already."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("aggregator", [Count(), Sum("n"), Last("n")], ids=repr)
def test_values_of_many_windows_take_no_more_room_than_a_lot_of_them(
    aggregator: Aggregator[Any, Any, Any],
) -> None:
    # 10,000 values in 1,440 windows each: 14.4 million pairs, whose numbers alone are 115 MB.
    logic, rows = logic_of(DAY_OF_MINUTES, aggregator), epoch_of(10_000, START_US)
    assert room_for(lambda: logic.run(rows, asked(DOWN, CLOSED))) < 40 * MEGABYTE


def test_values_that_miss_many_windows_take_no_room_where_nobody_asks_for_them() -> None:
    logic = logic_of(DAY_OF_MINUTES, Count())
    logic.run(epoch_of(1, START_US), asked())
    two_days_us = 2 * 86_400_000_000
    late = epoch_of(10_000, START_US - two_days_us)
    unwanted: list[int] = []
    room = room_for(lambda: unwanted.extend(logic.run(late, asked(DOWN)).unwanted))
    assert unwanted[LATE] == 10_000 * 1440
    assert room < 40 * MEGABYTE
