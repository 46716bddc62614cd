"""Count windows over columns, compared with key by key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flow import Dataflow
from flow.instants import NEVER
from flow.keyed.step import OverColumns
from flow.testing import TestDriver
from flow_windowing import Collect, Count, CountWindower, EventClock, Last, Mean, SystemClock
from flow_windowing.aggregates.folding import FoldingBuilder
from flow_windowing.columnar.state.open_windows import OpenWindows
from flow_windowing.columnar.state.shard_state import ShardState
from flow_windowing.columnar.state.spans import Spans
from flow_windowing.columnar.windows.count_windows import CountWindows
from flow_windowing.lowering import DriverBuilder
from tests.support.sampling import sampled
from tests.support.window_flow import START, check_paths_agree, on_path, records, window_flow
from tests.support.windowed_flows import in_epochs

AGGREGATES = {"n": Count(), "numbers": Collect("n"), "last": Last("n"), "mean": Mean("n")}


def counting_flow(
    clock: Any, windower: CountWindower, ordered: bool = False, timestamp: Any = "last"
) -> Dataflow:
    return window_flow(clock, windower, AGGREGATES, ordered=ordered, timestamp=timestamp)


PATIENT = EventClock("ts", "10m")
moments = st.tuples(st.sampled_from(["a", "a", "b"]), st.integers(0, 30))
epochs_of_moments = st.lists(st.lists(moments, max_size=9), max_size=4)
flows = st.builds(
    counting_flow,
    st.sampled_from([SystemClock(), PATIENT, EventClock("ts", "3s", forget_after="1m")]),
    st.builds(CountWindower, st.integers(1, 5), st.sampled_from([None, 1, 2, 4, 7]), st.booleans()),
    st.booleans(),
)


@sampled(200, by_default=50)
@given(flows, epochs_of_moments, st.lists(st.booleans(), min_size=5, max_size=5))
@example(
    counting_flow(PATIENT, CountWindower(3, 2)), [[("a", 1)] * 4, [("a", 9)], []], [False, True] * 3
)
def test_count_windows_agree_with_key_by_key_also_over_changes_of_path(
    flow: Dataflow, epochs: list[list[tuple[str, int]]], ways: list[bool]
) -> None:
    def play(t: TestDriver, epoch: list[tuple[str, int]]) -> None:
        t.send("in", records(epoch, 1))
        t.advance("20s")

    check_paths_agree(flow, epochs, ways, play)


def numbers_in(flow: Dataflow, *epochs: list[int], drain: bool = True) -> list[Any]:
    """Id, first and last second, and the numbers in each window of one key."""
    with TestDriver(flow, now=START) as t:
        first = 1
        for epoch in epochs:
            t.send("in", records([("a", second) for second in epoch], first))
            first += len(epoch)
        if drain:
            t.end()
        return [
            (
                one.window_id,
                (one.open_time - START).seconds,
                (one.close_time - START).seconds,
                value["numbers"],
            )
            for _, (one, value) in t.received("down")
        ]


def test_windows_of_four_open_every_two_values() -> None:
    flow = counting_flow(PATIENT, CountWindower(4, 2))
    expected = [(0, 10, 40, [1, 2, 3, 4]), (1, 20, 60, [3, 4, 5, 6])]
    assert numbers_in(flow, [40, 10, 30, 20, 60, 50]) == expected
    assert numbers_in(flow, [40], [10, 30], [20, 60, 50], []) == expected


def test_partial_windows_are_emitted_at_the_end_if_configured() -> None:
    # 1 2 3 4 5:  [1 2 3 4]  [3 4 5 .]  [5 . . .]
    flow = counting_flow(PATIENT, CountWindower(4, 2, partial=True))
    expected = [(0, 1, 4, [1, 2, 3, 4]), (1, 3, 5, [3, 4, 5]), (2, 5, 5, [5])]
    assert numbers_in(flow, [1, 2, 3, 4, 5]) == expected
    assert numbers_in(flow, [1, 2, 3], [4, 5]) == expected


def test_counting_continues_after_the_partial_windows() -> None:
    # Five values seen, four a window, one every two: windows 1 and 2 are open, 3 begins at 6.
    state = ShardState.of_new_keys(pa.array(["a", "b"], pa.large_string()), ())
    state.counted_values = np.array([5, 4])
    bounds = Spans.empty(3)
    ids = np.array([1, 2, 0])
    state.windows = OpenWindows(np.array([0, 0, 1]), ids, np.zeros(3), [], bounds)
    windows = CountWindows(CountWindower(4, 2, partial=True))
    assert windows.closed_at_us(state).tolist() == [NEVER, NEVER, -NEVER]
    assert windows.counted_after(state, np.array([0, 1, 2])).tolist() == [6, 4]


def test_a_window_closes_as_soon_as_it_is_full() -> None:
    flow = counting_flow(PATIENT, CountWindower(2))
    assert numbers_in(flow, [1, 2, 3], drain=False) == [(0, 1, 2, [1, 2])]


@pytest.mark.parametrize("alone", [True, False], ids=["key by key", "over columns"])
@pytest.mark.parametrize("sizes", [[7], [1, 4, 2], [1] * 7], ids=str)
def test_a_value_behind_the_watermark_enters_at_once_before_buffered_values(
    sizes: list[int], alone: bool
) -> None:
    # second     20   12   16   8    3    30             24
    # watermark  15   15   15   15   15   25             25
    # enters          2         4    5    3 (16), 1 (20) 7
    flow = counting_flow(EventClock("ts", "5s", on_idle="hold"), CountWindower(2), ordered=True)
    epochs = in_epochs([20, 12, 16, 8, 3, 30, 24], sizes)
    with on_path(alone):
        assert numbers_in(flow, *epochs, drain=False) == [
            (0, 8, 12, [2, 4]),
            (1, 3, 16, [5, 3]),
            (2, 20, 24, [1, 7]),
        ]


@pytest.mark.parametrize("alone", [True, False], ids=["key by key", "over columns"])
@pytest.mark.parametrize("sizes", [[5], [1, 4], [1] * 5], ids=str)
def test_a_value_behind_the_watermark_enters_after_released_values(
    sizes: list[int], alone: bool
) -> None:
    # second     20   12   18   30             3
    # watermark  15   15   15   25             25
    # enters          2         3 (18), 1 (20) 5
    flow = counting_flow(EventClock("ts", "5s", on_idle="hold"), CountWindower(2), ordered=True)
    epochs = in_epochs([20, 12, 18, 30, 3], sizes)
    with on_path(alone):
        assert numbers_in(flow, *epochs, drain=False) == [
            (0, 12, 18, [2, 3]),
            (1, 3, 20, [1, 5]),
        ]


@pytest.mark.parametrize("alone", [True, False], ids=["key by key", "over columns"])
@pytest.mark.parametrize("ordered", [True, False])
def test_no_value_of_a_count_window_is_late(ordered: bool, alone: bool) -> None:
    flow = counting_flow(EventClock("ts", "0s"), CountWindower(2), ordered=ordered)
    with on_path(alone), TestDriver(flow, now=START) as t:
        t.send("in", records([("a", 50), ("a", 20)], 1))
        t.send("in", records([("a", 10), ("b", 1)], 1))
        assert t.received("late") == []
        assert t.stats.counts["w", "late"] == 0


@pytest.mark.parametrize("alone", [True, False], ids=["key by key", "over columns"])
def test_a_value_behind_the_watermark_counts_on_arrival_if_unordered(
    alone: bool,
) -> None:
    flow = counting_flow(EventClock("ts", "5s"), CountWindower(2))
    expected = [(0, 12, 20, [1, 2]), (1, 8, 16, [3, 4])]
    with on_path(alone):
        assert numbers_in(flow, [20, 12, 16], [8, 3]) == expected


@pytest.mark.parametrize("alone", [True, False], ids=["key by key", "over columns"])
def test_a_value_too_far_ahead_does_not_count(alone: bool) -> None:
    flow = counting_flow(EventClock("ts", "0s", max_ahead="10s"), CountWindower(2))
    with on_path(alone), TestDriver(flow, now=START) as t:
        t.send("in", records([("a", 5), ("a", 30), ("a", 2)], 1))
        assert [late.value["n"] for _, late in t.received("late")] == [2]
        assert [value["numbers"] for _, (_, value) in t.received("down")] == [[1, 3]]


def test_values_between_windows_are_late_and_counted() -> None:
    flow = counting_flow(PATIENT, CountWindower(2, 3))
    with TestDriver(flow, now=START) as t:
        t.send("in", records([("a", second) for second in range(7)], 1))
        late = [value.value["n"] for _, value in t.received("late")]
        assert (late, t.stats.counts["w", "gap"]) == ([3, 6], 2)


@pytest.mark.parametrize(
    ("count", "step", "ordered", "at_once"),
    [(3, 1, True, True), (3, 4, False, True), (3, 4, True, False), (1000, 1, False, False)],
    ids=["overlapping", "gaps", "gaps in order of time", "a thousand windows a value"],
)
def test_lowering_of_count_windows(count: int, step: int, ordered: bool, at_once: bool) -> None:
    windower, folding = CountWindower(count, step), FoldingBuilder(Count(), "close")
    config = DriverBuilder(PATIENT, windower, folding, ordered=ordered)
    assert isinstance(config.lower(), OverColumns) == at_once
