"""Steps of windows on Spark: a crash, a stop, a batch, and the state in a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import CheckpointError, Dataflow, run
from flow.testing import Advance, TestDriver, TestingSink, TestingSource
from flow_windowing import AfterWatermark, Early, EventClock, Late
from recovery import RecoveryConfig, export, inspect
from tests.support.interrupted import START, Results, by_key, run_both_ways

pytestmark = pytest.mark.spark

LEFT: list[Any] = [
    *(("k", 60), ("k", 66), ("k", 67), Advance("3s"), ("j", 61), ("k", 63), ("k", 75)),
    *(Advance("1s"), ("k", 64), ("k", 71), Advance("3s"), ("j", 62), Advance("30s")),
]
RIGHT: list[Any] = [
    *(("k", 62), ("k", 55), ("c", 60), Advance("3s"), ("j", 67), ("k", 69), ("k", 80)),
    *(Advance("1s"), ("k", 72), ("f", 40), Advance("3s"), ("j", 62), Advance("30s")),
]
"""Values that are their own timestamps."""

PATIENT, CLOCK = EventClock(lambda at: at, "4s"), EventClock(lambda at: at, "1s")
TENS = win.TumblingWindower("10s")
SKETCHES = {
    "different": win.ApproxCountDistinct(lambda at: at, precision=5),
    "median": win.ApproxQuantile(lambda at: at, 0.5),
    "often": win.ApproxTopK(lambda at: at % 13, 3, counters=4),
}
TRIGGER = AfterWatermark(early=Early(every="3s", count=2), late=Late(count=2))


def make_flow(
    left: list[Any],
    right: list[Any],
    results: Results,
    interval: str = "5s",
    tolerance: str = "5s",
    trigger: Any = TRIGGER,
) -> Dataflow:
    """Return a flow of two inputs with a step of each kind, whose outputs append to the results."""
    flow = Dataflow("steps")
    sides = [
        op.input(name, flow, TestingSource(items, batch_size=2))
        for name, items in (("left", left), ("right", right))
    ]
    both = op.merge("both", *sides)
    sliding = win.SlidingWindower("10s", "5s", grace="6s")
    sessions = win.SessionWindower("4s", grace="6s")
    panes: dict[str, Any] = {"ordered": False, "emit": trigger}
    steps: dict[str, Any] = {
        "system": win.collect_window(
            "system", sides[0], win.SystemClock(), win.TumblingWindower("3s")
        ),
        "sliding": win.collect_window("sliding", sides[0], CLOCK, sliding, **panes),
        "sessions": win.collect_window("sessions", sides[0], CLOCK, sessions, **panes),
        "sketches": win.aggregate_window("sketches", both, PATIENT, TENS, **SKETCHES),
        "all": win.aggregate_window_all(
            "all", both, PATIENT, TENS, n=win.Count(), mean=win.Mean(), **SKETCHES
        ),
        "top": win.top_n("top", both, PATIENT, TENS, 2, win.Sum()),
        "windows": win.join_window("windows", *sides, clock=PATIENT, windower=TENS),
        "interval": win.join_interval(
            "interval", *sides, PATIENT, interval, "2s", how="outer", grace="1s"
        ),
        "as of": win.join_asof("as of", *sides, PATIENT, tolerance, direction="nearest"),
        "as of now": win.join_asof("as of now", *sides, PATIENT, "5s", emit="now"),
    }
    for step, out in steps.items():
        for port in out._fields:
            name = f"{step}: {port}"
            op.output(name, getattr(out, port), TestingSink(results.setdefault(name, [])))
    return flow


def shown(results: Results) -> Results:
    """Return the items of each key as text, as equal windows may have other panes."""
    return by_key({name: [(key, repr(one)) for key, one in of] for name, of in results.items()})


@pytest.mark.extended
def test_steps_outlive_a_crash_and_a_stop(spark: SparkSession, tmp_path: Path) -> None:
    interrupted, undisturbed = run_both_ways(make_flow, (LEFT, RIGHT), (5, 9), spark, tmp_path)
    found, expected = shown(interrupted), shown(undisturbed)
    for name in expected:
        assert found[name] == expected[name], name
        if name.endswith(": down"):
            assert len(found[name]) >= 3, name
    panes = str([found["sliding: down"], found["sessions: down"]])
    assert all(timing in panes for timing in ("EARLY", "ON_TIME", "LATE", "Retracted"))
    windows = [window.open_time for _, (window, _) in interrupted["all: down"]]
    assert len(windows) == len(set(windows))


@pytest.mark.extended
def test_a_batch_gives_what_the_driver_gives_while_time_stands_still(spark: SparkSession) -> None:
    left, right = ([one for one in some if isinstance(one, tuple)] for some in (LEFT, RIGHT))
    results: Results = {}
    summary = run(make_flow(left, right, results), spark=spark, system_time=START)
    assert summary.engine == "batch"
    with TestDriver(make_flow([], [], {}), now=START) as t:
        for one, other in zip(left, right, strict=True):
            t.send_all({"left": [one], "right": [other]}, behind=True)
        t.end()
        expected = shown({name: t.received(name) for name in results})
    for name, found in shown(results).items():
        assert found == expected[name], name


@pytest.mark.extended
def test_state_can_be_inspected_and_exported_and_other_settings_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    recovery = RecoveryConfig(tmp_path / "checkpoint")
    options: dict[str, Any] = {"spark": spark, "recovery": recovery, "drain": False}
    run(make_flow(LEFT[:5], RIGHT[:1], {}), system_time=START, **options)

    def state_of_k(step: str) -> Any:
        (k,) = (one for one in inspect(recovery.path, step, spark=spark).keys if one.key == "k")
        return k.state

    interval = state_of_k("interval")
    assert interval["left"] == [
        {"timestamp": "1970-01-01T00:01:00Z", "value": 60, "matched": True},
        {"timestamp": "1970-01-01T00:01:06Z", "value": 66, "matched": True},
        {"timestamp": "1970-01-01T00:01:07Z", "value": 67, "matched": True},
    ]
    assert interval["right"] == [
        {"timestamp": "1970-01-01T00:01:02Z", "value": 62, "matched": True}
    ]
    as_of = state_of_k("as of")
    assert [one["value"] for one in as_of["left"]] == [66, 67]
    assert as_of["right"] == [{"timestamp": "1970-01-01T00:01:02Z", "value": 62}]
    sessions = state_of_k("sessions")
    assert [window["value"] for window in sessions["windows"]] == [[[0, 60]], [[1, 66], [2, 67]]]
    assert sessions["emitted"] == {"60000000": [60], "66000000": [66, 67]}
    for step in ("interval", "as of", "sessions"):
        export(recovery.path, step, tmp_path / f"{step}.parquet", spark=spark)
        assert (tmp_path / f"{step}.parquet").exists()
    discarding = AfterWatermark(early=Early(count=2), accumulate=False)
    with pytest.raises(CheckpointError) as caught:
        run(make_flow(LEFT, RIGHT, {}, "6s", "7s", discarding), **options)
    for change in (
        "before was '5s' and is '6s'",
        "tolerance was '5s' and is '7s'",
        "is 'DiscardingBuilder'",
    ):
        assert change in str(caught.value)
