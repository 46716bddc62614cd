"""Joins by time of records: pairs in columns, and the columns that tables have for them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.columns.chunks import KeyedRecords
from flow.dataflow import KeyedStream
from flow.engine.steps.level import KeyedStep
from flow.testing import TestDriver, TestingSink, TestingSource

Join = Callable[..., Any]

LEFT = [{"key": "a", "at": 10, "bid": 1}, {"key": "b", "at": 11, "bid": 2}]
RIGHT = [{"key": "a", "at": 12, "note": "x"}]


def outer(left: KeyedStream[Any], right: KeyedStream[Any]) -> Any:
    clock = win.EventClock[dict[str, Any]]("at", "5s")
    return win.join_interval("w", left, right, clock, before="0s", after="5s", how="outer")


def asof(left: KeyedStream[Any], right: KeyedStream[Any]) -> Any:
    clock = win.EventClock[dict[str, Any]]("at", "5s")
    return win.join_asof("w", left, right, clock, tolerance="5s", direction="forward")


def joined(join: Join, left: Any, right: Any) -> tuple[list[Any], list[Any]]:
    """Return the pairs of two inputs, and the records of the pairs."""
    flow = Dataflow("join")
    sides = [
        op.key_on(f"key-{name}", op.input(name, flow, TestingSource([])), "key")
        for name in ("left", "right")
    ]
    out = join(*sides)
    op.output("down", out.down, TestingSink([]))
    op.output("rows", op.records("records", out.down), TestingSink([]))
    t = TestDriver(flow, now=0, shards=1)
    t.send("left", left)
    t.send("right", right)
    t.end()
    return t.take("down"), t.take("rows")


@pytest.mark.parametrize("join", [outer, asof])
def test_pairs_of_records_and_of_dicts_are_equal(join: Join) -> None:
    records = [pa.RecordBatch.from_pylist(rows) for rows in (LEFT, RIGHT)]
    pairs, rows = joined(join, *records)
    assert sorted((key, pair) for key, (_, pair) in pairs) == [
        ("a", (LEFT[0], RIGHT[0])),
        ("b", (LEFT[1], None)),
    ]
    assert [pair.left for key, (_, pair) in pairs if key == "a"] == [LEFT[0]]
    of_objects, rows_of_objects = joined(join, LEFT, RIGHT)
    assert sorted(of_objects) == sorted(pairs)
    assert sorted(rows_of_objects, key=str) == sorted(rows, key=str)


def test_the_columns_of_a_pair_are_its_window_and_its_sides() -> None:
    records = [pa.RecordBatch.from_pylist(rows) for rows in (LEFT[:1], RIGHT)]
    _, (row,) = joined(outer, *records)
    names = ["key", "window_id", "open_time", "close_time", "merged_ids", "timestamp"]
    assert list(row) == [*names, "is_retraction", "left", "right"]
    assert (row["left"], row["right"]) == (LEFT[0], RIGHT[0])


@pytest.mark.parametrize(
    "other", [Decimal("1.5"), date(2024, 1, 1), [1, 2], {"b": 1}, None, b"bytes"]
)
def test_records_of_other_types_are_joined_as_objects(other: Any) -> None:
    left = [{"key": "a", "at": 10, "other": other}]
    pairs, _ = joined(asof, *(pa.RecordBatch.from_pylist(rows) for rows in (left, RIGHT)))
    assert [pair for _, (_, pair) in pairs] == [(left[0], RIGHT[0])]


def test_pairs_of_records_stay_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    emitted = list[Any]()
    run = KeyedStep.run

    def watched(self: KeyedStep) -> Any:
        sent = run(self)
        emitted.extend(chunk for _, chunk in sent)
        return sent

    monkeypatch.setattr(KeyedStep, "run", watched)
    joined(outer, *(pa.RecordBatch.from_pylist(rows) for rows in (LEFT[:1], RIGHT)))
    assert [type(chunk) for chunk in emitted if len(chunk)] == [KeyedRecords]
