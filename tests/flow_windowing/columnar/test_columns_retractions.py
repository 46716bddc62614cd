"""Emitted results of windows over columns: their order, and their retraction from state."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flow.columns.chunks import KeyedRecords, Pairs, as_pairs
from flow.instants import Moment
from flow.keyed.shard_logic import ShardEpoch, ShardLogic, ShardOutput, ShardRows
from flow.keyed.step import OverColumns
from flow_windowing import Count, EventClock, Retracted, SessionWindower, SlidingWindower
from flow_windowing.aggregates.folding import FoldingBuilder
from flow_windowing.columnar.state.segments import SegmentContent
from flow_windowing.columnar.state.snapshots import split_by_key
from flow_windowing.lowering import DriverBuilder
from flow_windowing.rules.metadata import DOWN
from tests.support.columns import as_records, rows_at
from tests.support.window_flow import START

GAP_5 = SessionWindower("5s")
START_US = int(START.timestamp()) * 1_000_000


def test_only_retractions_are_emitted_as_objects() -> None:
    # b's session at 10 closes in the epoch in which a takes one back
    logic = logic_that_emits("epoch")
    run_epoch(logic, a=[10, 20], b=[10])
    retractions, closing, changed = run_epoch(logic, a=[15], b=[100]).chunks[DOWN]
    assert isinstance(retractions, Pairs)
    assert isinstance(closing, KeyedRecords)
    assert isinstance(changed, KeyedRecords)
    assert retractions.keys == ["a"]
    assert closing.keys.to_pylist() == ["b"]
    assert changed.keys.to_pylist() == ["a", "b"]


@pytest.mark.parametrize("emit", ["epoch", "update"])
def test_sessions_opened_with_emit_close_are_not_retracted(
    emit: str,
) -> None:
    before, after = logic_that_emits("close"), logic_that_emits(emit)
    assert counts_by_window(run_epoch(before, a=[10, 20])) == []
    copy_state(before, after)
    assert counts_by_window(run_epoch(after, a=[15])) == [(10, 3)]


def test_keys_of_loaded_segments_keep_their_emitted_results() -> None:
    before, after = logic_that_emits("epoch"), logic_that_emits("epoch")
    run_epoch(before, b=[10, 20])
    run_epoch(after, a=[10, 20])
    copy_state(before, after)
    retractions = [(20, Retracted(1)), (20, Retracted(1))]
    assert counts_by_window(run_epoch(after, a=[15], b=[15])) == [*retractions, (10, 3), (10, 3)]


def test_a_key_split_off_its_segment_keeps_its_emitted_results() -> None:
    before, after = logic_that_emits("epoch"), logic_that_emits("epoch")
    run_epoch(before, a=[10, 20], b=[10])
    for _, alone, _ in split_by_key(SegmentContent.decode(state_bytes(before))):
        after.load(alone)
    assert counts_by_window(run_epoch(after, a=[15])) == [(20, Retracted(1)), (10, 3)]


def test_a_resumed_run_retracts_earlier_results() -> None:
    before, after = logic_that_emits("epoch"), logic_that_emits("epoch")
    assert counts_by_window(run_epoch(before, a=[10, 20])) == [(10, 1), (20, 1)]
    copy_state(before, after)
    assert counts_by_window(run_epoch(after, a=[15])) == [(20, Retracted(1)), (10, 3)]


def test_sessions_changed_with_emit_close_are_not_retracted() -> None:
    first, then, last = (logic_that_emits(emit) for emit in ("epoch", "close", "epoch"))
    run_epoch(first, a=[10, 20])
    copy_state(first, then)
    run_epoch(then, a=[21])
    copy_state(then, last)
    assert counts_by_window(run_epoch(last, a=[15])) == [(10, 4)]


def logic_that_emits(
    emit: Any, windower: Any = GAP_5, wait: str = "1m", ordered: bool = False
) -> ShardLogic:
    """Return the logic of a step that counts the values of windows."""
    builder = FoldingBuilder(Count(), emit)
    lowering = DriverBuilder(EventClock("ts", wait), windower, builder, ordered, emit=emit).lower()
    assert isinstance(lowering, OverColumns)
    return lowering.shard_logic()


def run_epoch(logic: ShardLogic, now: int = 0, **seconds: list[int]) -> ShardOutput:
    """Run an epoch of values of some keys."""
    values = as_records(rows_at([(key, at) for key, of_key in seconds.items() for at in of_key]))
    order = np.arange(values.num_rows)
    counts = np.array([len(of_key) for of_key in seconds.values()])
    rows = ShardRows(pa.array(list(seconds)), counts, order, order, values)
    moment = Moment(START_US + now * 1_000_000)
    return logic.run(rows, ShardEpoch(moment, False, frozenset({DOWN})))


def counts_by_window(made: ShardOutput) -> list[tuple[int, Any]]:
    """Return the open second and the count of each emitted window."""
    return [
        ((window.open_time - START) // timedelta(seconds=1), value)
        for chunk in made.chunks[DOWN]
        for window, value in as_pairs(chunk, "w").values
    ]


def copy_state(before: ShardLogic, after: ShardLogic) -> None:
    """Load the state of `before` into `after`."""
    after.load(state_bytes(before))


def state_bytes(logic: ShardLogic) -> bytes:
    """All that is kept, as one segment."""
    (segment,) = logic.dump(np.zeros(len(logic.keys()), np.int64), [0])
    assert segment.content is not None
    return segment.content


def test_values_released_by_time_and_by_values_of_one_epoch_change_a_window_once() -> None:
    # wait 20, length 20, one every 5.  In the second epoch time releases 1 2 3 12, then 36 does 16:
    # windows -15 to -5 close on the way, and those from 0 on have changed, 15 being new.
    logic = logic_that_emits("epoch", SlidingWindower("20s", "5s"), "20s", ordered=True)
    assert counts_by_window(run_epoch(logic, a=[1, 2, 3, 12, 16])) == []
    closed = [(-15, 3), (-10, 3), (-5, 4)]
    found = counts_by_window(run_epoch(logic, 19, a=[36]))
    assert found == [*closed, (0, 5), (5, 2), (10, 2), (15, 1)]
    assert counts_by_window(run_epoch(logic, 19, a=[36])) == []
