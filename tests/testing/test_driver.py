"""State, watermarks and counts that a test can ask a `TestDriver` for."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, EngineError, FlowBuildError, KeyedStream, Stream
from flow.errors import FlowTypeError
from flow.testing import TestDriver, TestingSink, key_by_key

TEN = datetime(2024, 1, 1, 10, tzinfo=UTC)


def value(minute: int, n: int) -> dict[str, Any]:
    return {"at": TEN.replace(minute=minute), "n": n}


def summed(total: int | None, one: dict[str, Any]) -> tuple[int, int]:
    now = (total or 0) + one["n"]
    return now, now


def visits(scope: Any = "key", **options: Any) -> Dataflow:
    flow = Dataflow("visits")
    values: KeyedStream[Any] = op.input("in", flow, [])
    clock = win.EventClock("at", "5m", on_idle="hold", scope=scope)
    hours = win.TumblingWindower("10m")
    out = win.aggregate_window("hours", values, clock, hours, **options, n=win.Sum("n"))
    op.output("out", out.down, TestingSink([]))
    op.output("totals", op.stateful_map("total", values, summed), TestingSink([]))
    return flow


def test_take_returns_what_came_since_the_last_take() -> None:
    t = TestDriver(visits(), now=TEN)
    t.send("in", [("a", value(1, 1)), ("a", value(2, 2))])
    assert t.take("totals") == [("a", 1), ("a", 3)]
    t.send("in", [("a", value(3, 3))])
    assert t.take("totals") == [("a", 6)]
    assert t.take("totals") == []


def test_received_is_a_copy() -> None:
    t = TestDriver(visits(), now=TEN)
    t.received("totals").append("nothing")
    assert t.received("totals") == []


def test_an_output_that_the_flow_lacks_is_named() -> None:
    with pytest.raises(FlowBuildError, match="the flow has no output 'totel'"):
        TestDriver(visits()).take("totel")


def test_the_state_of_a_step_with_a_function_is_its_state() -> None:
    t = TestDriver(visits(), now=TEN)
    t.send("in", [("a", value(1, 1)), ("a", value(2, 2))])
    assert t.state("total", "a") == 3
    assert t.state("total", "b") is None
    assert t.watermark("total", "a") is None


@pytest.mark.parametrize("columns", [True, False], ids=["over columns", "key by key"])
def test_the_state_of_windows_is_shown_with_watermark_and_values(columns: bool) -> None:
    with nullcontext() if columns else key_by_key():
        t = TestDriver(visits(), now=TEN)
        t.send("in", [("a", value(1, 1)), ("a", value(12, 2)), ("a", value(13, 4))])
        state = t.state("hours", "a")
    assert state["watermark"] == TEN.replace(minute=8) == t.watermark("hours", "a")
    windows = {window.open_time.minute: figures for window, figures in state["windows"].items()}
    assert windows == {0: {"n": 1}, 10: {"n": 6}}
    assert state["buffered"] == []


def test_buffered_values_are_shown_in_order_of_time() -> None:
    flow = Dataflow("waiting")
    values: KeyedStream[Any] = op.input("in", flow, [])
    clock, hours = win.EventClock("at", "5m", on_idle="hold"), win.TumblingWindower("10m")
    op.output("out", win.collect_window("w", values, clock, hours).down, TestingSink([]))
    t = TestDriver(flow, now=TEN)
    t.send("in", [("a", value(12, 2)), ("a", value(11, 1))])
    assert [one["n"] for one in t.state("w", "a")["buffered"]] == [1, 2]


def test_the_watermark_of_a_stream_is_that_of_every_key() -> None:
    t = TestDriver(visits(scope="stream"), now=TEN)
    t.send("in", [("a", value(1, 1)), ("b", value(30, 2))])
    assert t.watermark("hours", "a") == t.watermark("hours", "b") == TEN.replace(minute=25)


def test_looking_changes_nothing() -> None:
    looked, left = TestDriver(visits(), now=TEN), TestDriver(visits(), now=TEN)
    for t in (looked, left):
        for minute in (1, 12, 25):
            t.send("in", [("a", value(minute, 1))])
            if t is looked:
                t.state("hours", "a")
                t.watermark("hours", "a")
        t.end()
    assert looked.received("out") == left.received("out")


def test_late_values_are_counted_by_step() -> None:
    t = TestDriver(visits(), now=TEN)
    t.send("in", [("a", value(30, 1)), ("a", value(1, 2)), ("a", value(2, 3))])
    assert t.late("hours") == 2


def test_a_step_without_state_is_named() -> None:
    t = TestDriver(visits())
    for step_id in ("in", "hour"):
        for look in (lambda name: t.state(name, "a"), t.late, t.hold):
            with pytest.raises(EngineError, match=f"step '{step_id}' is not a keyed step"):
                look(step_id)


def test_what_is_no_flow_or_no_number_of_shards_is_refused() -> None:
    flow: Any = visits()
    with pytest.raises(FlowTypeError, match="TestDriver needs a Dataflow, got Stream"):
        TestDriver(Stream(flow, flow.step("in").downs[0]))  # type: ignore[arg-type]
    with pytest.raises(FlowBuildError, match="TestDriver: shards must be a whole number of at"):
        TestDriver(flow, shards=0)


def test_a_list_is_a_source() -> None:
    flow = Dataflow("list")
    numbers = op.input("in", flow, [1, 2, 3])
    op.output("out", numbers, TestingSink([]))
    assert repr(flow.step("in").operator) == (
        "Input(source=from_items([...], batch_size=10000), errors=False)"
    )
