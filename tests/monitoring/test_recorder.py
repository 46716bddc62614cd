"""The status of a run, made from the reports of its epochs."""

from __future__ import annotations

from collections import Counter

import pytest

import flow.operators as op
from flow import Dataflow, Summary
from flow.engine.epoch.statistics import MAX_ITEMS, LateItem, LateSource
from flow.engine.epoch.summary import WatermarkLag
from flow.engine.plan.compiler import compile_flow
from flow.errors import SinkError, StepError
from flow.monitoring.recorder import HISTORY_EPOCHS, Recorder
from flow.monitoring.run_status import (
    ErrorStatus,
    RunState,
    StepStatus,
    health_of,
    late_json,
    status_json,
)
from flow.reports.graph import GraphEdge, graph_of
from flow.testing import TestingSink, TestingSource
from tests.support.monitored import SIZES, Clock, epoch_report, hourly_plan, recorded


def test_the_graph_has_levels_and_the_path_of_each_keyed_step() -> None:
    graph = graph_of(hourly_plan())
    assert [(step.step_id, step.role, step.level, step.runs) for step in graph.steps] == [
        ("visits", "input", 0, ""),
        ("hours", "keyed", 1, "over columns"),
        ("out", "output", 1, ""),
        ("late", "output", 1, ""),
    ]


def test_a_step_key_by_key_has_its_reason() -> None:
    flow = Dataflow("sums")
    numbers = op.input("numbers", flow, TestingSource([]))
    op.output("out", op.stateful_map("sum", numbers, lambda s, v: (v, v)), TestingSink([]))
    step = graph_of(compile_flow(flow)).steps[1]
    assert (step.runs, step.reason) == ("key by key", "stateful_map calls Python for each key")


#        ┌─trues──▶ double ─▶┐
#   even ┤                   both ─▶ out
#        └─falses ──────────▶┘
def test_an_edge_has_a_counter_if_one_counts_its_items_alone() -> None:
    flow = Dataflow("edges")
    even = op.branch("even", op.input("in", flow, TestingSource([])), lambda n: n % 2 == 0)
    double = op.map("double", even.trues, lambda n: 2 * n)
    op.output("out", op.merge("both", double, even.falses), TestingSink([]))
    assert graph_of(compile_flow(flow)).edges == (
        GraphEdge("in", "down", "even", ("even", "in")),
        GraphEdge("even", "trues", "double", ("double", "in")),
        GraphEdge("double", "down", "both", ("double", "out")),
        GraphEdge("even", "falses", "both", None),
        GraphEdge("both", "down", "out", ("out", "in")),
    )


def test_counts_are_totals_of_epochs_and_gauges_the_newest() -> None:
    status = recorded(epoch_report(0, 100), epoch_report(1, 50)).status
    assert {step_id: step.counts for step_id, step in status.steps.items()} == {
        "visits": {"out": 150},
        "hours": {"in": 150, "late": 4},
        "out": {},
        "late": {"in": 4},
    }
    assert status.steps["hours"].gauges == SIZES
    assert status.epochs == 2
    assert status.phase_seconds["commit"] == pytest.approx(0.8)
    assert status.steps["hours"].busy_seconds == 3.0


def test_a_run_starts_before_its_first_epoch() -> None:
    recorder = recorded()
    assert recorder.status.state is RunState.STARTING
    assert recorder.start().state is RunState.RUNNING
    assert recorder.status.epochs == 0


def test_a_status_does_not_change_afterwards() -> None:
    recorder = recorded(epoch_report())
    before = recorder.status
    recorder.add(epoch_report(1))
    assert before.steps["visits"].counts == {"out": 100}
    assert before.epochs == 1
    with pytest.raises(TypeError):
        before.steps["visits"] = StepStatus()  # type: ignore[index]


#  seconds   1000     1005     1010     1020
#  items        0       50      100      100
def test_rates_are_those_of_the_last_ten_seconds() -> None:
    clock = Clock(1_000.0)
    recorder = Recorder(hourly_plan(), "streaming", clock=clock)
    rates = []
    for seconds, items in ((1_005.0, 50), (1_010.0, 50), (1_020.0, 0)):
        clock.seconds = seconds
        status = recorder.add(epoch_report(items=items))
        rates.append(status.steps["visits"].rates["out"])
    assert rates == [10.0, 10.0, 0.0]


def test_a_step_without_items_keeps_the_time_of_its_last_items_and_its_lag() -> None:
    clock = Clock(1_000.0)
    recorder = recorded(epoch_report(), clock=clock)
    clock.seconds = 1_100.0
    status = recorder.add(epoch_report(1, counts=Counter(), lags={}))
    assert status.steps["visits"].active_at == 1_001.0
    assert status.steps["out"].active_at is None
    assert status.steps["hours"].lag == WatermarkLag(10.0, 12.0, 60.0, 4)
    assert status.last_commit_at == 1_100.0


def test_the_history_is_bounded() -> None:
    status = recorded(*(epoch_report(number) for number in range(HISTORY_EPOCHS + 5))).status
    assert len(status.history) == HISTORY_EPOCHS
    assert (status.history[0].epoch, status.history[-1].index) == (5, HISTORY_EPOCHS + 5)
    assert status.history[-1].behind == 5


@pytest.mark.parametrize(
    ("is_stopped", "state"), [(False, RunState.ENDED), (True, RunState.STOPPED)]
)
def test_nothing_moves_after_the_end(is_stopped: bool, state: RunState) -> None:
    status = recorded(epoch_report()).end(Summary("hourly", "streaming", stopped=is_stopped))
    assert (status.state, status.ended_at) == (state, 1_001.0)
    assert status.steps["visits"].rates == {}
    assert status.steps["visits"].counts == {"out": 100}


def test_a_failure_names_its_step_its_key_and_its_item() -> None:
    error = StepError("hours", "the clock raised ValueError: no", key="ann", item="{'at': None}")
    status = recorded(epoch_report()).fail(error)
    assert (status.state, status.epochs) == (RunState.FAILED, 1)
    assert status.error == ErrorStatus(
        1_001.0,
        "the clock raised ValueError: no",
        step_id="hours",
        key="'ann'",
        item="{'at': None}",
        remedy="Correct step 'hours', or the data, and start the run again: "
        "without recovery=RecoveryConfig(...) it reads its inputs from the start.",
    )
    assert health_of(status, 1_001.0).reason == (
        "the run has failed: step 'hours': the clock raised ValueError: no"
    )


def test_a_failure_of_a_run_with_a_checkpoint_says_where_the_next_run_continues() -> None:
    error = recorded(epoch_report()).fail(SinkError("disk full"), has_checkpoint=True).error
    assert error is not None
    assert error.message == "disk full"
    assert error.remedy == (
        "Remove the cause and start the run again: it continues after the last commit, "
        "and reads what follows once more."
    )


def test_an_interrupt_without_a_message_has_its_name() -> None:
    error = recorded().fail(KeyboardInterrupt()).error
    assert error is not None
    assert error.message == "KeyboardInterrupt"


# --- late values ---


SOURCE = LateSource("hours", "b.csv", "a.csv")


def test_the_advice_covers_all_epochs_and_names_the_main_source() -> None:
    first = epoch_report(0, lateness=Counter({("hours", 4_000_000): 98}))
    second = epoch_report(
        1, lateness=Counter({("hours", 9_000_000): 2}), late_sources=Counter({SOURCE: 2})
    )
    status = recorded(first, second, epoch_report(2)).status
    assert status.steps["hours"].late_advice == (
        "a wait_for_system_duration longer by 9s would have been enough for all of them; "
        "2 of them came from b.csv, while a.csv was furthest ahead"
    )
    assert status.steps["visits"].late_advice == ""
    assert status_json(status)["steps"]["hours"]["late_advice"].startswith("a wait_for_system")


def test_a_status_has_the_newest_late_values_of_a_step() -> None:
    def items(first: int, count: int) -> tuple[LateItem, ...]:
        return tuple(
            LateItem("hours", "k", f"{n}", "late", n, None) for n in range(first, first + count)
        )

    status = recorded(
        epoch_report(0, late_items=items(0, 15)), epoch_report(1, late_items=items(15, 15))
    ).status
    assert status.steps["hours"].late_items == items(10, MAX_ITEMS)
    assert status.steps["out"].late_items == ()
    assert "late_items" not in status_json(status)["steps"]["hours"], "contents are asked for apart"


def test_late_values_have_times_in_seconds() -> None:
    item = LateItem("hours", "k", "'v'", "late", 1_500_000, 4_000_000, ((0, 0, 2_000_000),), 3)
    times = {"timestamp": 1.5, "watermark": 4.0}
    windows = [{"id": 0, "open": 0.0, "close": 2.0}]
    assert late_json([item]) == [
        {"key": "k", "value": "'v'", "reason": "late", **times, "windows": windows, "missed": 3}
    ]
