"""Windows over all keys on Spark: a crash, a stop, several partitions, and a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.testing import Advance, TestDriver, TestingSink, TestingSource
from flow_windowing import Count, EventClock, Mean, Sum, TumblingWindower
from tests.support.all_keys_flows import PORTS
from tests.support.interrupted import START, Results, run_both_ways

pytestmark = pytest.mark.spark

FAST = [("a", 60), ("b", 62), ("c", 66), Advance("3s"), ("a", 71), ("d", 83), ("e", 79), ("a", 99)]
SLOW = [("c", 61), ("c", 64), ("b", 69), Advance("3s"), ("b", 64), ("c", 72), ("f", 40), ("c", 95)]


def make_flow(fast: list[Any], slow: list[Any], results: Results) -> Dataflow:
    """Aggregate and rank two inputs, whose values are their own timestamps."""
    flow = Dataflow("over all keys")
    inputs = [
        op.input(name, flow, TestingSource(items, batch_size=1))
        for name, items in (("fast", fast), ("slow", slow))
    ]
    visits = op.merge("visits", *inputs)
    clock, windower = EventClock(lambda at: at, "4s"), TumblingWindower("10s")
    totals = win.aggregate_window_all("w", visits, clock, windower, n=Count(), mean=Mean())
    top = win.top_n("top", visits, clock, windower, 2, Sum())
    for name, out in (("w", totals), ("top", top)):
        for port in PORTS:
            output = f"{name}.{port}"
            op.output(output, getattr(out, port), TestingSink(results.setdefault(output, [])))
    return flow


def test_windows_outlive_a_crash_and_a_stop(spark: SparkSession, tmp_path: Path) -> None:
    interrupted, undisturbed = run_both_ways(make_flow, (FAST, SLOW), (2, 4), spark, tmp_path)
    assert {name: sorted(map(repr, items)) for name, items in interrupted.items()} == {
        name: sorted(map(repr, items)) for name, items in undisturbed.items()
    }
    windows = [window.open_time for _, (window, _) in interrupted["w.down"]]
    assert len(windows) == len(set(windows)) >= 4


def test_a_batch_gives_one_result_for_each_window(spark: SparkSession) -> None:
    fast, slow = ([one for one in some if isinstance(one, tuple)] for some in (FAST, SLOW))
    results: Results = {}
    summary = run(make_flow(fast, slow, results), spark=spark, system_time=START)
    assert summary.engine == "batch"
    with TestDriver(make_flow([], [], {}), now=START) as t:
        for one, other in zip(fast, slow, strict=True):
            t.send_all({"fast": [one], "slow": [other]}, behind=True)
        t.end()
        for name in results:
            assert sorted(map(repr, t.received(name))) == sorted(map(repr, results[name])), name
    counted = {w.open_time.second: made["n"] for _, (w, made) in results["w.down"]}
    assert sum(counted.values()) + len(results["w.late"]) == len(fast) + len(slow)
