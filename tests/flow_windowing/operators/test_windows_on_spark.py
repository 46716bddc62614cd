"""Windows on Spark: the same answers as in process, in streaming epochs and in a batch."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.testing import ABORT, EOF, Advance, TestDriver, TestingSink, TestingSource
from flow_windowing import EventClock, SystemClock, TumblingWindower
from recovery import RecoveryConfig

pytestmark = pytest.mark.spark

START = "2023-12-14T10:32:00Z"
Results = dict[str, list[Any]]


def at(clock_time: str) -> tuple[str, str]:
    return "flight", f"2023-12-14T{clock_time}:00Z"


# The table of event time: the values of its rows, with system time moving in between.
TABLE = [
    at("10:35"),
    Advance("1m"),
    Advance("1m"),
    at("10:38"),
    Advance("2m"),
    at("10:39"),
    Advance("2m"),
    at("10:36"),
]


def make_flow(items: list[Any], results: Results) -> Dataflow:
    """Count values in windows of ten minutes of event time and of three minutes of system time."""
    flow = Dataflow("windows")
    stream = op.input("in", flow, TestingSource(items, batch_size=2))
    event = win.collect_window(
        "event", stream, EventClock(str, "5m"), TumblingWindower("10m"), ordered=False
    )
    system = win.collect_window("system", stream, SystemClock(), TumblingWindower("3m"))
    for step, out in (("event", event), ("system", system)):
        for name in out._fields:
            sink = TestingSink(results.setdefault(f"{step}.{name}", []))
            op.output(f"{step}.{name}", getattr(out, name), sink)
    return flow


def in_process(items: list[Any]) -> Results:
    results: Results = {}
    with TestDriver(make_flow([], results), now=START) as t:
        for item in items:
            if isinstance(item, Advance):
                t.advance(item.duration)
            elif isinstance(item, tuple):
                t.send("in", [item])
        t.end()
        return {name: t.received(name) for name in results}


def test_the_table_of_event_time_holds_in_every_engine(spark: SparkSession) -> None:
    streaming: Results = {}
    run(make_flow(TABLE, streaming), spark=spark, system_time=START)
    assert streaming == in_process(TABLE)
    assert [one.value[11:16] for _, one in streaming["event.late"]] == ["10:36"]
    (_, missed) = streaming["event.late"][0]
    assert missed.late_by == timedelta(minutes=1)
    assert [len(values) for _, (_, values) in streaming["event.down"]] == [3]
    assert [len(values) for _, (_, values) in streaming["system.down"]] == [1, 1, 2]


def test_a_batch_gives_what_the_driver_gives_while_time_stands_still(spark: SparkSession) -> None:
    items = [at(f"10:{minute:02}") for minute in (35, 52, 41, 47, 59, 50)]
    batch: Results = {}
    summary = run(make_flow(items, batch), spark=spark, system_time=START)
    assert summary.engine == "batch"
    assert batch == in_process(items)
    assert [len(values) for _, (_, values) in batch["event.down"]] == [1, 1, 2]
    assert [one.value[11:16] for _, one in batch["event.late"]] == ["10:41", "10:50"]


def test_windows_outlive_a_crash_and_a_stop(spark: SparkSession, tmp_path: Any) -> None:
    items = [*TABLE[:4], ABORT(), *TABLE[4:6], EOF(), *TABLE[6:]]
    results: Results = {}
    recovery = RecoveryConfig(str(tmp_path / "checkpoint"))
    flow = make_flow(items, results)
    runs = [
        run(flow, spark=spark, recovery=recovery, system_time=START, drain=last)
        for last in (False, False, True)
    ]
    assert [summary.aborted for summary in runs] == [True, False, False]
    assert results == in_process(TABLE)
