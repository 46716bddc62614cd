"""Windows over columns, compared with key by key: any step, any rows, and changes of path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.columns.record_batches import rows_as_dicts
from flow.engine.local import Part
from flow.testing import TestDriver, TestingSource, key_by_key
from flow_windowing import (
    Collect,
    Count,
    CountWindower,
    EventClock,
    Last,
    Max,
    Mean,
    Min,
    SessionWindower,
    SlidingWindower,
    StdDev,
    Sum,
    SystemClock,
    TumblingWindower,
)
from tests.support.columns import (
    EDGES,
    NUMBERS,
    OTHERS,
    WAYS,
    Epoch,
    Row,
    Step,
    Way,
    as_dicts,
    as_records,
    epochs_of_rows,
    graces,
    outcome,
    rows,
    rows_at,
    stream_clocks,
    windowers,
)
from tests.support.columns import steps as any_steps
from tests.support.sampling import sampled
from tests.support.window_flow import START, add_outputs, on_path, results_by_key

PATIENT, MINUTE = EventClock("ts", "10m"), EventClock("ts", "1m")
CLOCKS = [EventClock("ts", wait) for wait in ("0s", "8s", "20s", "1m")]
SESSIONS = [
    SessionWindower("4s"),
    SessionWindower("8s"),
    SessionWindower("3s", inclusive=False, grace="5s"),
    SessionWindower("5s", grace="0s"),
]
FIGURES = {"n": Count(), "mean": Mean("whole"), "least": Min("whole"), "all": Collect("whole")}
emits = st.sampled_from(["epoch", "update"])
orders = st.booleans()
lasts = st.sampled_from([None, "last"])


def epochs_near(
    seconds: st.SearchStrategy[int], *, later: Sequence[int] = (0,), most: int = 10
) -> st.SearchStrategy[list[Epoch]]:
    """Epochs of rows of few keys at these seconds, some time apart, numbered in order."""
    moments = st.lists(st.tuples(st.sampled_from("aab"), seconds), max_size=most)
    return st.lists(st.tuples(moments, st.sampled_from(later)), max_size=5).map(
        lambda drawn: [
            Epoch(rows_at(some, 10 * number), passed) for number, (some, passed) in enumerate(drawn)
        ]
    )


def reaching_back(drawn: list[list[tuple[str, int, float | None]]]) -> list[Epoch]:
    """Epochs of rows that reach back into the epoch before, as far as they may without being late.

    The rows are keys, seconds since the epoch's begin, and numbers.
    """
    return [
        Epoch(
            [
                {**row, "real": real}
                for row, (_, _, real) in zip(
                    rows_at([(user, 10 * number + second) for user, second, _ in epoch]),
                    epoch,
                    strict=True,
                )
            ]
        )
        for number, epoch in enumerate(drawn)
    ]


def folded_sessions(wait: str, gap: str, ordered: bool) -> Dataflow:
    """A flow that folds the numbers of sessions, with a mark where two were merged."""
    made = Dataflow("sessions")
    stream = op.key_on("key", op.input("in", made, TestingSource([])), "user")
    clock, windower = EventClock("ts", wait), SessionWindower(gap)

    def append(held: list[Any], value: Any) -> list[Any]:
        return [*held, value["whole"]]

    def merged(left: list[Any], right: list[Any]) -> list[Any]:
        return [*left, "and", *right]

    out = win.fold_window("w", stream, clock, windower, list, append, merged, ordered=ordered)
    add_outputs(out)
    return made


def flows(*of: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]) -> Any:
    return st.builds(Step, *of, **named).map(Step.flow)


KINDS: dict[str, tuple[st.SearchStrategy[Dataflow], st.SearchStrategy[list[Epoch]]]] = {
    "any": (any_steps.map(Step.flow), epochs_of_rows),
    "counts": (
        flows(
            st.sampled_from([SystemClock(), PATIENT, EventClock("ts", "3s", forget_after="1m")]),
            st.builds(
                CountWindower, st.integers(1, 5), st.sampled_from([None, 1, 2, 4, 7]), st.booleans()
            ),
            st.just({"n": Count(), "numbers": Collect("whole"), "last": Last("real")}),
            orders,
            st.just("last"),
        ),
        epochs_near(st.integers(0, 30), later=[20]),
    ),
    "sessions": (
        flows(
            st.sampled_from([EventClock("ts", wait) for wait in ("0s", "10s", "1m", "10m")]),
            st.builds(
                SessionWindower,
                st.sampled_from(["1s", "3s", "5s"]),
                st.booleans(),
                st.sampled_from([None, None, "0s", "4s", "30s"]),
            ),
            st.sampled_from([{"n": Count(), "spread": StdDev("whole"), **FIGURES}, EDGES]),
            orders,
            st.just("last"),
        ),
        epochs_near(st.integers(0, 25) | st.integers(0, 120), most=12),
    ),
    "folded sessions": (
        st.builds(
            folded_sessions,
            st.sampled_from(["0s", "10s", "10m"]),
            st.sampled_from(["1s", "3s", "5s"]),
            orders,
        ),
        epochs_near(st.integers(0, 25) | st.integers(0, 120), most=12),
    ),
    "early results": (
        flows(
            st.sampled_from(CLOCKS),
            st.sampled_from(
                [
                    TumblingWindower("10s"),
                    TumblingWindower("10s", grace="15s"),
                    SlidingWindower("20s", "5s"),
                    SlidingWindower("20s", "5s", grace="5s"),
                    CountWindower(3, 2),
                ]
            ),
            st.sampled_from([NUMBERS, OTHERS]),
            orders,
            lasts,
            emits,
        ),
        epochs_near(st.integers(0, 40), later=[6]),
    ),
    "retractions": (
        flows(
            st.sampled_from([*CLOCKS, EventClock("ts", "15s", scope="stream")]),
            st.sampled_from(SESSIONS),
            st.sampled_from([NUMBERS, OTHERS, FIGURES]),
            st.sampled_from([False, False, True]),
            st.sampled_from([None, "last", "close"]),
            emits,
        ),
        epochs_near(st.integers(0, 60), later=[0, 6]),
    ),
    "buffered values": (
        flows(
            st.sampled_from([EventClock("ts", "6s"), EventClock("ts", "12s", on_idle="hold")]),
            st.sampled_from([SessionWindower("2s"), SessionWindower("4s"), CountWindower(3, 2)]),
            st.just({**FIGURES, "low": Min("real"), "most": Max("whole"), "sum": Sum("whole")}),
            st.just(True),
            lasts,
        ),
        st.lists(
            st.lists(
                st.tuples(
                    st.sampled_from("aaab"),
                    st.integers(0, 20),
                    st.sampled_from([0.0, -0.0, 0.5, None]),
                ),
                max_size=10,
            ),
            max_size=4,
        ).map(reaching_back),
    ),
}
"""Flows and their epochs, by kind."""


def check(flow: Dataflow, epochs: list[Epoch], ways: Sequence[Way]) -> None:
    """Check that results do not depend on the path of each epoch, nor on the form of its rows."""
    alone, objects, records = WAYS

    def outcome_of(of_epochs: Sequence[Way]) -> Any:
        with TestDriver(flow, now=START, shards=2) as t:
            for epoch, (by_itself, form) in zip(epochs, of_epochs, strict=False):
                with on_path(by_itself):
                    t.advance(timedelta(seconds=epoch.later))
                    t.send("in", form(epoch.rows))
            t.end()
            return results_by_key(t)

    expected = outcome_of([alone] * 5)
    for of_epochs in ([records] * 5, [objects] * 5, ways):
        assert outcome_of(of_epochs) == expected


@pytest.mark.parametrize("kind", KINDS)
@sampled(300, by_default=4)
@given(data=st.data(), ways=st.lists(st.sampled_from(WAYS), min_size=5, max_size=5))
def test_paths_and_forms_of_rows_agree_also_over_changes(
    kind: str, data: st.DataObject, ways: list[Way]
) -> None:
    flows, epochs = KINDS[kind]
    check(data.draw(flows), data.draw(epochs), ways)


COUNTS = Step(PATIENT, CountWindower(3, 2), {"n": Count(), "all": Collect("whole")})
GAP_5 = Step(MINUTE, SessionWindower("5s"), FIGURES)
EARLY = Step(MINUTE, SessionWindower("5s"), FIGURES, emit="epoch")


@pytest.mark.parametrize(
    ("step", "seconds", "first_alone"),
    [
        (Step(SystemClock(), TumblingWindower("10s")), [], False),
        (COUNTS, [[1, 1, 1, 1], [9], []], False),
        (GAP_5, [[0], [8], [4], [20]], False),
        (EARLY, [[10, 20], [15]], True),
        (EARLY, [[10, 20], [15]], False),
    ],
)
def test_known_cases_agree_over_changes_of_path(
    step: Step, seconds: list[list[int]], first_alone: bool
) -> None:
    alone, _, records = WAYS
    turns = [alone, records] if first_alone else [records, alone]
    epochs = [Epoch(rows_at([("a", second) for second in some])) for some in seconds]
    check(step.flow(), epochs, turns * 3)


# --- several schemas and partitions ---------------------------------------------------------------


@sampled(60, by_default=3)
@given(any_steps, epochs_of_rows, epochs_of_rows)
def test_records_of_two_schemas_can_be_merged(
    step: Step, epochs: list[Epoch], others: list[Epoch]
) -> None:
    made = Dataflow("merged")
    inputs = [op.input(name, made, TestingSource([])) for name in ("in", "narrow")]
    keyed = op.key_on("key", op.merge("both", *inputs), "user")
    # There may be no record of the schema with all fields.
    aggregates = {
        name: replace(one, missing="skip") if getattr(one, "field", None) else one
        for name, one in step.aggregates.items()
    }
    add_outputs(win.aggregate_window("w", keyed, step.clock, step.windower, **aggregates))

    def result(narrow: Any, wide: Any) -> dict[str, Any]:
        with TestDriver(made, now=START, shards=2) as t:
            for number in range(max(len(epochs), len(others))):
                rows, more = (_rows_of(one, number) for one in (epochs, others))
                t.send_all({"in": wide(rows), "narrow": narrow(more)})
            t.end()
            return results_by_key(t)

    with key_by_key():
        expected = result(lambda rows: rows_as_dicts(as_narrow(rows)), as_dicts)
    assert result(as_narrow, as_records) == expected


def _rows_of(epochs: list[Epoch], number: int) -> list[Row]:
    return epochs[number].rows if number < len(epochs) else []


def as_narrow(rows: list[Row]) -> pa.RecordBatch:
    return as_records(rows).select(["user", "ts", "whole"])


@sampled(150, by_default=3)
@given(
    st.builds(
        Step,
        stream_clocks,
        windowers,
        ordered=orders,
        emit=st.sampled_from(["close", "epoch", "update"]),
    ),
    st.lists(
        st.tuples(
            st.sampled_from([0, 0, 5, 100]),
            st.lists(st.tuples(st.integers(0, 2), st.lists(rows, max_size=6)), max_size=4),
        ),
        max_size=5,
    ),
)
def test_splits_of_several_partitions_agree(
    step: Step, epochs: list[tuple[int, list[tuple[int, list[Row]]]]]
) -> None:
    def result(form: Any) -> Any:
        with TestDriver(step.flow(), now=START, shards=2) as t:
            for later, splits in epochs:
                t.advance(timedelta(seconds=later))
                parts = [Part(form(values), partition=number) for number, values in splits]
                t.send_parts({"in": parts})
            t.end()
            return results_by_key(t)

    with key_by_key():
        expected = result(as_dicts)
    assert result(as_records) == expected
    assert result(as_dicts) == expected


def as_texts(rows: list[Row]) -> pa.RecordBatch:
    """Records with their times as text, some of which is none."""
    texts = [row["ts"].isoformat() if row["ts"].second else "soon" for row in rows]
    return as_records(rows).set_column(1, "ts", pa.array(texts, pa.string()))


@sampled(50, by_default=5)
@given(graces, st.lists(rows, max_size=12))
def test_times_as_text_advance_the_watermark_of_a_stream(grace: Any, values: list[Row]) -> None:
    clock: Any = EventClock("ts", "1s", scope="stream", on_invalid="drop")
    step, epochs = Step(clock, TumblingWindower("10s", grace=grace)), [Epoch(values)]
    with key_by_key():
        expected = outcome(step, epochs, lambda rows: rows_as_dicts(as_texts(rows)))
    assert outcome(step, epochs, as_texts) == expected
