"""Lateness in live files whose slow epochs leave values unread for longer than the wait."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.files import JsonLinesSource
from flow.execution import StopFlag
from flow.testing import TestingSink

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WRITER = """
import json, os, sys, time
folder, seconds = sys.argv[1], float(sys.argv[2])
started, number = time.time(), 0
while time.time() - started < seconds:
    row = {"at": time.time()}
    with open(f"{folder}/.new", "w") as file:
        file.writelines(json.dumps({"k": f"key {n}", **row}) + "\\n" for n in range(5))
    os.rename(f"{folder}/.new", f"{folder}/{number:04}.jsonl")
    number += 1
    time.sleep(0.1)
"""
"""Writes a file of five values ten times a second, each there as soon as it is timestamped."""


@pytest.mark.extended
@pytest.mark.parametrize(
    ("trigger", "step_seconds", "lasts"),
    [("5s", 0.0, 7), pytest.param(None, 0.03, 14, marks=pytest.mark.extended)],
)
def test_live_files_have_nothing_late_however_slow_epochs_are(
    spark: SparkSession, tmp_path: Path, trigger: str | None, step_seconds: float, lasts: int
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    out: list[Any] = []
    late: list[Any] = []
    longest: list[float] = []

    def delayed(row: dict[str, Any]) -> dict[str, Any]:
        time.sleep(step_seconds)
        return {**row, "waited": time.time() - row["at"]}

    flow = Dataflow("live")
    read = op.input("in", flow, JsonLinesSource(folder / "*.jsonl", follow=True))
    keyed = op.key_on("key", op.map("delayed", read, delayed), "k")
    clock, seconds = win.EventClock("at", "3s"), win.TumblingWindower("1s")
    aggregates: dict[str, Any] = {"n": win.Count(), "longest": win.Max("waited")}
    by_second = win.aggregate_window("by_second", keyed, clock, seconds, **aggregates)
    op.output("out", by_second.down, TestingSink(out))
    op.output("late", by_second.late, TestingSink(late))

    stop = StopFlag()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, folder, str(lasts)])

    def on_epoch(*_: Any) -> None:
        longest[:] = [figures["longest"] for _, (_, figures) in out]
        if writer.poll() is not None:
            stop.ask()

    options: dict[str, Any] = {"spark": spark, "shards": 2, "partitions": 1}
    run(flow, trigger=trigger, stop=stop, on_epoch=on_epoch, **options)
    assert writer.wait(30) == 0
    assert late == []
    assert max(longest) > 3.5, "values did wait for longer than the wait"
