"""Sessions over columns, compared with key by key, also where sessions merge."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.columns.chunks import rows_as_dicts
from flow.columns.row_views import view_of
from flow.errors import StepError
from flow.keyed.step import OverColumns
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key
from flow_windowing import Collect, Count, EventClock, SessionWindower, StdDev, Sum
from flow_windowing.aggregates.folding import FoldingBuilder
from flow_windowing.columnar.state.spans import merged_ids_column
from flow_windowing.columnar.windows.window_view import WindowView
from flow_windowing.lowering import DriverBuilder
from tests.support.sampling import sampled
from tests.support.window_flow import (
    SCHEMA,
    START,
    add_outputs,
    on_path,
    results_by_key,
    window_flow,
)

START_US = int(START.timestamp()) * 1_000_000


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def numbered(seconds: list[tuple[str, int]], first: int = 0) -> list[dict[str, Any]]:
    return [
        {"user": user, "ts": at(second), "n": number}
        for number, (user, second) in enumerate(seconds, first)
    ]


def records(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def dicts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return rows_as_dicts(records(rows))


def sessions(
    wait: str = "1m",
    gap: str = "5s",
    grace: Any = None,
    ordered: bool = False,
    what: str = "all",
    inclusive: bool = True,
) -> Dataflow:
    clock = EventClock("ts", wait)
    windower = SessionWindower(gap, inclusive, grace)
    if what != "fold":
        aggregates = AGGREGATES if what == "all" else {"n": Count(), "total": Sum("n")}
        return window_flow(clock, windower, aggregates, ordered=ordered, timestamp="last")
    made = Dataflow("sessions")
    stream = op.key_on("key", op.input("in", made, TestingSource([])), "user")
    add_outputs(
        win.fold_window("w", stream, clock, windower, list, _append, _both, ordered=ordered)
    )
    return made


AGGREGATES: dict[str, Any] = {
    "n": Count(),
    "total": Sum("n"),
    "numbers": Collect("n"),
    "spread": StdDev("n"),
}


def _append(held: list[Any], value: Any) -> list[Any]:
    return [*held, value["n"]]


def _both(left: list[Any], right: list[Any]) -> list[Any]:
    return [*left, "and", *right]


def outcome(flow: Dataflow, epochs: list[list[tuple[str, int]]], form: Any) -> dict[str, Any]:
    with TestDriver(flow, now=START) as t:
        first = 0
        for epoch in epochs:
            t.send("in", form(numbered(epoch, first)))
            first += len(epoch)
        t.end()
        return results_by_key(t)


def summary(flow: Dataflow, *epochs: list[int]) -> list[tuple[Any, ...]]:
    """Of each session of one key: id, first and last second, ids merged, how many, their sum."""
    with TestDriver(flow, now=START) as t:
        first = 1
        for epoch in epochs:
            t.send("in", records(numbered([("a", second) for second in epoch], first)))
            first += len(epoch)
        t.end()
        return [
            (
                (window.window_id - START_US) // 1_000_000,
                (window.open_time - START).seconds,
                (window.close_time - START).seconds,
                sorted((one - START_US) // 1_000_000 for one in window.merged_ids),
                figures["n"],
                figures["total"],
            )
            for _, (window, figures) in t.received("down")
        ]


moments = st.one_of(st.integers(0, 25), st.integers(0, 120))
epochs_of_moments = st.lists(
    st.lists(st.tuples(st.sampled_from(["a", "a", "b"]), moments), max_size=12), max_size=4
)
flows = st.builds(
    sessions,
    st.sampled_from(["0s", "10s", "1m", "10m"]),
    st.sampled_from(["1s", "3s", "5s"]),
    st.sampled_from([None, None, "0s", "4s", "30s"]),
    st.booleans(),
    st.sampled_from(["all", "fold", "numbers"]),
    st.booleans(),
)


@sampled(250, by_default=60)
@given(flows, epochs_of_moments, st.sampled_from([records, dicts]))
def test_sessions_over_columns_agree_with_key_by_key(
    flow: Dataflow, epochs: list[list[tuple[str, int]]], form: Any
) -> None:
    with key_by_key():
        expected = outcome(flow, epochs, dicts)
    assert outcome(flow, epochs, form) == expected


@sampled(150, by_default=35)
@given(flows, epochs_of_moments, st.lists(st.booleans(), min_size=4, max_size=4))
@example(sessions(), [[("a", 0)], [("a", 8)], [("a", 4)], [("a", 20)]], [False, True, False, True])
def test_state_of_sessions_survives_changes_of_path(
    flow: Dataflow, epochs: list[list[tuple[str, int]]], ways: list[bool]
) -> None:
    with key_by_key():
        expected = outcome(flow, epochs, dicts)
    with TestDriver(flow, now=START) as t:
        first = 0
        for epoch, alone in zip(epochs, ways, strict=False):
            form = dicts if alone else records
            with on_path(alone):
                t.send("in", form(numbered(epoch, first)))
            first += len(epoch)
        t.end()
        assert results_by_key(t) == expected


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("grace", [None, "5s"])
def test_lowering_of_sessions(ordered: bool, grace: Any) -> None:
    config = DriverBuilder(
        EventClock("ts", "0s"),
        SessionWindower("5s", grace=grace),
        FoldingBuilder(Count(), "close"),
        ordered=ordered,
    )
    assert isinstance(config.lower(), OverColumns) == (grace is None or not ordered)


# Gap 5 s, seconds on the line; each session's id is where it opened, its merged ids in brackets.


def test_a_value_between_two_sessions_merges_them() -> None:
    # 0 . . . 4 . . . 8       4 comes last: 0..8 [8]
    numbers = sessions(what="numbers")
    assert summary(numbers, [0, 8, 4]) == [(0, 0, 8, [8], 3, 6)]
    assert summary(numbers, [0, 8], [4]) == [(0, 0, 8, [8], 3, 6)]


def test_merged_ids_are_kept_over_several_merges() -> None:
    # 0 . . . 4 . . . 8 . . . 12 . . . 16
    numbers = sessions(what="numbers")
    assert summary(numbers, [16, 8, 0], [12], [4]) == [(0, 0, 16, [8, 16], 5, 15)]
    assert summary(numbers, [16, 8, 0, 12, 4]) == [(0, 0, 16, [8, 16], 5, 15)]


@pytest.mark.parametrize(
    ("inclusive", "expected"),
    [(True, [(0, 0, 5, [], 2, 3)]), (False, [(0, 0, 0, [], 1, 1), (5, 5, 5, [], 1, 2)])],
)
def test_values_exactly_a_gap_apart_share_a_session_if_inclusive(
    inclusive: bool, expected: list[tuple[Any, ...]]
) -> None:
    flow = sessions(what="numbers", inclusive=inclusive)
    assert summary(flow, [0, 5]) == expected
    assert summary(flow, [0], [5]) == expected


def test_an_earlier_value_that_joins_does_not_change_the_id() -> None:
    assert summary(sessions(what="numbers"), [10, 7, 12]) == [(10, 7, 12, [], 3, 6)]


def test_values_in_order_of_time_never_merge_sessions() -> None:
    ordered = sessions(what="numbers", ordered=True)
    assert summary(ordered, [0, 8, 4], [20]) == [(0, 0, 8, [], 3, 6), (20, 20, 20, [], 1, 4)]


def test_sessions_close_between_values_of_one_epoch() -> None:
    # wait 0: 100 closes 0..4; a value at 3 is late then, and its session is one of its own.
    flow = sessions(wait="0s", what="numbers")
    with TestDriver(flow, now=START) as t:
        t.send("in", records(numbered([("a", 0), ("a", 4), ("a", 100), ("a", 3)])))
        (late,) = t.received("late")
        (closed,) = t.received("closed")
    assert (closed[1].open_time, closed[1].close_time) == (at(0), at(4))
    assert (late[1].window.open_time, late[1].window.close_time) == (at(3), at(3))


def test_a_value_behind_the_watermark_joins_an_open_session() -> None:
    # wait 0, gap 5, grace 20: at 24 the session 0..4 is open still, at 40 it is not.
    flow = sessions(wait="0s", grace="20s", what="numbers")
    assert summary(flow, [0, 4, 24, 3]) == [(0, 0, 4, [], 3, 7), (24, 24, 24, [], 1, 3)]
    assert summary(flow, [0, 4, 40, 3]) == [(0, 0, 4, [], 2, 3), (40, 40, 40, [], 1, 3)]


def test_folds_are_merged_when_their_windows_merge() -> None:
    with TestDriver(sessions(what="fold"), now=START) as t:
        t.send("in", records(numbered([("a", 0), ("a", 8), ("a", 9), ("a", 4), ("a", 5)])))
        t.end()
        ((_, (_, value)),) = t.received("down")
    assert value == [0, "and", 1, 2, 3, 4]


def test_a_merger_that_fails_stops_the_flow_and_names_the_key() -> None:
    def fail(left: Any, right: Any) -> Any:
        raise ValueError("no merging here")

    made = Dataflow("failing")
    stream = op.key_on("key", op.input("in", made, TestingSource([])), "user")
    clock, windower = EventClock("ts", "1m"), SessionWindower("5s")
    out = win.fold_window("w", stream, clock, windower, list, _append, fail, ordered=False)
    op.output("down", out.down, TestingSink([]))
    with TestDriver(made, now=START) as t, pytest.raises(StepError) as raised:
        t.send("in", records(numbered([("b", 0), ("a", 0), ("a", 8), ("a", 4)])))
    assert (raised.value.step_id, raised.value.key) == ("w", "a")
    assert "no merging here" in str(raised.value)


def test_records_of_sessions_have_their_merged_ids_as_a_column() -> None:
    bounds = np.array([1, 5]), np.array([3, 9])
    merged = merged_ids_column([(), (7, 8)])
    batch = WindowView(None).records(np.array([1, 5]), bounds, None, (), merged)
    view = view_of(batch)
    assert view is not None
    assert view.columns(batch)["merged_ids"].to_pylist() == [[], [7, 8]]
    assert [one.merged_ids for one in view.values(batch)] == [frozenset(), frozenset({7, 8})]
