"""The limits of a run: a busy step, a slow sink or source, silent inputs, held watermarks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import flow.operators as op
from flow import Dataflow
from flow.engine.epoch.statistics import StepBound
from flow.engine.plan.compiler import compile_flow
from flow.monitoring.recorder import Recorder
from flow.monitoring.run_status import Limit
from flow.testing import TestingSink, TestingSource
from tests.support.monitored import Clock, epoch_report, hourly_plan, recorded

BEHIND = {"behind_by": {"visits": 5.0}}
HALF_AN_HOUR_US = 1_800_000_000


def limits(seconds: float = 10.0, **changes: Any) -> tuple[Limit, ...]:
    """Return what limits a run after two epochs, the second `seconds` after the first."""
    clock = Clock(1_000.0)
    recorder = recorded(clock=clock)
    for number in range(2):
        clock.seconds += number * seconds
        status = recorder.add(epoch_report(number, **{"behind": {}, **changes}))
    return status.limits


@pytest.mark.parametrize(
    ("phases", "step_id", "text"),
    [
        (
            {"reading": 0.5, "steps": 8.5, "sinks": 1.0},
            "hours",
            "step 'hours' takes 85% of each epoch: it limits the run to 10 items/s",
        ),
        (
            {"reading": 8.0, "steps": 1.0, "sinks": 1.0},
            "visits",
            "input 'visits' takes 80% of each epoch: the run waits for its source",
        ),
        (
            {"reading": 1.0, "steps": 1.0, "sinks": 3.0, "commit": 5.0},
            "out",
            "output 'out' takes 80% of each epoch: the run waits for its sink",
        ),
    ],
)
def test_the_step_that_takes_most_of_each_epoch_is_the_bottleneck(
    phases: dict[str, float], step_id: str, text: str
) -> None:
    busy = {"visits": 1.0, "hours": 30.0, "out": 1.0}
    found = limits(phases=phases, busy=busy, **BEHIND)
    assert found == (Limit("bottleneck", (step_id,), text),)


def test_no_step_is_the_bottleneck_of_a_run_that_waits_for_data() -> None:
    phases = {"waiting": 5.0, "steps": 4.0}
    assert limits(phases=phases) == ()
    assert len(limits(phases=phases, **BEHIND)) == 1
    assert len(limits(phases={"waiting": 1.0, "steps": 4.0})) == 1, "its epochs follow each other"


def test_two_steps_that_share_the_epochs_are_no_bottleneck() -> None:
    phases = {"reading": 5.0, "steps": 5.0}
    assert limits(phases=phases, **BEHIND) == ()


def test_a_run_without_new_items_is_idle_since_the_last_one() -> None:
    clock = Clock(1_000.0)
    recorder = recorded(clock=clock)
    recorder.add(epoch_report(behind={}))
    clock.seconds = 1_010.0
    idle: dict[str, Any] = {"counts": Counter(), "phases": {"waiting": 1.0}, "busy": {}}
    status = recorder.add(epoch_report(1, **idle, behind={}))
    text = "all data is read: the run waits for new items"
    assert status.limits == (Limit("idle", (), text, 1_000.0),)
    assert recorder.add(epoch_report(2, **idle, behind={"visits": {"visits/0": 1}})).limits == ()


def test_an_input_without_items_starves_a_step_that_reads_others_too() -> None:
    flow = Dataflow("two")
    ends = {name: op.input(name, flow, TestingSource([])) for name in ("orders", "rates")}
    op.output("out", op.merge("both", ends["orders"], ends["rates"]), TestingSink([]))
    clock = Clock(1_000.0)
    recorder = Recorder(compile_flow(flow), "streaming", clock=clock)
    counts = Counter({("orders", "out"): 10})
    clock.seconds = 1_020.0
    changes = {"counts": counts, "behind": {}, "gauges": Counter(), "lags": {}}
    phases = {"waiting": 1.0}
    (limit,) = recorder.add(epoch_report(**changes, phases=phases)).limits
    text = "input 'rates' has no new items, and step 'both' reads it with others"
    assert limit == Limit("starved", ("rates",), text, 1_000.0)


#  seconds   0            9          10                   59                60
#  by a      partition: no limit,    held                 a step: no limit, held
@pytest.mark.parametrize(
    ("bound", "patience", "setter"),
    [
        (StepBound(HALF_AN_HOUR_US, "visits", 3), 10.0, "source partition 3 of input 'visits'"),
        (StepBound(HALF_AN_HOUR_US, "visits"), 60.0, "step 'visits'"),
    ],
)
def test_watermarks_that_do_not_move_have_a_holder(
    bound: StepBound, patience: float, setter: str
) -> None:
    changes: dict[str, Any] = {"bounds": {"hours": bound}, "phases": {"waiting": 1.0}}
    assert limits(patience - 1, **changes) == ()
    text = f"{setter} holds the watermarks of 'hours' at 1970-01-01 00:30:00 UTC"
    assert limits(patience, **changes) == (Limit("held", ("hours",), text, 1_000.0),)


def test_nothing_limits_a_run_that_has_ended() -> None:
    clock = Clock(1_000.0)
    recorder = Recorder(hourly_plan(), "streaming", clock=clock)
    clock.seconds = 1_010.0
    assert recorder.add(epoch_report(phases={"steps": 1.0}, busy={"hours": 1.0})).limits
    assert recorder.fail(ValueError()).limits == ()
