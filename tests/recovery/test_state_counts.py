"""Totals of open windows and buffered values on Spark: reports, resumes, rescales, the tools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EpochReport
from flow.testing import EOF, TestingSink, TestingSource, key_by_key
from flow_windowing.rules.key_state import DriverState, IntervalState
from recovery import status, verify
from recovery.reading.checkpoint_reader import open_checkpoint
from recovery.reading.epoch_state import EpochState, load_snapshot
from recovery.reading.rendering import waiting_values
from recovery.tools.layouts import rescale
from tests.recovery.checkpoints import run_flow

pytestmark = pytest.mark.usefixtures("spark")

STEPS = ("windows", "pairs")
Totals = dict[str, tuple[int | None, int | None]]


def items(first: int, last: int) -> list[Any]:
    """Return values of seven keys, one a second."""
    return [(f"key-{number % 7}", float(number)) for number in range(first, last)]


def make_flow(values: list[Any]) -> Dataflow:
    """Return a flow of windows whose values wait, of an interval join, and of a plain state."""
    flow = Dataflow("counted")
    stream = op.input("in", flow, TestingSource(values, batch_size=40))
    clock = win.EventClock(float, "20s", on_idle="hold")
    windows = win.collect_window("windows", stream, clock, win.TumblingWindower("30s"))
    pairs = win.join_interval("pairs", stream, stream, clock, before="0s", after="15s")
    plain = op.stateful_map("plain", stream, lambda n, _: ((n or 0) + 1, n))
    for name, out in (("windows", windows.down), ("pairs", pairs.down), ("plain", plain)):
        op.output(f"{name}_out", out, TestingSink([]))
    return flow


def run_on(path: Path, values: list[Any], drain: bool = False) -> EpochReport:
    """Run the flow on a checkpoint, and return the report of its last epoch."""
    reports: list[EpochReport] = []
    run_flow(path, make_flow(values), drain=drain, partitions=2, on_epoch=reports.append)
    return reports[-1]


def reported(report: EpochReport) -> Totals:
    assert not {name for step, name in report.gauges if step == "plain"} & {"open_windows"}
    return {
        step: (report.gauges[step, "open_windows"], report.gauges[step, "buffered_values"])
        for step in STEPS
    }


def shown(path: Path) -> Totals:
    """Return the totals that `recovery status` shows."""
    steps = {one.step: one for one in status(path).steps}
    assert (steps["plain"].open_windows, steps["plain"].buffered_values) == (None, None)
    return {step: (steps[step].open_windows, steps[step].buffered_values) for step in STEPS}


def found_in_state(path: Path) -> Totals:
    """Return the totals over the decoded state of all keys."""
    checkpoint = open_checkpoint(path)
    state = EpochState(checkpoint, checkpoint.newest)

    def counted(step: str) -> Iterator[tuple[int, int]]:
        for kept in state.keys(step):
            snapshot = load_snapshot(kept, step)
            if isinstance(snapshot, IntervalState):
                yield 0, len(snapshot.retained)
            else:
                assert isinstance(snapshot, DriverState)
                yield len(snapshot.windows), len(waiting_values(snapshot))

    found: Totals = {}
    for step in STEPS:
        windows, values = zip(*counted(step), strict=True)
        found[step] = sum(windows), sum(values)
    return found


@pytest.mark.extended
@pytest.mark.parametrize(
    "is_key_by_key",
    [
        pytest.param(False, id="columns"),
        pytest.param(True, id="keys", marks=pytest.mark.extended),
    ],
)
def test_totals_equal_the_counts_over_state_after_a_resume_and_in_another_layout(
    is_key_by_key: bool, tmp_path: Path
) -> None:
    path, values = tmp_path / "checkpoint", [*items(0, 80), EOF(), *items(80, 120)]
    with key_by_key() if is_key_by_key else nullcontext():
        last = run_on(path, values)
    found = found_in_state(path)
    assert reported(last) == shown(path) == found
    # Seven keys are at 73 to 79 s, with watermarks from 53 to 59 s: each has the window from 30 s,
    # and the values after its watermark wait.
    assert found["windows"] == (7, 21)
    assert (found["pairs"][1] or 0) > 0

    rescale(path, shards=3, partitions=1)
    # The first run in a new layout continues on the other path.
    with nullcontext() if is_key_by_key else key_by_key():
        last = run_on(path, [*values, EOF()])
    assert reported(last) == shown(path) == found_in_state(path)
    assert verify(path) == []

    last = run_on(path, [*values, EOF()], drain=True)
    assert reported(last) == {"windows": (0, 0), "pairs": (0, 0)}
