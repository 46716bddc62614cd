"""Lowering: the choice of the columnar path, and the reasons for key by key."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, KeyedStream
from flow.engine.plan.compiler import compile_flow
from flow.keyed.step import KeyByKey, OverColumns
from flow.testing import TestingSink, TestingSource, key_by_key

CLOCK = win.EventClock("at", "1m")
STREAM_CLOCK = win.EventClock("at", "1m", scope="stream")
HOURS = win.TumblingWindower("1h")


class Hours(win.TumblingWindower):
    """A windower of the user's own."""


class Clock(win.EventClock[Any]):
    """A clock of the user's own."""


class Runs(win.WindowLogic[Any, Any, Any]):
    """A logic of the user's own."""

    def on_value(self, value: Any) -> Iterator[Any]:
        return iter(())

    def on_close(self) -> Iterator[Any]:
        return iter(())

    def snapshot(self) -> None:
        return None


def make_flow(step: Any) -> Dataflow:
    flow = Dataflow("lowering")
    values: KeyedStream[Any] = op.input("in", flow, TestingSource([]))
    op.output("out", step(values).down, TestingSink([]))
    return flow


def lowering_of(step: Any) -> Any:
    return compile_flow(make_flow(step)).lowered["w"]


def collected(clock: Any = CLOCK, windower: Any = HOURS, **options: Any) -> Any:
    return lambda up: win.collect_window("w", up, clock, windower, **options)


OVER_COLUMNS = {
    "tumbling": collected(),
    "sliding": collected(windower=win.SlidingWindower("1h", "10m")),
    "sessions": collected(windower=win.SessionWindower("5m")),
    "calendar": collected(windower=win.CalendarWindower("day", "Europe/Paris")),
    "count": collected(windower=win.CountWindower(3)),
    "system time": collected(win.SystemClock()),
    "one watermark": collected(STREAM_CLOCK),
    "an interval join": lambda up: win.join_interval("w", up, up, CLOCK, "5s", "2s"),
    "an interval join of a stream": lambda up: win.join_interval(
        "w", up, up, STREAM_CLOCK, "5s", "2s"
    ),
    "an as-of join": lambda up: win.join_asof("w", up, up, win.SystemClock(), "5s"),
    "an as-of join of a stream": lambda up: win.join_asof("w", up, up, STREAM_CLOCK, "5s"),
    "an as-of join at once": lambda up: win.join_asof("w", up, up, CLOCK, "5s", emit="now"),
    "own clock": collected(Clock("at", "1m")),
    "a join by one's own clock": lambda up: win.join_asof("w", up, up, Clock("at", "1m"), "5s"),
    "deduplication by one's own clock": lambda up: win.dedup("w", up, Clock("at", "1m"), ttl="5s"),
    "a join of last values": lambda up: win.join_window("w", up, up, clock=CLOCK, windower=HOURS),
    "a join of all values": lambda up: win.join_window(
        "w", up, up, clock=CLOCK, windower=HOURS, insert_mode="product"
    ),
    "updates": collected(emit="update", ordered=False),
    "updates of counts": collected(windower=win.CountWindower(3), emit="update", ordered=False),
    "counts, each epoch": collected(windower=win.CountWindower(3), emit="epoch", ordered=False),
    "updates of sessions": collected(
        windower=win.SessionWindower("5m"), emit="update", ordered=False
    ),
    "overlapping counts": collected(windower=win.CountWindower(3, 1), ordered=True),
    "gaps between counts, in any order": collected(windower=win.CountWindower(3, 4), ordered=False),
    "sessions with grace, in any order": collected(
        windower=win.SessionWindower("5s", grace="5s"), ordered=False
    ),
    "grace, in any order": lambda up: win.aggregate_window(
        "w", up, CLOCK, win.TumblingWindower("1h", grace="1m"), ordered=True, n=win.Sum("n")
    ),
}

KEY_BY_KEY = {
    "grace": (
        collected(windower=win.TumblingWindower("1h", grace="1m"), ordered=True),
        "`ordered=True` with `grace`",
    ),
    "grace of sessions": (
        collected(windower=win.SessionWindower("5s", grace="5s"), ordered=True),
        "`ordered=True` with `grace`",
    ),
    "gaps between counts": (
        collected(windower=win.CountWindower(3, 4), ordered=True),
        "`ordered=True` with windows that leave gaps",
    ),
    "gaps": (
        collected(windower=win.SlidingWindower("1m", "1h"), ordered=True),
        "`ordered=True` with windows that leave gaps",
    ),
    "a trigger": (
        collected(emit=win.Early(count=2), ordered=False),
        "`emit` is a trigger, and panes have no columnar form",
    ),
    "event sliding": (
        collected(windower=win.EventSlidingWindower("1m")),
        "EventSlidingWindower has no columnar form",
    ),
    "many count windows": (
        collected(windower=win.CountWindower(1000, 1), ordered=False),
        "each value is in more than 64 count windows",
    ),
    "own windower": (collected(windower=Hours("1h")), "Hours has no columnar form"),
    "own logic": (
        lambda up: win.window("w", up, CLOCK, HOURS, lambda _: Runs()),
        "<lambda> is called for each window and value",
    ),
    "a join that starts over": (
        lambda up: win.join_window("w", up, up, clock=CLOCK, windower=HOURS, emit_mode="complete"),
        "a join with insert_mode='last' and emit_mode='complete' is called for each window "
        "and value",
    ),
}


@pytest.mark.parametrize("name", OVER_COLUMNS)
def test_a_step_over_columns(name: str) -> None:
    lowering = lowering_of(OVER_COLUMNS[name])
    assert isinstance(lowering, OverColumns)
    # The plan travels to workers.
    assert len(pickle.loads(pickle.dumps(lowering.shard_logic))().keys()) == 0


@pytest.mark.parametrize("name", KEY_BY_KEY)
def test_a_step_key_by_key_says_why(name: str) -> None:
    step, reason = KEY_BY_KEY[name]
    assert lowering_of(step) == KeyByKey(reason)


def test_the_switch_runs_every_step_of_a_flow_key_by_key() -> None:
    flow = make_flow(collected())
    with key_by_key():
        plan = compile_flow(flow)
    assert plan.lowered["w"] == KeyByKey("`flow.testing.key_by_key` asks for it")
    assert isinstance(compile_flow(flow).lowered["w"], OverColumns)


def test_a_step_of_one_form_keeps_it() -> None:
    with key_by_key():
        assert isinstance(
            lowering_of(lambda up: win.join_interval("w", up, up, CLOCK, "5s", "2s")), OverColumns
        )


def test_fields_are_narrowed_only_over_columns_and_while_nobody_reads_late_values() -> None:
    lowering = lowering_of(lambda up: win.sum_window("w", up, CLOCK, HOURS, by="n"))
    assert lowering.fields_needed(frozenset({0})) == {"at", "n"}
    assert lowering.fields_needed(frozenset({0, 1})) is None
