"""Windows over columns that emit before they close: once an epoch, or at every value."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow import Dataflow
from flow.columns.chunks import as_pairs
from flow.instants import Moment
from flow.keyed.shard_logic import ShardEpoch, ShardLogic, ShardRows
from flow.keyed.step import OverColumns
from flow.testing import TestDriver
from flow_windowing import (
    Count,
    CountWindower,
    EventClock,
    SessionWindower,
    SlidingWindower,
    TumblingWindower,
)
from flow_windowing.aggregates.folding import FoldingBuilder
from flow_windowing.lowering import DriverBuilder
from flow_windowing.rules.streams import DOWN
from tests.support.emitting import (
    AT_ONCE,
    NUMBERS,
    OTHERS,
    PATIENT,
    emitting,
)
from tests.support.sampling import sampled
from tests.support.window_flow import START, check_paths_agree, records


def emit_epoch(t: TestDriver, *seconds: int) -> list[tuple[int, int]]:
    """Send an epoch of values of one key, and return each emitted window's open second and sum."""
    t.send("in", records([("a", second) for second in seconds]))
    down = t.take("down")
    return [((one.open_time - START).seconds, value["total"]) for _, (one, value) in down]


moments = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 40))
epochs_of_moments = st.lists(st.lists(moments, max_size=8), max_size=4)
flows = st.builds(
    emitting,
    st.sampled_from([AT_ONCE, PATIENT, EventClock("ts", "8s")]),
    st.sampled_from(
        [
            TumblingWindower("10s"),
            TumblingWindower("10s", grace="15s"),
            SlidingWindower("20s", "5s"),
            SlidingWindower("20s", "5s", grace="5s"),
            CountWindower(3, 2),
            SessionWindower("4s"),
            SessionWindower("4s", inclusive=False, grace="5s"),
        ]
    ),
    st.sampled_from([NUMBERS, OTHERS]),
    st.booleans(),
    st.sampled_from(["epoch", "update"]),
    st.sampled_from([None, "last"]),
)


@sampled(150, by_default=35)
@given(flows, epochs_of_moments, st.lists(st.booleans(), min_size=4, max_size=4))
def test_emissions_agree_with_key_by_key_also_over_changes_of_path(
    flow: Dataflow, epochs: list[list[tuple[str, int]]], ways: list[bool]
) -> None:
    def play(t: TestDriver, epoch: list[tuple[str, int]]) -> None:
        t.send("in", records(epoch))
        t.advance("6s")

    check_paths_agree(flow, epochs, ways, play)


def test_changed_windows_emit_in_order_of_their_first_change() -> None:
    # epochs:  12 5 13 25  |  3  |  (nothing)
    with TestDriver(emitting(PATIENT, TumblingWindower("10s"), NUMBERS), now=START) as t:
        assert emit_epoch(t, 12, 5, 13, 25) == [(10, 25), (0, 5), (20, 25)]
        assert emit_epoch(t, 3) == [(0, 8)]
        assert emit_epoch(t) == []


def test_a_window_that_closes_in_the_epoch_that_changed_it_emits_once() -> None:
    with TestDriver(emitting(AT_ONCE, TumblingWindower("10s"), NUMBERS), now=START) as t:
        assert emit_epoch(t, 1, 12) == [(0, 1), (10, 12)]
        assert emit_epoch(t, 15, 25) == [(10, 27), (20, 25)]


def test_every_value_emits_an_update_of_each_of_its_windows() -> None:
    flow = emitting(PATIENT, SlidingWindower("20s", "10s"), NUMBERS, emit="update")
    with TestDriver(flow, now=START) as t:
        assert emit_epoch(t, 25, 12) == [(10, 25), (20, 25), (0, 12), (10, 37)]
        assert emit_epoch(t, 15) == [(0, 27), (10, 52)]
        t.end()
        assert t.received("down") == []


def test_an_earlier_value_does_not_change_the_last_timestamp() -> None:
    flow = emitting(PATIENT, TumblingWindower("10s"), NUMBERS, emit="update", timestamp="last")
    with TestDriver(flow, now=START) as t:
        t.send("in", records([("a", second) for second in (5, 3, 7)]))
        t.send("in", records([("a", 1)]))
        last = [(one.timestamp - START).seconds for _, (one, _) in t.received("down")]
    assert last == [5, 5, 7, 7]


def test_ordered_values_change_a_window_once_the_watermark_passes_them() -> None:
    flow = emitting(EventClock("ts", "5s"), TumblingWindower("10s"), NUMBERS, ordered=True)
    with TestDriver(flow, now=START) as t:
        assert emit_epoch(t, 3, 7) == []
        assert emit_epoch(t, 9) == [(0, 3)]


def run_epoch(logic: ShardLogic, at_second: int, *seconds: int) -> list[tuple[int, int]]:
    """Run an epoch of one key at a time, and return each window's open second and result."""
    values = records([("a", second) for second in seconds])
    order = np.arange(len(seconds))
    rows = ShardRows(pa.array(["a"]), np.array([len(seconds)]), order, order, values)
    moment = Moment(int((START + timedelta(seconds=at_second)).timestamp() * 1_000_000))
    made = logic.run(rows, ShardEpoch(moment, moment, False, frozenset({DOWN})))
    return [
        ((one.open_time - START) // timedelta(seconds=1), value)
        for chunk in made.chunks[DOWN]
        for one, value in as_pairs(chunk, "w").values
    ]


def test_values_released_by_time_and_by_values_of_one_epoch_change_a_window_once() -> None:
    # wait 20, length 20, one every 5.  In the second epoch time releases 1 2 3 12, then 36 does 16:
    # windows -15 to -5 close on the way, and those from 0 on have changed, 15 being new.
    config = DriverBuilder(
        EventClock("ts", "20s"),
        SlidingWindower("20s", "5s"),
        FoldingBuilder(Count(), "epoch"),
        emit="epoch",
    )
    lowering = config.lower()
    assert isinstance(lowering, OverColumns)
    logic = lowering.shard_logic()
    assert run_epoch(logic, 0, 1, 2, 3, 12, 16) == []
    closed = [(-15, 3), (-10, 3), (-5, 4)]
    assert run_epoch(logic, 19, 36) == [*closed, (0, 5), (5, 2), (10, 2), (15, 1)]
    assert run_epoch(logic, 19, 36) == []


@pytest.mark.parametrize(
    ("windower", "emit", "at_once"),
    [
        (TumblingWindower("10s"), "epoch", True),
        (CountWindower(3), "epoch", True),
        (SessionWindower("10s"), "epoch", True),
        (TumblingWindower("10s"), "update", True),
        (CountWindower(3), "update", True),
        (SessionWindower("10s"), "update", True),
    ],
)
def test_lowering_of_windows_that_emit_early(windower: Any, emit: Any, at_once: bool) -> None:
    config = DriverBuilder(
        PATIENT, windower, FoldingBuilder(Count(), emit), ordered=False, emit=emit
    )
    assert isinstance(config.lower(), OverColumns) == at_once
