"""Columns as they enter a flow: types that steps process, and names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, Stream
from flow.columns.arrow_types import entering
from flow.errors import StepError
from flow.testing import TestDriver, TestingSink, run_once

TEXT_VIEW, BYTES_VIEW = pa.string_view(), pa.binary_view()
UTC_NS, UTC_US = pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")


def encoded(values: Any) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), values)


def coded(kind: Any) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, None, 0], pa.int8()), pa.array(["a"], kind))


LISTS = [["a"], None, [None, "b" * 20]]
COLUMNS: dict[str, tuple[pa.Array, Any]] = {
    "text view": (pa.array(["a", None, "b" * 20], TEXT_VIEW), pa.string()),
    "bytes view": (pa.array([b"a", None, b""], BYTES_VIEW), pa.binary()),
    "list": (pa.array(LISTS, pa.list_(TEXT_VIEW)), pa.list_(pa.string())),
    "large list": (pa.array(LISTS, pa.large_list(TEXT_VIEW)), pa.large_list(pa.string())),
    "struct": (
        pa.array([{"x": "a"}, None, {"x": None}], pa.struct([("x", TEXT_VIEW)])),
        pa.struct([("x", pa.string())]),
    ),
    "dictionary": (coded(TEXT_VIEW), pa.dictionary(pa.int8(), pa.string())),
    "run-end encoded": (encoded(pa.array(["a", None])), pa.string()),
    "microseconds": (pa.array([-1_000, None, 5_000], UTC_NS), UTC_US),
    "nanoseconds": (pa.array([-1, None, 5_000], UTC_NS), UTC_NS),
    "plain": (pa.array([1, None, 3]), pa.int64()),
}


def with_keys(column: pa.Array) -> pa.RecordBatch:
    times = pa.array([0, 61_000_000, 1], UTC_US)
    return pa.record_batch({"k": ["a"] * 3, "at": times, "n": [1, 2, 3], "c": column})


def windows(s: Stream[Any]) -> Any:
    clock, minutes = win.EventClock("at", "0s"), win.TumblingWindower("1m")
    return win.collect_window("w", op.key_on("k", s, "k"), clock, minutes)


STEPS: dict[str, tuple[Callable[[Stream[Any]], Any], list[int]]] = {
    "filter": (lambda s: op.filter("f", s, pc.field("n") >= 2), [1, 2]),
    "redistribute": (lambda s: op.redistribute("r", s), [0, 1, 2]),
    "batches": (lambda s: op.map_batches("b", s, lambda batch: batch), [0, 1, 2]),
    "windows": (
        lambda s: op.flat_map("rows", windows(s).down, lambda out: out[1][1]),
        [0, 1],
    ),
    "late": (lambda s: op.map("value", windows(s).late, lambda late: late[1].value), [2]),
    "dedup": (
        lambda s: op.key_rm(
            "rm", win.dedup("d", op.key_on("k", s, "k"), win.SystemClock(), "n", ttl="1h").down
        ),
        [0, 1, 2],
    ),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", COLUMNS)
def test_every_step_processes_a_column(name: str, step: str) -> None:
    column, kind = COLUMNS[name]
    build, rows = STEPS[step]
    assert entering(with_keys(column), "in").schema.field("c").type == kind
    received = run_once(with_keys(column).slice(0), build)
    assert sorted(row["n"] for row in received) == [row + 1 for row in rows]
    objects = column.to_pylist()
    assert all(row["c"] == objects[row["n"] - 1] for row in received)


REFUSED: dict[str, tuple[pa.RecordBatch, str]] = {
    "interval": (
        pa.record_batch({"c": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}),
        r"field 'c' is month_day_nano_interval, which steps cannot process: cast it",
    ),
    "encoded views": (
        pa.record_batch({"c": encoded(pa.array(["a", "b"], TEXT_VIEW))}),
        r"field 'c' is run_end_encoded<.*string_view>, which steps cannot process",
    ),
    "inside": (
        pa.record_batch({"c": pa.StructArray.from_arrays([encoded(pa.array([1, 2]))], ["x"])}),
        r"field 'c' is struct<x: run_end_encoded<.*>>, which steps cannot process",
    ),
    "zone": (
        pa.record_batch({"c": pa.array([0], pa.timestamp("us", "Mars"))}),
        r"field 'c' is timestamp\[us, tz=Mars\], which steps cannot process",
    ),
    "two columns": (
        pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["c", "c"]),
        r"2 fields have the name 'c': rename them where the columns are made",
    ),
    "two parts": (
        pa.record_batch({"c": pa.StructArray.from_arrays([pa.array([1])] * 2, ["x", "x"])}),
        r"2 fields have the name 'c.x': rename them",
    ),
}


def looked_up(batch: pa.RecordBatch) -> None:
    flow = Dataflow("lookup")
    table = op.lookup_table("enters", flow, lambda: pa.Table.from_batches([batch]), lambda _: "x")
    s = op.input("in", flow, [1])
    op.output("out", op.map_with("m", s, table, lambda n, _: n), TestingSink([]))
    with TestDriver(flow) as t:
        t.send("in", [1])


ENTRIES: dict[str, Callable[[pa.RecordBatch], Any]] = {
    "input": lambda batch: run_once(batch, lambda s: op.redistribute("r", s)),
    "batches": lambda batch: run_once(
        [1] * batch.num_rows, lambda s: op.map_batches("enters", s, lambda _: batch)
    ),
    "lookup": looked_up,
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", REFUSED)
def test_other_columns_are_refused_by_name_where_they_enter(name: str, entry: str) -> None:
    batch, problem = REFUSED[name]
    with pytest.raises(
        StepError, match=f"^step '{'in' if entry == 'input' else 'enters'}': {problem}"
    ):
        ENTRIES[entry](batch)
