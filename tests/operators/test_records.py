"""`op.records`: items as the rows that tables have for them, as objects and as columns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, Stream
from flow.columns.chunks import Chunk, Records
from flow.connectors.sink import to_record
from flow.engine.steps import pipeline
from flow.engine.steps.kernels import run_step
from flow.errors import StepError
from flow.operators.batching import ToRecords
from flow.testing import TestDriver, TestingSink, TestingSource, key_by_key, run_once
from flow_windowing import WindowMetadata

HOUR = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS = [{"name": "a", "n": 1, "at": 5.0}, {"name": "a", "n": 2, "at": 4000.0}]


def totals(s: Stream[Any]) -> win.WindowOut[Any, Any]:
    clock, hours = win.EventClock("at", "0s"), win.TumblingWindower("1h")
    return win.aggregate_window("w", op.key_on("by_name", s, "name"), clock, hours, n=win.Sum("n"))


def records(s: Stream[Any]) -> Stream[Any]:
    return op.records("rows", s)


EXPECTED = [
    {
        "key": "a",
        "window_id": number,
        "open_time": EPOCH + number * HOUR,
        "close_time": EPOCH + (number + 1) * HOUR,
        "merged_ids": [],
        "n": number + 1,
    }
    for number in range(2)
]


def test_a_record_of_a_window_is_the_same_over_columns_and_key_by_key() -> None:
    assert run_once(ROWS, lambda s: records(totals(s).down)) == EXPECTED
    with key_by_key():
        assert run_once(ROWS, lambda s: records(totals(s).down)) == EXPECTED


def test_records_of_windows_stay_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Chunk | None] = []

    def noting(kind: Any, *arguments: Any) -> Any:
        output = run_step(kind, *arguments)
        made.extend(output if isinstance(kind, ToRecords) else [])
        return output

    monkeypatch.setattr(pipeline, "run_step", noting)
    flow = Dataflow("columns")
    s = op.input("in", flow, TestingSource([]))
    op.output("out", records(totals(s).down), TestingSink([]))
    with TestDriver(flow) as t:
        t.send("in", pa.RecordBatch.from_pylist(ROWS))
        t.end()
        assert t.received("out") == EXPECTED
    assert {type(chunk) for chunk in made} == {Records}


def test_a_late_value_becomes_a_record() -> None:
    late = [ROWS[1], ROWS[0]]
    (record,) = run_once(late, lambda s: records(totals(s).late))
    (item,) = run_once(late, lambda s: totals(s).late)
    assert record == to_record(item)
    assert (record["key"], record["reason"]) == ("a", win.LateReason.LATE)


def test_a_field_named_key_takes_the_place_of_the_key() -> None:
    assert run_once([("a", {"key": "b"})], records) == [{"key": "b"}]


@dataclass(frozen=True)
class Broken:
    def as_record(self) -> dict[str, Any]:
        raise ValueError("no")


def test_an_item_that_cannot_be_a_record_names_the_step() -> None:
    with pytest.raises(StepError, match="step 'rows': making a record raised ValueError: no"):
        run_once([Broken()], records)


# --- the layout of one item ---

NOON, ONE = (datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in (12, 13))


def test_a_window_is_laid_out_beside_its_value() -> None:
    window = WindowMetadata(7, NOON, ONE, frozenset({9, 8}))
    assert to_record(("k", (window, {"n": 3}))) == {
        "key": "k",
        "window_id": 7,
        "open_time": NOON,
        "close_time": ONE,
        "merged_ids": [8, 9],
        "n": 3,
    }


def test_a_window_has_a_timestamp_column_only_if_requested() -> None:
    window = WindowMetadata(7, NOON, ONE, timestamp=ONE)
    assert to_record((window, 3))["timestamp"] == ONE
    assert "timestamp" not in to_record((WindowMetadata(7, NOON, ONE), 3))
