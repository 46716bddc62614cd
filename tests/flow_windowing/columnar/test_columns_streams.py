"""Windows over columns on the watermark of a stream, compared with key by key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.columns.chunks import rows_as_dicts
from flow.engine.local import Part
from flow.testing import TestDriver, key_by_key
from flow_windowing import EventClock, TumblingWindower
from tests.support.columns import (
    Row,
    Step,
    as_dicts,
    as_records,
    graces,
    rows,
    waits,
    windowers,
)
from tests.support.sampling import sampled
from tests.support.window_flow import START, results_by_key

PartsOfEpoch: TypeAlias = tuple[int, list[tuple[int, list[Row]]]]
"""How many seconds after the one before, and what each split, of which partition, brings."""

stream_clocks = st.builds(
    EventClock,
    st.just("ts"),
    waits,
    scope=st.just("stream"),
    on_idle=st.sampled_from(["advance", "hold"]),
    max_ahead=st.sampled_from([None, "30s"]),
)
steps = st.builds(
    Step,
    stream_clocks,
    windowers,
    ordered=st.booleans(),
    emit=st.sampled_from(["close", "epoch", "update"]),
)
epochs_of_splits = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 5, 100]),
        st.lists(st.tuples(st.integers(0, 2), st.lists(rows, max_size=6)), max_size=4),
    ),
    max_size=5,
)


def outcome(step: Step, epochs: list[PartsOfEpoch], form: Any) -> Any:
    with TestDriver(step.flow(), now=START, shards=2) as t:
        for later, splits in epochs:
            if later:
                t.advance(timedelta(seconds=later))
            parts = [Part(form(values), partition=number) for number, values in splits]
            t.send_parts({"in": parts})
        t.end()
        return results_by_key(t)


@sampled(150, by_default=35)
@given(steps, epochs_of_splits)
def test_several_partitions_agree_with_key_by_key(step: Step, epochs: list[PartsOfEpoch]) -> None:
    with key_by_key():
        expected = outcome(step, epochs, as_dicts)
    assert outcome(step, epochs, as_records) == expected
    assert outcome(step, epochs, as_dicts) == expected


def as_texts(rows: list[Row]) -> pa.RecordBatch:
    """Records with their times as text, some of which is none."""
    texts = [row["ts"].isoformat() if row["ts"].second else "soon" for row in rows]
    return as_records(rows).set_column(1, "ts", pa.array(texts, pa.string()))


@settings(max_examples=50)
@given(graces, st.lists(rows, max_size=12))
def test_times_as_text_advance_the_watermark(grace: Any, values: list[Row]) -> None:
    clock: Any = EventClock("ts", "1s", scope="stream", on_invalid="drop")
    step, epochs = Step(clock, TumblingWindower("10s", grace=grace)), [(0, [(0, values)])]
    with key_by_key():
        expected = outcome(step, epochs, lambda rows: rows_as_dicts(as_texts(rows)))
    assert outcome(step, epochs, as_texts) == expected


#   stream   0 .. 59 | 60 closes the first minute of both users, though b has said nothing since 5
def test_values_of_other_keys_close_windows_of_a_silent_key() -> None:
    clock: Any = EventClock("ts", "0s", scope="stream", on_idle="hold")
    step = Step(clock, TumblingWindower("1m", align_to=START))

    def row(user: str, second: int) -> Row:
        ts = START + timedelta(seconds=second)
        return {"user": user, "ts": ts, "whole": 1, "real": 1.0, "text": "x"}

    with TestDriver(step.flow(), now=START) as t:
        t.send("in", as_records([row("b", 5), row("a", 7)]))
        assert t.received("closed") == []
        t.send("in", as_records([row("a", 60)]))
        assert sorted(key for key, _ in t.received("closed")) == ["a", "b"]
