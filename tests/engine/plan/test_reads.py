"""The results that steps read: the waits and the moments that follow from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.plan import Plan
from flow.keyed.logic import StatefulLogic
from flow.testing import TestingSink, TestingSource

SECOND = 1_000_000
CLOCK = win.EventClock("at", "10s")
TEN, DAY = win.TumblingWindower("10s"), 86_400

Wire = Callable[[Dataflow, Any], dict[str, Any]]


def plan_of(wire: Wire) -> Plan:
    """Return the plan of a flow whose last step, ``reader``, reads streams with windows."""
    flow = Dataflow("reads")
    values = op.input("in", flow, TestingSource([]))
    for name, stream in wire(flow, values).items():
        op.output(f"{name}.out", stream, TestingSink([]))
    return compile_flow(flow)


def reader(*ups: Any, wait: str = "0s", **clock: Any) -> dict[str, Any]:
    up = ups[0] if len(ups) == 1 else op.merge("merged", *ups)
    out = win.aggregate_window(
        "reader", up, win.EventClock("at", wait, **clock), TEN, n=win.Count()
    )
    return {"reader": out.down}


def windows(values: Any, windower: Any = TEN, name: str = "windows", **options: Any) -> Any:
    return win.aggregate_window(name, values, CLOCK, windower, n=win.Count(), **options)


def spread(values: Any, windower: Any, **options: Any) -> dict[str, Any]:
    return reader(windows(values, windower, **options).down)


WAITS: dict[str, tuple[Wire, float]] = {
    "closed windows lag alike": (lambda _, values: spread(values, TEN), 0),
    "a longer wait stays": (lambda _, values: reader(windows(values).down, wait="50s"), 50),
    "plain values come first": (lambda _, values: reader(windows(values).down, values), 20),
    "by close": (lambda _, values: reader(windows(values, timestamp="close").down, values), 10),
    "updates leave early": (lambda _, values: spread(values, TEN, emit="update"), 20),
    "early closes lie ahead": (
        lambda _, values: spread(values, TEN, emit="update", timestamp="close"),
        20,
    ),
    "early closes and values": (
        lambda _, values: reader(windows(values, emit="update", timestamp="close").down, values),
        20,
    ),
    "panes": (lambda _, values: spread(values, TEN, emit=win.Early(count=2)), 20),
    "two lengths": (
        lambda _, values: reader(
            windows(values).down, windows(values, win.TumblingWindower("1m"), "minutes").down
        ),
        50,
    ),
    "sessions stay a gap behind": (lambda _, values: spread(values, win.SessionWindower("5s")), 0),
    "sessions with a grace": (
        lambda _, values: spread(values, win.SessionWindower("5s", grace="3s")),
        0,
    ),
    "months differ by three days": (
        lambda _, values: spread(values, win.CalendarWindower("month", "UTC")),
        3 * DAY,
    ),
    "a zone's offsets differ": (
        lambda _, values: spread(values, win.CalendarWindower("day", "Europe/Berlin")),
        2 * 3600,
    ),
    "pairs leave early": (
        lambda _, values: reader(win.join_interval("j", values, values, CLOCK, "5s", "5s").down),
        10,
    ),
    "late values": (
        lambda _, values: reader(windows(values).late, windows(values, name="w").down),
        20,
    ),
    "three levels": (
        lambda _, values: reader(
            win.count_window("n", windows(values).down, CLOCK, TEN, str).down, values
        ),
        30,
    ),
}
"""Flows, each with the wait of the reader in seconds."""


@pytest.mark.parametrize("name", WAITS)
def test_a_reader_waits_for_the_spread_of_its_lags(name: str) -> None:
    wire, seconds = WAITS[name]
    plan = plan_of(wire)
    wait_us = plan.keyed("reader").capabilities.wait_us
    assert plan.capabilities["reader"].wait_us == wait_us == pytest.approx(seconds * SECOND)
    assert plan.waits.get("reader", seconds * SECOND) == seconds * SECOND


class Emitting(StatefulLogic[Any, Any, None]):
    def on_item(self, value: Any, moment: Any) -> Any:
        raise NotImplementedError

    def snapshot(self) -> None:
        raise NotImplementedError


class Ending(Emitting):
    def on_end(self, moment: Any) -> Any:
        raise NotImplementedError


def expiring(port: str) -> Wire:
    def wire(_: Dataflow, values: Any) -> dict[str, Any]:
        out = op.stateful_map("s", values, lambda state, value: (state, value), ttl="1m")
        return reader(getattr(out, port))

    return wire


MOMENTS: dict[str, tuple[Wire, bool]] = {
    "plain values": (lambda _, values: reader(values), False),
    "results": (lambda _, values: reader(windows(values).down), True),
    "closed windows": (lambda _, values: reader(windows(values).closed), True),
    "late values": (lambda _, values: reader(windows(values).late), True),
    "ignored results": (
        lambda _, values: reader(windows(values).down, upstream="ignore"),
        False,
    ),
    "results through a map with state": (
        lambda _, values: reader(
            op.stateful_map("s", windows(values).down, lambda s, value: (s, value))
        ),
        True,
    ),
    "a map with state": (
        lambda _, values: reader(op.stateful_map("s", values, lambda s, value: (s, value))),
        False,
    ),
    "state that expires": (expiring("down"), False),
    "expired state": (expiring("expired"), True),
    "repeats dropped": (
        lambda _, values: reader(win.dedup("d", values, CLOCK, ttl="1m").down),
        False,
    ),
    "lists": (lambda _, values: reader(op.collect("c", values, "1m", 5)), True),
    "folds": (lambda _, values: reader(op.fold_final("f", values, int, max)), True),
    "windows of system time": (
        lambda _, values: reader(win.collect_window("w", values, win.SystemClock(), TEN).down),
        True,
    ),
    "a logic that emits at once": (
        lambda _, values: reader(op.stateful("s", values, Emitting)),
        False,
    ),
    "a logic with an end": (lambda _, values: reader(op.stateful("s", values, Ending)), True),
    "a logic that is not known": (
        lambda _, values: reader(op.stateful("s", values, lambda _: Emitting())),
        True,
    ),
    "redistributed results": (
        lambda _, values: reader(
            op.key_on("k", op.redistribute("r", windows(values).down), lambda _: "k")
        ),
        True,
    ),
}
"""Flows, each with True if an epoch is one moment for the reader."""


@pytest.mark.parametrize("name", MOMENTS)
def test_an_epoch_is_one_moment_for_a_step_that_reads_results(name: str) -> None:
    wire, is_moment = MOMENTS[name]
    assert plan_of(wire).is_moment("reader") is is_moment


def test_only_streams_that_are_read_in_event_time_hold() -> None:
    def wire(_: Dataflow, values: Any) -> dict[str, Any]:
        states = win.stateful_map("states", values, CLOCK, lambda s, value: (s, value), ttl="1m")
        apart = windows(values, name="apart")
        return {"apart": apart.down, "down": states.down, **reader(states.expired)}

    plan = plan_of(wire)
    assert plan.holding == {"states": frozenset({2})}
    assert not plan.measures_bound("apart")
