"""Holds of steps: the least timestamp of what the state of each kind of step may still make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.engine.epoch.context import Control
from flow.engine.progress.bound import Bound, BoundState
from flow.engine.progress.meter import Marks, Partition
from flow.instants import NEVER, Moment
from flow.testing import Part, TestDriver, TestingSink, TestingSource, key_by_key
from tests.support.own_clock import own

SECOND = 1_000_000
CLOCK = win.EventClock("at", "10s", on_idle="hold")
MINUTES = win.TumblingWindower("1m")

Wire = Callable[[Any], Any]


def driver_of(wire: Wire, **clock: Any) -> TestDriver:
    """Return a driver of a flow with a step that reads the results of a step ``s``."""
    flow = Dataflow("holds")
    values = op.input("in", flow, TestingSource([]))
    at = win.EventClock(lambda value: time_of(value), "0s", **clock)
    out = win.collect_window("reader", wire(values), at, win.TumblingWindower("10s"))
    op.output("out", out.down, TestingSink([]))
    op.output("late", out.late, TestingSink([]))
    return TestDriver(flow, now=0, shards=2)


def time_of(value: Any) -> Any:
    match value:
        case {"at": at}:
            return at
        case win.LateValue():
            return value.timestamp
        case win.WindowMetadata():
            return value.timestamp or value.open_time
    return time_of(value[0])


def values_at(*times: float) -> list[Any]:
    return [("k", {"at": at, "n": 1}) for at in times]


def sums(**options: Any) -> Wire:
    options = {"windower": MINUTES, **options}
    return lambda values: win.aggregate_window("s", values, CLOCK, n=win.Sum("n"), **options).down


def lists(**options: Any) -> Wire:
    return lambda values: win.collect_window("s", values, CLOCK, MINUTES, **options).down


def interval(how: Any, port: str = "down") -> Wire:
    def wire(values: Any) -> Any:
        left, right = op.branch("side", values, lambda item: item[1]["n"] == 1)
        return getattr(win.join_interval("s", left, right, CLOCK, "1m", "1m", how), port)

    return wire


def as_of(values: Any) -> Any:
    left, right = op.branch("side", values, lambda item: item[1]["n"] == 1)
    return win.join_asof("s", left, right, CLOCK, tolerance="1m").down


def state(port: str) -> Wire:
    def count(state: int | None, value: Any) -> tuple[int, Any]:
        return (state or 0) + 1, value

    def wire(values: Any) -> Any:
        out = win.stateful_map("s", values, CLOCK, count, ttl="1m")
        if port == "down":
            return out.down
        return op.map("x", out.expired, lambda item: (item[0], {"at": 0}))

    return wire


HOLDS: dict[str, tuple[Wire, Sequence[float], float | None]] = {
    "an open window by its open": (sums(), [95], 60),
    "by its close": (sums(timestamp="close"), [95], 120),
    "by its greatest timestamp": (sums(timestamp="last"), [95, 99, 97], 99),
    "the least of several": (sums(), [95, 125], 60),
    "a session": (sums(windower=win.SessionWindower("1m"), timestamp="close"), [95, 99], 99),
    "a count window holds nobody": (sums(windower=win.CountWindower(2)), [95], None),
    "a window with a trigger": (sums(emit=win.Early(count=5)), [95], 60),
    "a buffered value less its reach": (lists(), [95], 35),
    "a buffered value by its close": (lists(timestamp="close"), [95], 95),
    "a closed window holds no longer": (sums(), [95, 200], 180),
    "a pair holds nobody": (interval("inner"), [95], None),
    "a side that leaves alone": (interval("left"), [95], 95),
    "a value that waits for its time": (as_of, [95], 95),
    "state waits for its value": (state("down"), [95], 95),
    "state that was written holds nobody": (state("down"), [95, 106], 106),
    "state that expires": (state("expired"), [95, 160], 155),
}
"""Steps, the times of their values, and their hold in seconds."""


@pytest.mark.parametrize("in_columns", [True, False], ids=["columns", "key by key"])
@pytest.mark.parametrize("name", HOLDS)
def test_a_step_holds_at_the_least_result_of_its_state(name: str, in_columns: bool) -> None:
    wire, times, seconds = HOLDS[name]
    with nullcontext() if in_columns else key_by_key():
        driver = driver_of(wire)
        driver.send("in", values_at(*times))
        wanted = None if seconds is None else datetime.fromtimestamp(seconds, UTC)
        assert driver.hold("s") == wanted
        driver.send("in", [])  # The hold is that of state which no value touches.
        assert driver.hold("s") == wanted


@pytest.mark.parametrize(
    ("wire", "seconds"),
    [
        (sums(), 100 - 10 - 60),
        (sums(timestamp="close"), 100 - 10),
        (lambda values: win.collect_window("s", values, CLOCK, MINUTES).late, 100 - 10),
        (interval("inner"), 100 - 10),
    ],
)
def test_a_step_holds_at_its_bound_less_its_reach_while_a_source_is_behind(
    wire: Wire, seconds: float
) -> None:
    driver = driver_of(wire)
    driver.send("in", [("k", {"at": 100, "n": 2})], behind=True)
    assert driver.hold("s") == datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize("in_columns", [True, False], ids=["columns", "key by key"])
@pytest.mark.parametrize("is_own", [False, True], ids=["event clock", "own clock"])
def test_a_watermark_that_was_used_is_not_taken_back(in_columns: bool, is_own: bool) -> None:
    """The hold of ``s`` falls from 600 s to 60 s after a value has been judged at 470 s."""
    flow = Dataflow("holds")
    keyed = op.key_on("keyed", op.input("in", flow, TestingSource([])), "key")
    tens = win.TumblingWindower("10s")
    patient = win.EventClock("at", "0s", on_idle="hold")
    results = win.aggregate_window("s", keyed, patient, tens, n=win.Count())
    times = op.map("all", results.down, lambda item: ("all", item[1][0].open_time))
    clock: Any = win.EventClock(lambda time: time, "0s")
    hour = win.TumblingWindower("1h")
    out = win.collect_window("reader", times, own(clock) if is_own else clock, hour, ordered=False)
    op.output("late", out.late, TestingSink([]))
    with nullcontext() if in_columns else key_by_key():
        driver = TestDriver(flow, now=0, shards=2)
        for passed, items in (
            (0, [("z", 600), ("x", 450), ("x", 700)]),
            (20, []),
            (0, [("v", 460), ("v", 471), ("y", 60)]),
            (0, [("y", 71)]),
        ):
            if passed:
                driver.advance(timedelta(seconds=passed))
            driver.send("in", [{"key": key, "at": at} for key, at in items])
        late = [(value.timestamp, value.watermark) for _, value in driver.received("late")]
        at_470 = datetime.fromtimestamp(470, UTC)
        assert late == [(datetime.fromtimestamp(at, UTC), at_470) for at in (460, 60)]


@pytest.mark.parametrize("in_columns", [True, False])
def test_a_key_is_due_as_its_hold_ends_while_the_clock_of_the_inputs_stands(
    in_columns: bool,
) -> None:
    with nullcontext() if in_columns else key_by_key(), driver_of(lambda values: values) as t:
        both = [("in", 0), ("in", 1)]
        t.send("in", [])
        first = [("a", {"at": 5}), ("a", {"at": 100})], [("b", {"at": 3})]
        for parts in (first, ([], [("b", {"at": 50})])):
            assert t.take("out") == []
            sent = [Part(part, number) for number, part in enumerate(parts)]
            t.send_parts({"in": sent}, after="100s", behind=both)
        assert sorted(key for key, _ in t.take("out")) == ["a", "b"]


def test_a_stream_clock_below_its_bound_is_due_by_time() -> None:
    """The window of ``z`` holds at 4000 s; the reader's window closes as 60 s more have passed."""
    driver = driver_of(sums(), scope="stream")
    driver.send("in", [("z", {"at": 4000, "n": 1}), *values_at(5, 75)])
    assert driver.stats.dues["reader"] == 10 * SECOND


def test_values_of_several_partitions_that_pass_a_step_are_bounded_each_by_its_own() -> None:
    flow = Dataflow("passed")
    values = op.input("in", flow, TestingSource([]))
    passed = win.dedup("passed", values, win.SystemClock(), lambda value: value, ttl="1s")
    clock = win.EventClock(lambda at: at, "0s", scope="stream")
    out = win.collect_window("out", passed.down, clock, win.TumblingWindower("1m"))
    op.output("late", out.late, TestingSink([]))
    driver = TestDriver(flow, now=0, shards=1)
    fast, slow = [("k", 100.0), ("k", 110.0)], [("k", 10.0), ("k", 20.0)]
    driver.send_parts({"in": [Part(fast, 0), Part(slow, 1)]}, behind=[("in", 0), ("in", 1)])
    assert driver.received("late") == []


def test_a_bound_that_is_only_measured_leaves_nothing_to_apply_later() -> None:
    marks = Marks(0, Partition("in", 0), np.array([5]), np.array([70 * SECOND]), last=5)
    control = Control(Moment(0), behind=frozenset({("in", 0)}), sources=(("in", 0),))
    bounds = [
        Bound(BoundState(), [marks], control, ["in"], ["in"], applies=applies)
        for applies in (True, False)
    ]
    assert [one.after_us for one in bounds] == [70 * SECOND] * 2
    assert [one.kept.bound_us for one in bounds] == [70 * SECOND, NEVER]


@pytest.mark.parametrize("path", [nullcontext, key_by_key])
def test_results_of_a_key_leave_in_order_at_the_end_of_the_steps_that_they_read(path: Any) -> None:
    flow, endless = Dataflow("ends"), win.EventClock(lambda at: at, timedelta.max)
    values = op.input("in", flow, TestingSource([]))
    minutes = win.collect_window("w", values, endless, win.TumblingWindower("1m"))
    of_results = win.EventClock(lambda result: result[0].open_time, "0s")
    read = win.collect_window(
        "read", minutes.down, of_results, win.CountWindower(2), ordered=False, emit="epoch"
    )
    op.output("out", read.down, TestingSink([]))
    with path(), TestDriver(flow) as t:
        t.send("in", [("k", 60 * minute) for minute in range(3)])
        t.end()
        assert [(window.window_id, len(some)) for _, (window, some) in t.received("out")] == [
            (0, 2),
            (1, 1),
        ]
