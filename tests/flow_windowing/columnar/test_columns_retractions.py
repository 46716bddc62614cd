"""Retractions of sessions over columns that emit before they close."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.columns.chunks import KeyedRecords, Pairs, as_pairs
from flow.errors import StepError
from flow.instants import Moment
from flow.keyed.shard_logic import ShardEpoch, ShardLogic, ShardOutput, ShardRows
from flow.keyed.step import OverColumns
from flow.testing import TestDriver, TestingSink, TestingSource
from flow_windowing import (
    Collect,
    Count,
    EventClock,
    Last,
    Mean,
    Min,
    Retracted,
    SessionWindower,
)
from flow_windowing.aggregates.folding import FoldingBuilder
from flow_windowing.columnar.storage.segments import SegmentContent
from flow_windowing.columnar.storage.snapshots import split_by_key
from flow_windowing.lowering import DriverBuilder
from flow_windowing.rules.streams import DOWN
from tests.support.emitting import (
    NUMBERS,
    OTHERS,
    emitting,
)
from tests.support.sampling import sampled
from tests.support.window_flow import START, check_paths_agree, records

START_US = int(START.timestamp()) * 1_000_000
PATIENT = EventClock("ts", "1m")
WANTED = frozenset({DOWN})
GAP_5 = SessionWindower("5s")
FIGURES = {
    "n": Count(),
    "mean": Mean("n"),
    "least": Min("n"),
    "last": Last("n"),
    "all": Collect("n"),
}


def emit_epoch(t: TestDriver, *seconds: int) -> list[tuple[int, Any]]:
    """Send an epoch of values of one key; return the id in seconds and sum of each session."""
    t.send("in", records([("a", second) for second in seconds]))
    down = t.take("down")
    return [((one.window_id - START_US) // 1_000_000, _total(value)) for _, (one, value) in down]


def _total(value: Any) -> Any:
    return Retracted(value.value["total"]) if type(value) is Retracted else value["total"]


moments = st.tuples(st.sampled_from(["a", "a", "b"]), st.integers(0, 60))
epochs_of_moments = st.lists(st.lists(moments, max_size=10), max_size=5)
clocks = [EventClock("ts", wait) for wait in ("0s", "8s", "20s", "1m")]
flows = st.builds(
    emitting,
    st.sampled_from([*clocks, EventClock("ts", "15s", scope="stream")]),
    st.sampled_from(
        [
            SessionWindower("4s"),
            SessionWindower("8s"),
            SessionWindower("3s", inclusive=False, grace="5s"),
            SessionWindower("5s", grace="0s"),
        ]
    ),
    st.sampled_from([NUMBERS, OTHERS, FIGURES]),
    st.sampled_from([False, False, True]),
    st.sampled_from(["epoch", "update"]),
    st.sampled_from([None, "last", "close"]),
)


@sampled(250, by_default=60)
@given(flows, epochs_of_moments, st.lists(st.booleans(), min_size=5, max_size=5), st.booleans())
@example(
    emitting(PATIENT, GAP_5, NUMBERS), [[("a", 10), ("a", 20)], [("a", 15)]], [True, False], False
)
@example(
    emitting(PATIENT, GAP_5, NUMBERS), [[("a", 10), ("a", 20)], [("a", 15)]], [False, True], False
)
def test_emissions_and_retractions_agree_with_key_by_key(
    flow: Dataflow, epochs: list[list[tuple[str, int]]], ways: list[bool], time_passes: bool
) -> None:
    def play(t: TestDriver, epoch: list[tuple[str, int]]) -> None:
        t.send("in", records(epoch))
        if time_passes:
            t.advance("6s")

    check_paths_agree(flow, epochs, ways, play)


def test_a_retraction_precedes_the_update_of_the_merged_session() -> None:
    # gap 5:   10 . . . . 20   then 15, then 16
    with TestDriver(emitting(PATIENT, GAP_5, NUMBERS, emit="update"), now=START) as t:
        assert emit_epoch(t, 10, 20) == [(10, 10), (20, 20)]
        assert emit_epoch(t, 15) == [(20, Retracted(20)), (10, 45)]
        assert emit_epoch(t, 16) == [(10, 61)]
        t.end()
        assert t.received("down") == []


def test_a_session_that_never_emitted_is_not_retracted() -> None:
    # epochs:  10  |  20 15
    with TestDriver(emitting(PATIENT, GAP_5, NUMBERS), now=START) as t:
        assert emit_epoch(t, 10) == [(10, 10)]
        assert emit_epoch(t, 20, 15) == [(10, 45)]
    # epochs:  10 20  |  15
    with TestDriver(emitting(PATIENT, GAP_5, NUMBERS), now=START) as t:
        assert emit_epoch(t, 10, 20) == [(10, 10), (20, 20)]
        assert emit_epoch(t, 15) == [(20, Retracted(20)), (10, 45)]


def test_a_retraction_holds_the_result_emitted_before_the_epoch() -> None:
    # epochs:  10 20  |  22 15: that 22 had joined 20 was never said
    with TestDriver(emitting(PATIENT, GAP_5, NUMBERS), now=START) as t:
        emit_epoch(t, 10, 20)
        assert emit_epoch(t, 22, 15) == [(20, Retracted(20)), (10, 67)]


def test_retractions_and_closes_are_in_order_of_the_watermark() -> None:
    # wait 20, gap 5; 0 16 22 take the watermark to 2, and 30 to 10, past the end of 0..0
    flow = emitting(EventClock("ts", "20s"), GAP_5, NUMBERS)
    with TestDriver(flow, now=START) as t:
        emit_epoch(t, 0, 16, 22)
        assert emit_epoch(t, 30, 19) == [(0, 0), (22, Retracted(22)), (30, 30), (16, 57)]
    with TestDriver(flow, now=START) as t:
        emit_epoch(t, 0, 16, 22)
        assert emit_epoch(t, 19, 30) == [(22, Retracted(22)), (0, 0), (16, 57), (30, 30)]


def test_closes_precede_retractions_of_the_same_watermark() -> None:
    # wait 20, gap 5, a gap being enough; 30 takes the watermark to 10, at which 5..5 closes
    windower = SessionWindower("5s", inclusive=False)
    with TestDriver(emitting(EventClock("ts", "20s"), windower, NUMBERS), now=START) as t:
        emit_epoch(t, 5, 16, 22)
        assert emit_epoch(t, 30, 19) == [(5, 5), (22, Retracted(22)), (30, 30), (16, 57)]


def test_retractions_of_one_watermark_are_in_order_of_values() -> None:
    # epochs:  10 20 40 50  |  21, then 45 makes 40 and 50 one, then 15 does so with 10 and 20
    with TestDriver(emitting(PATIENT, GAP_5, NUMBERS), now=START) as t:
        emit_epoch(t, 10, 20, 40, 50)
        retractions = [(50, Retracted(50)), (20, Retracted(20))]
        assert emit_epoch(t, 21, 45, 15) == [*retractions, (40, 135), (10, 66)]


def test_merged_ids_are_passed_on_to_the_merged_session() -> None:
    # gap 5:   0 . . . 8 . . . 16     then 12 joins the last two, and 4 both with the first
    with TestDriver(emitting(PATIENT, GAP_5, NUMBERS, emit="update"), now=START) as t:
        t.send("in", records([("a", second) for second in (0, 8, 16, 12, 4)]))
        merged = [
            sorted((one - START_US) // 1_000_000 for one in window.merged_ids)
            for _, (window, _) in t.received("down")
        ]
    assert merged == [[], [], [], [], [16], [16], [8, 16]]


def test_the_order_of_updates_does_not_depend_on_absorbed_sessions() -> None:
    # epochs:  10 30  |  20, of its own; then 32 joins 30; then 15 makes 10 and 20 one
    with TestDriver(emitting(PATIENT, GAP_5, NUMBERS), now=START) as t:
        emit_epoch(t, 10, 30)
        assert emit_epoch(t, 20, 32, 15) == [(30, 62), (10, 45)]


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
    assert counts_by_session(run_epoch(before, a=[10, 20])) == []
    copy_state(before, after)
    assert counts_by_session(run_epoch(after, a=[15])) == [(10, 3)]


def test_keys_of_loaded_segments_keep_their_emitted_results() -> None:
    before, after = logic_that_emits("epoch"), logic_that_emits("epoch")
    run_epoch(before, b=[10, 20])
    run_epoch(after, a=[10, 20])
    copy_state(before, after)
    retractions = [(20, Retracted(1)), (20, Retracted(1))]
    assert counts_by_session(run_epoch(after, a=[15], b=[15])) == [*retractions, (10, 3), (10, 3)]


def test_a_key_split_off_its_segment_keeps_its_emitted_results() -> None:
    before, after = logic_that_emits("epoch"), logic_that_emits("epoch")
    run_epoch(before, a=[10, 20], b=[10])
    for _, alone, _ in split_by_key(SegmentContent.decode(state_bytes(before))):
        after.load(alone)
    assert counts_by_session(run_epoch(after, a=[15])) == [(20, Retracted(1)), (10, 3)]


def test_a_resumed_run_retracts_earlier_results() -> None:
    before, after = logic_that_emits("epoch"), logic_that_emits("epoch")
    assert counts_by_session(run_epoch(before, a=[10, 20])) == [(10, 1), (20, 1)]
    copy_state(before, after)
    assert counts_by_session(run_epoch(after, a=[15])) == [(20, Retracted(1)), (10, 3)]


def test_sessions_changed_with_emit_close_are_not_retracted() -> None:
    first, then, last = (logic_that_emits(emit) for emit in ("epoch", "close", "epoch"))
    run_epoch(first, a=[10, 20])
    copy_state(first, then)
    run_epoch(then, a=[21])
    copy_state(then, last)
    assert counts_by_session(run_epoch(last, a=[15])) == [(10, 4)]


def logic_that_emits(emit: Any) -> ShardLogic:
    """Counts values in sessions, as they come."""
    builder = FoldingBuilder(Count(), emit)
    config = DriverBuilder(PATIENT, GAP_5, builder, ordered=False, emit=emit)
    lowering = config.lower()
    assert isinstance(lowering, OverColumns)
    return lowering.shard_logic()


def run_epoch(logic: ShardLogic, **seconds: list[int]) -> ShardOutput:
    """An epoch of values of some keys."""
    values = records([(key, second) for key, of_key in seconds.items() for second in of_key])
    order = np.arange(values.num_rows)
    counts = np.array([len(of_key) for of_key in seconds.values()])
    rows = ShardRows(pa.array(list(seconds)), counts, order, order, values)
    moment = Moment(START_US)
    return logic.run(rows, ShardEpoch(moment, moment, False, WANTED))


def counts_by_session(made: ShardOutput) -> list[tuple[int, Any]]:
    """Return each session that one key has emitted, as its id in seconds, with its count."""
    return [
        ((window.window_id - START_US) // 1_000_000, value)
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


@pytest.mark.parametrize("failing", ["folding", "merging"])
def test_a_function_that_fails_during_a_merge_names_the_key(failing: str) -> None:
    def fail(held: list[Any], value: Any) -> list[Any]:
        if type(value) is dict and value["n"] != 4:
            return [*held, value]
        raise ValueError("no more of that")

    folder, merger = (fail, _both) if failing == "folding" else (_append, fail)
    made = Dataflow("failing")
    stream = op.key_on("key", op.input("in", made, TestingSource([])), "user")
    out = win.fold_window(
        "w", stream, PATIENT, GAP_5, list, folder, merger, ordered=False, emit="update"
    )
    op.output("down", out.down, TestingSink([]))
    with TestDriver(made, now=START) as t, pytest.raises(StepError) as raised:
        t.send("in", records([("b", 0), ("a", 0), ("a", 8), ("a", 4)]))
    assert (raised.value.step_id, raised.value.key) == ("w", "a")
    assert "no more of that" in str(raised.value)


def _append(held: list[Any], value: Any) -> list[Any]:
    return [*held, value["n"]]


def _both(left: list[Any], right: list[Any]) -> list[Any]:
    return [*left, *right]
