"""Windows with triggers on Spark: a crash, a stop, and the state in the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import CheckpointError, Dataflow, run
from flow.testing import ABORT, EOF, Advance, TestingSink, TestingSource
from flow_windowing import AfterWatermark, Early, EventClock, Late
from recovery import RecoveryConfig, export, inspect

pytestmark = pytest.mark.spark

START = "1970-01-01T00:01:00Z"
Results = dict[str, list[Any]]
TRIGGER = AfterWatermark(early=Early(every="3s", count=3), late=Late(count=2))
WINDOWERS: dict[str, Any] = {
    "tens": win.SlidingWindower("10s", "5s", grace="6s"),
    "sessions": win.SessionWindower("4s", grace="6s"),
}
ITEMS: list[Any] = [
    *(("k", 60), ("k", 66), ("k", 67), Advance("3s"), ("j", 61), ("k", 63), ("k", 75)),
    *(Advance("1s"), ("k", 64), ("k", 71), Advance("3s"), ("j", 62), Advance("30s"), ("k", 110)),
]


def make_flow(items: list[Any], results: Results, trigger: Any = TRIGGER) -> Dataflow:
    """Collect values, which are their own timestamps, in panes of sliding windows and sessions."""
    flow = Dataflow("panes")
    values = op.input("in", flow, TestingSource(items, batch_size=1))
    clock = EventClock(lambda at: at, "1s")
    for name, windower in WINDOWERS.items():
        out = win.collect_window(name, values, clock, windower, list, False, emit=trigger)
        sink = TestingSink(results.setdefault(name, []))
        op.output(f"{name}_down", op.map(f"{name}_shown", out.down, shown), sink)
    return flow


def shown(item: Any) -> Any:
    """Return a pane with its key, as equal windows may have other panes."""
    key, (window, value) = item
    return key, repr(window), repr(value)


def by_key(results: Results) -> dict[str, list[Any]]:
    """Return the items of each output, those of each key in order."""
    return {name: sorted(items, key=lambda item: item[0]) for name, items in results.items()}


def test_panes_outlive_a_crash_and_a_stop(spark: SparkSession, tmp_path: Path) -> None:
    undisturbed: Results = {}
    run(
        make_flow(ITEMS, undisturbed),
        spark=spark,
        system_time=START,
        recovery=RecoveryConfig(tmp_path / "undisturbed"),
    )
    timings = {
        one
        for items in undisturbed.values()
        for _, window, _ in items
        for one in ("EARLY", "ON_TIME", "LATE")
        if one in window
    }
    assert timings == {"EARLY", "ON_TIME", "LATE"}
    assert any("Retracted" in value for _, _, value in undisturbed["sessions"])
    results: Results = {}
    items = [*ITEMS[:5], ABORT(), *ITEMS[5:9], EOF(), *ITEMS[9:]]
    recovery = RecoveryConfig(tmp_path / "checkpoint")
    runs = [
        run(
            make_flow(items, results),
            spark=spark,
            recovery=recovery,
            system_time=START,
            drain=last,
        )
        for last in (False, False, True)
    ]
    assert runs[0].aborted
    assert not runs[2].aborted
    assert by_key(results) == by_key(undisturbed)


def test_the_state_can_be_inspected_and_exported_and_discarding_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    recovery = RecoveryConfig(tmp_path / "checkpoint")
    run(
        make_flow(ITEMS[:5], {}),
        spark=spark,
        recovery=recovery,
        system_time=START,
        drain=False,
    )
    _, k = sorted(inspect(recovery.path, "sessions", spark=spark).keys, key=lambda one: one.key)
    assert [window["value"] for window in k.state["windows"]] == [[[0, 60]], [[1, 66], [2, 67]]]
    assert k.state["emitted"] == {"60000000": [60], "66000000": [66, 67]}
    export(recovery.path, "sessions", tmp_path / "state.parquet", spark=spark)
    assert (tmp_path / "state.parquet").exists()
    discarding = AfterWatermark(early=Early(count=2), accumulate=False)
    with pytest.raises(CheckpointError, match=r"is 'FoldingBuilder\(accumulate=False\)'"):
        run(make_flow(ITEMS[5:], {}, discarding), spark=spark, recovery=recovery, drain=False)
