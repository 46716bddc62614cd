"""Overlapping windows over columns: tiles, and chunks of bounded size."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow_windowing as win
from flow.instants import Moment
from flow.keyed.shard_logic import ShardEpoch, ShardLogic, ShardRows
from flow.keyed.step import OverColumns
from flow.testing import TestDriver, key_by_key
from flow_windowing.aggregates.folding import FoldingBuilder
from flow_windowing.columnar.admission.admitted_rows import EnteringRows
from flow_windowing.columnar.windows import indexed_windows
from flow_windowing.columnar.windows.indexed_windows import WindowRanges, tiles_of
from flow_windowing.lowering import DriverBuilder
from flow_windowing.rules.metadata import CLOSED, DOWN, LATE
from flow_windowing.rules.triggers import Emit
from flow_windowing.windowers.windower import Windower
from tests.support.columns import (
    EDGES,
    NUMBERS,
    OTHERS,
    PICKED,
    Epoch,
    Row,
    Step,
    as_dicts,
    as_records,
    clocks,
    epochs_of_rows,
    graces,
    outcome,
    sides,
)
from tests.support.sampling import sampled

START = datetime(2023, 12, 14, 10, 30, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000
DAY_OF_MINUTES = win.SlidingWindower("1d", "1m")
MEGABYTE = 1 << 20


@contextmanager
def lots_of(pairs: int, least: int) -> Iterator[None]:
    """Add values to windows in chunks of `pairs` pairs of a value and a window.

    Windows with at least `least` values are made of tiles.
    """
    with (
        mock.patch.object(indexed_windows, "pairs_per_chunk", return_value=pairs),
        mock.patch.object(indexed_windows, "_LEAST", least),
    ):
        yield


BY_TILE, ONE_BY_ONE = 0, 1 << 40


windowers = st.one_of(
    st.builds(
        win.SlidingWindower,
        st.sampled_from(["20s", "1m"]),
        st.sampled_from(["3s", "5s", "7s"]),
        closed=sides,
        grace=graces,
    ),
    st.builds(win.CountWindower, st.integers(3, 5), st.sampled_from([1, 2]), st.booleans()),
)
forms = st.sampled_from([as_dicts, as_records])
steps = st.builds(
    Step,
    clocks,
    windowers,
    st.sampled_from([NUMBERS, OTHERS, EDGES, PICKED]),
    st.booleans(),
    st.sampled_from([None, "last"]),
    st.sampled_from(["close", "epoch", "update"]),
)


@sampled(250, by_default=6)
@given(steps, epochs_of_rows, st.integers(1, 30), st.sampled_from([BY_TILE, 2, ONE_BY_ONE]), forms)
def test_tiles_and_chunks_of_any_size_agree_with_key_by_key(
    step: Step, epochs: list[Epoch], pairs: int, least: int, form: Any
) -> None:
    with key_by_key():
        expected = outcome(step, epochs, as_dicts)
    with lots_of(pairs, least):
        assert outcome(step, epochs, form) == expected


def rows_at(moments: list[tuple[str, int]]) -> list[Row]:
    """Rows of a key and a second each, with a number that says when they came."""
    return [
        {"user": user, "ts": START + timedelta(seconds=second), "whole": n, "real": n / 4}
        for n, (user, second) in enumerate(moments)
    ]


@sampled(100, by_default=6)
@given(
    st.sampled_from(["0s", "4s", "1m"]),
    st.sampled_from(["3s", "7s"]),
    st.sampled_from([None, "0s", "9s"]),
    st.sampled_from([NUMBERS, EDGES]),
    st.sampled_from(["close", "epoch"]),
    st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 70)), max_size=50), max_size=2
    ),
)
def test_windows_of_many_tiles_agree_with_key_by_key(
    wait: str,
    offset: str,
    grace: str | None,
    aggregates: dict[str, Any],
    emit: Any,
    moments: list[list[tuple[str, int]]],
) -> None:
    windower = win.SlidingWindower("40s", offset, grace=grace)
    step = Step(win.EventClock("ts", wait), windower, aggregates, timestamp="last", emit=emit)
    epochs = [Epoch(rows_at(one)) for one in moments]
    with key_by_key():
        expected = outcome(step, epochs, as_dicts)
    with lots_of(7, BY_TILE):
        assert outcome(step, epochs, as_records) == expected


def figures_of(step: Step, *seconds: int) -> dict[int, Any]:
    """Return the results of one key's windows, by the second in which the windows open."""
    with lots_of(7, BY_TILE), TestDriver(step.flow(), now=START) as t:
        t.send("in", as_records(rows_at([("a", second) for second in seconds])))
        t.end()
        down = t.received("down")
    return {(one.open_time - START) // timedelta(seconds=1): value for _, (one, value) in down}


def test_a_window_combines_all_its_tiles() -> None:
    # A value each second, which is its number: twenty tiles a window, i to i + 19.
    figures = {"total": win.Sum("whole"), "first": win.Earliest("whole"), "last": win.Last("whole")}
    step = Step(win.EventClock("ts", "1m"), win.SlidingWindower("20s", "1s"), figures)
    found = figures_of(step, *range(60))
    assert [found[i] for i in range(41)] == [
        {"total": 20 * i + 190, "first": i, "last": i + 19} for i in range(41)
    ]
    assert [found[i]["total"] for i in (-19, -18, 58, 59)] == [0, 1, 58 + 59, 59]


def test_a_value_late_for_a_window_does_not_change_earlier_windows() -> None:
    #   windows from  -15   -10   -5    0     5     10
    #   9                   in    in    in    in
    #   12                        in    in    in    in    closes -15 and -10
    #   4             late  late  in    in
    step = Step(
        win.EventClock("ts", "0s"), win.SlidingWindower("20s", "5s", grace="0s"), {"n": win.Count()}
    )
    found = figures_of(step, 9, 12, 4)
    assert {second: value["n"] for second, value in found.items()} == {
        -10: 1,
        -5: 3,
        0: 3,
        5: 2,
        10: 1,
    }


def test_windows_are_runs_of_tiles() -> None:
    # Three windows a value, one opening every second: of a value at 5 those from 3 to 5.
    #   seconds  0 0 . 2 . . 5      tiles  0 | 1 | 2
    seconds = np.array([5, 0, 0, 2])
    entering = EnteringRows(np.arange(4), np.zeros(4, np.int64), seconds, np.arange(4), seconds)
    with lots_of(1, BY_TILE):
        found = tiles_of(entering, WindowRanges.of(seconds - 2, np.full(4, 3)))
    assert found is not None
    assert [found.entries.tolist(), found.starts.tolist()] == [[1, 2, 3, 0], [0, 2, 3]]
    assert found.windows.ids.tolist() == [-2, -1, 0, 1, 2, 3, 4, 5]
    assert found.runs.first.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert found.runs.counts.tolist() == [1, 1, 2, 1, 1, 1, 1, 1]


def test_windows_of_one_value_do_not_use_tiles() -> None:
    entering = EnteringRows(*(np.arange(3) for _ in range(5)))
    assert tiles_of(entering, WindowRanges.of(np.arange(3), np.full(3, 9))) is None


def logic_of(windower: Windower[Any], aggregator: Any, emit: Emit = "close") -> ShardLogic:
    config = DriverBuilder(
        win.EventClock("ts", "1h"),
        windower,
        FoldingBuilder(aggregator, emit),
        ordered=False,
        emit=emit,
    )
    lowering = config.lower()
    assert isinstance(lowering, OverColumns)
    return lowering.shard_logic()


def epoch_of(count: int, from_us: int) -> ShardRows:
    """So many values of one key, a millisecond apart."""
    rows = np.arange(count)
    times = pa.array(from_us + rows * 1000, pa.timestamp("us", tz="UTC"))
    values = pa.RecordBatch.from_pydict({"ts": times, "n": rows})
    return ShardRows(pa.array(["a"]), np.array([count]), rows, rows, values)


def epoch_reading(*ports: int) -> ShardEpoch:
    now = Moment(START_US)
    return ShardEpoch(now, end_of_input=False, wanted=frozenset(ports))


def room_for(work: Callable[[], object]) -> int:
    """The most bytes that work takes at a time, besides those taken already."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("least", [BY_TILE, ONE_BY_ONE], ids=["by tile", "one by one"])
@pytest.mark.parametrize("aggregator", [win.Count(), win.Sum("n"), win.Last("n")], ids=repr)
def test_memory_for_values_of_many_windows_is_bounded_by_a_chunk(
    aggregator: win.Aggregator[Any, Any, Any], least: int
) -> None:
    # 10,000 values in 1,440 windows each: 14.4 million pairs, whose numbers alone are 115 MB.
    logic, rows = logic_of(DAY_OF_MINUTES, aggregator), epoch_of(10_000, START_US)
    with mock.patch.object(indexed_windows, "_LEAST", least):
        assert room_for(lambda: logic.run(rows, epoch_reading(DOWN, CLOSED))) < 40 * MEGABYTE


def test_missed_windows_take_no_memory_if_late_values_are_unread() -> None:
    logic = logic_of(DAY_OF_MINUTES, win.Count())
    logic.run(epoch_of(1, START_US), epoch_reading())
    two_days_us = 2 * 86_400_000_000
    late = epoch_of(10_000, START_US - two_days_us)
    unread: list[int] = []
    room = room_for(lambda: unread.extend(logic.run(late, epoch_reading(DOWN)).unread))
    assert unread[LATE] == 10_000
    assert room < 40 * MEGABYTE
