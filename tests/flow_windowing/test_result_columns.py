"""Columns of the results of windows that are known before a flow runs."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, Stream
from flow.columns.known_columns import UnknownColumns, object_type
from flow.connectors.files import JsonLinesSource
from flow.engine.plan.declared_columns import columns_of

INSTANT = pa.timestamp("us", "UTC")
SOURCE = JsonLinesSource(
    "*.jsonl",
    schema={
        "id": pa.string(),
        "n": pa.int16(),
        "x": pa.float32(),
        "at": pa.timestamp("ms", "UTC"),
        "inner": pa.struct([("m", pa.int64())]),
    },
)
CLOCK, HOURS = win.EventClock("at", "0s"), win.TumblingWindower("1h")
MERGED = ("merged_ids", pa.list_(pa.int64()))
WINDOW = [("window_id", pa.int64()), ("open_time", INSTANT), ("close_time", INSTANT), MERGED]
MARK = ("is_retraction", pa.bool_())


def found(stream: Stream[Any]) -> Any:
    columns = columns_of({step.step_id: step for step in stream.flow.steps}, stream.stream_id)
    if isinstance(columns, UnknownColumns):
        return columns.reason
    return list(zip(columns.schema.names, columns.schema.types, strict=True))


def keyed() -> Stream[Any]:
    return op.key_on("by_id", op.input("in", Dataflow("w"), SOURCE), "id")


def windows(windower: Any = HOURS, **options: Any) -> Any:
    return win.aggregate_window("w", keyed(), CLOCK, windower, **options)


@pytest.mark.parametrize(
    ("aggregate", "kind"),
    [
        (win.Count(), pa.int64()),
        (win.CountDistinct("id"), pa.int64()),
        (win.ApproxCountDistinct("id"), pa.int64()),
        (win.ApproxQuantile("n", 0.5), pa.float64()),
        (win.ApproxTopK("id", 3), pa.list_(pa.string())),
        (win.Sum("n"), pa.int64()),
        (win.Sum("x"), pa.float64()),
        (win.Sum("inner.m"), pa.int64()),
        (win.Mean("n"), pa.float64()),
        (win.StdDev("n"), pa.float64()),
        (win.Quantile("n", 0.5), pa.float64()),
        (win.Min("at"), INSTANT),
        (win.Max("x"), pa.float64()),
        (win.First("id"), pa.string()),
        (win.Latest("inner"), pa.struct([("m", pa.int64())])),
        (win.MaxK("n", 3), pa.list_(pa.int64())),
        (win.TopK("id", 3), pa.list_(pa.string())),
        (win.Collect("x"), pa.list_(pa.float64())),
    ],
)
def test_a_result_has_the_type_of_its_aggregate(aggregate: Any, kind: Any) -> None:
    assert found(windows(result=aggregate).down) == [
        *(("key", pa.string()), *WINDOW, MARK, ("result", kind))
    ]


def test_a_single_result_is_the_column_value() -> None:
    out = win.sum_window("w", keyed(), CLOCK, HOURS, "x")
    assert found(out.down)[-1] == ("value", pa.float64())


def test_panes_have_columns_of_their_own() -> None:
    out = windows(emit=win.Early(count=2), n=win.Count())
    pane = [("pane_index", pa.int64()), ("pane_timing", pa.string()), ("pane_is_last", pa.bool_())]
    assert found(out.down) == [("key", pa.string()), *WINDOW, *pane, MARK, ("n", pa.int64())]
    assert found(out.closed) == [("key", pa.string()), *WINDOW]
    discarding = win.AfterWatermark(win.Early(count=2), accumulate=False)
    sessions = windows(win.SessionWindower("1m"), emit=discarding, n=win.Count())
    assert found(sessions.down)[4:9] == [MERGED, *pane, MARK]


def test_sessions_that_retract_have_the_same_columns_and_a_timestamp_is_a_column() -> None:
    out = windows(win.SessionWindower("1m"), emit="epoch", n=win.Count(), timestamp="last")
    columns = [("key", pa.string()), *WINDOW, ("timestamp", INSTANT)]
    assert found(out.closed) == columns
    assert found(out.down) == [*columns, MARK, ("n", pa.int64())]


def test_late_values_have_the_record_and_the_window() -> None:
    record = pa.struct(
        [
            *(("id", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("at", INSTANT)),
            ("inner", pa.struct([("m", pa.int64())])),
        ]
    )
    assert found(windows(n=win.Count()).late) == [
        ("key", pa.string()),
        ("value", record),
        *(("timestamp", INSTANT), ("watermark", INSTANT), ("late_by", pa.duration("us"))),
        ("window", pa.struct(WINDOW)),
        *(("reason", pa.string()), ("window_ids", pa.list_(pa.int64()))),
    ]


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (
            windows(n=win.Sum(lambda value: value["n"])).down,
            r"the type of the result 'n' of Sum\(<lambda>\) is not known",
        ),
        (windows(n=win.Sum("missing")).down, "the type of the result 'n' of Sum"),
        (
            win.join_window(
                "j", (keys := keyed()), op.filter("f", keys, bool), clock=CLOCK, windower=HOURS
            ).down,
            "the results of custom window logic and of joins have no known types",
        ),
        (win.collect_window("c", keyed(), CLOCK, HOURS).down, "the type of the result 'value'"),
        (
            win.count_window("c", op.input("in", Dataflow("l"), [1]), CLOCK, HOURS, "id").late,
            "the source of step 'in' does not know",
        ),
    ],
)
def test_the_reason_for_unknown_columns(stream: Stream[Any], reason: str) -> None:
    assert re.match(rf"(of step '\w': )?{reason}", found(stream))


def test_counts_need_no_columns() -> None:
    out = win.count_window("c", op.input("in", Dataflow("l"), [1]), CLOCK, HOURS, "id")
    assert found(out.down) == [("key", pa.string()), *WINDOW, MARK, ("value", pa.int64())]
    assert found(out.closed) == [("key", pa.string()), *WINDOW]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.decimal128(5, 2), pa.decimal128(38, 2)),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int64())),
        (pa.uint64(), None),
        (pa.list_(pa.time64("us")), None),
    ],
)
def test_objects_of_a_column_have_one_type(kind: Any, expected: Any) -> None:
    assert object_type(kind) == expected
