"""Clocks in a flow: outages, ends of input, expired keys and invalid timestamps."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
import flow_windowing as win
from flow import FlowBuildError, StepError
from flow.engine.epoch.context import Control
from flow.engine.local import LocalEngine, Part
from flow.instants import NEVER, Moment, instant_us
from flow.testing import TestDriver, key_by_key
from flow_windowing import EventClock, TumblingWindower
from tests.support.windowed_flows import OneKey, collecting, windowed_flow

NOON = "2024-01-01T12:00:00Z"
NOON_US = instant_us(NOON)
SECOND = 1_000_000
HOUR_US = 3600 * SECOND
TENS = TumblingWindower("10s")


def clock(wait: str = "0s", **options: Any) -> EventClock[Any]:
    return EventClock(lambda second: second, wait, **options)


def driver(sense: Any, windower: Any = TENS, ordered: bool = True) -> TestDriver:
    return TestDriver(
        windowed_flow(lambda up: win.collect_window("w", up, sense, windower, list, ordered)),
        now=NOON,
    )


def send(t: TestDriver, *seconds: Any, key: str = "k") -> None:
    t.send("in", [(key, second) for second in seconds])


def down(t: TestDriver) -> list[Any]:
    return [value for _, (_, value) in t.received("down")]


def late(t: TestDriver) -> list[Any]:
    return [one.value for _, one in t.received("late")]


def keys(t: TestDriver) -> int:
    return t.stats.gauges["w", "keys"]


@pytest.mark.parametrize("ordered", [True, False])
def test_the_backlog_after_an_outage_is_not_late(ordered: bool) -> None:
    # second:  100  .... an hour without the flow ....  the backlog: 101, 105, 3000, 3001
    with driver(clock("5s"), ordered=ordered) as t:
        send(t, 100)
        t.restart(after="1h")
        t.advance("0s")
        send(t, 101, 105, 3000, 3001)
        t.end()
        assert late(t) == []
        assert down(t) == [[100, 101, 105], [3000, 3001]]


def test_system_time_closes_a_half_filled_window_after_an_outage() -> None:
    with driver(win.SystemClock(), TumblingWindower("1m")) as t:
        send(t, 1)
        t.restart(after="1h")
        t.advance("0s")
        assert down(t) == [[1]]


def test_a_later_run_goes_on_with_the_watermark_and_the_count_windows_at_the_end_of_input() -> None:
    with driver(clock()) as t:
        send(t, 1, 25)
        t.end()
        t.restart(after="1h")
        send(t, 3)
        assert (down(t), late(t)) == ([[1], [25]], [3])
    with driver(win.SystemClock(), win.CountWindower(3)) as t:
        send(t, 1, 2)
        t.end()
        assert down(t) == []
        t.restart(after="1h")
        send(t, 3, 4)
        assert down(t) == [[1, 2, 3]]


def test_time_before_and_after_outages_adds_up() -> None:
    # watermark 95 at 100; [90,100) closes at 100: 5 s of running time, with 2 outages in between
    with driver(clock("5s")) as t:
        send(t, 99)
        t.advance("3s")
        t.restart(after="1h")
        t.advance("2s")
        t.restart(after="1h")
        assert down(t) == []
        t.advance("1s")
        assert down(t) == [[99]]


def test_a_watermark_is_not_behind_its_base_when_system_time_was_set_back() -> None:
    logic = clock("5s").build(None)
    logic.on_item(100, Moment(NOON_US))
    logic.settle(Moment(NOON_US))
    assert logic.watermark(Moment(NOON_US - HOUR_US)) == 95 * SECOND


def test_buffered_values_are_due_exactly_at_their_turn() -> None:
    # wait 30: watermark -27 at noon; 3 enters when it is 3, 30 s later; [0,10) closes 7 s after
    with driver(clock("30s")) as t:
        send(t, 3)
        assert t.stats.due_us == NOON_US + 30 * SECOND
        t.advance("29s")
        assert t.stats.due_us == NOON_US + 30 * SECOND
        t.advance("1s")
        assert t.stats.due_us == NOON_US + 37 * SECOND
        t.advance("7s")
        assert (down(t), t.stats.due_us) == ([[3]], NEVER)


def test_an_outage_delays_due_times() -> None:
    with driver(clock("30s")) as t:
        send(t, 3)
        t.restart(after="1h")
        t.advance("30s")
        assert t.stats.due_us == NOON_US + HOUR_US + 37 * SECOND


def test_a_key_expires_after_forget_after_of_silence() -> None:
    # 5 comes at 0 s, [0,10) closes at 5 s; forgotten at 60 s of silence
    with driver(clock(forget_after="60s")) as t:
        send(t, 5)
        t.advance("5s")
        assert (down(t), keys(t)) == ([[5]], 1)
        assert t.stats.due_us == NOON_US + 60 * SECOND
        t.advance("54s")
        assert keys(t) == 1
        t.advance("1s")
        assert (keys(t), t.stats.due_us) == (0, NEVER)


def test_downtime_does_not_count_as_silence() -> None:
    with driver(clock(forget_after="60s")) as t:
        send(t, 5)
        t.advance("30s")
        t.restart(after="1h")
        t.advance("29s")
        assert keys(t) == 1
        t.advance("1s")
        assert keys(t) == 0


def test_a_key_with_an_open_window_does_not_expire() -> None:
    # [0, 1 h) stays open until 3595 s after 5 came, far beyond 60 s of silence
    with driver(clock(forget_after="60s"), TumblingWindower("1h")) as t:
        send(t, 5)
        t.advance("3594s")
        assert (down(t), keys(t)) == ([], 1)
        t.advance("1s")
        assert (down(t), keys(t)) == ([[5]], 0)


def test_a_key_does_not_expire_while_another_window_is_open() -> None:
    # watermark 400:   [0,600) closes 200 s later, [3600,4200) does not
    sense = clock("3600s", forget_after="60s")
    with driver(sense, TumblingWindower("10m"), ordered=False) as t:
        send(t, 5, 4000)
        t.advance("200s")
        assert (down(t), keys(t)) == ([[5]], 1)
        t.end()
        assert down(t) == [[5], [4000]]


def test_the_counter_of_count_windows_expires() -> None:
    # count 2:  1 2 | 3 (open: kept)  4 | forgotten: counting starts again
    with driver(clock(forget_after="60s"), win.CountWindower(2)) as t:
        send(t, 1, 2, 3)
        t.advance("1h")
        assert (keys(t), t.stats.due_us) == (1, NEVER)
        send(t, 4000)
        t.advance("60s")
        assert keys(t) == 0
        send(t, 5, 6)
        ids = [one.window_id for _, (one, _) in t.received("down")]
        assert (ids, down(t)) == ([0, 1, 0], [[1, 2], [3, 4000], [5, 6]])


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("windower", [TENS, win.SessionWindower("5s")])
def test_without_forget_after_two_integers_are_kept(windower: Any, ordered: bool) -> None:
    one = OneKey(collecting(clock(), windower, ordered))
    one.epoch([10, 12, 3, 20, 22], Moment(0))
    one.epoch([], Moment(10**6 * HOUR_US))
    assert len(one.heard.closed) == 2
    assert one.state().clock == (22 * SECOND, 0)
    assert not any(one.state()._replace(clock=None))
    assert one.due_us == NEVER


def test_a_value_without_a_timestamp_can_be_dropped_counted_and_logged() -> None:
    flow = windowed_flow(
        lambda up: win.collect_window("w", up, EventClock("at", "0s", on_invalid="drop"), TENS)
    )
    engine = LocalEngine(flow)
    items = [("k", {"at": 1}), ("k", {"when": 2}), ("k", {"at": "soon"}), ("k", {"at": 3})]
    result = engine.epoch({"in": [Part(items)]}, Control(Moment(0), end_of_input=True))
    assert [value for _, (_, value) in result.outputs["down"]] == [[{"at": 1}, {"at": 3}]]
    assert result.outputs["late"] == []
    assert result.stats.counts["w", "dropped"] == 2
    (note,) = result.stats.notes
    assert "dropped a value: ts_getter 'at' gave no timestamp" in note
    assert "{'at': 'soon'}" in note


def test_a_function_that_raises_stops_the_flow_with_its_error_as_cause() -> None:
    def refuse(value: Any) -> Any:
        raise LookupError("no such thing")

    with driver(EventClock(refuse, "0s")) as t, pytest.raises(StepError) as caught:
        send(t, "the value")
    assert (caught.value.step_id, caught.value.key) == ("w", "k")
    assert caught.value.item == "'the value'"
    assert "ts_getter gave no timestamp: LookupError: no such thing" in str(caught.value)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_replayed_epoch_gives_the_same_results(ordered: bool) -> None:
    sessions = win.SessionWindower("5s")
    flow = windowed_flow(
        lambda up: win.collect_window("w", up, clock("2s"), sessions, list, ordered)
    )
    moments = [Moment(NOON_US + seconds * SECOND, seconds * 10) for seconds in (0, 3, 3, 20)]
    brought = [[1, 2, 9], [3, 8, 4], [30, 29], []]

    def run(engine: LocalEngine, again: bool) -> list[Any]:
        results = []
        for moment, seconds in zip(moments, brought, strict=True):
            parts = {"in": [Part([("k", second) for second in seconds])]}
            before = dict(engine._stores)
            result = engine.epoch(parts, Control(moment))
            if again:
                engine._stores = before
                assert engine.epoch(parts, Control(moment)).outputs == result.outputs
            results.append(result.outputs)
        return results

    assert run(LocalEngine(flow), again=True) == run(LocalEngine(flow), again=False)


LOCAL = EventClock("at", "0s", timezone="Europe/Berlin")
NAIVE = [{"at": datetime(2024, 1, 1, hour)} for hour in (12, 13)]  # noqa: DTZ001


def opened(t: TestDriver) -> list[str]:
    t.end()
    return [f"{window.open_time:%H:%M}" for _, (window, _) in t.received("down")]


@pytest.mark.parametrize("as_columns", [True, False])
@pytest.mark.parametrize("path", [contextlib.nullcontext, key_by_key])
def test_naive_times_are_in_the_zone_of_the_clock(path: Any, as_columns: bool) -> None:
    hours = TumblingWindower("1h")
    with path(), TestDriver(records_flow(LOCAL, hours), now=NOON) as t:
        t.send("in", pa.RecordBatch.from_pylist(NAIVE) if as_columns else NAIVE)
        assert opened(t) == ["11:00", "12:00"]


@pytest.mark.parametrize("as_columns", [True, False])
def test_a_time_that_clocks_skip_is_an_error_or_dropped(as_columns: bool) -> None:
    skipped = [{"at": datetime(2024, 3, 31, 2, 30)}]  # noqa: DTZ001
    items: Any = pa.RecordBatch.from_pylist(skipped) if as_columns else skipped
    with (
        TestDriver(records_flow(LOCAL, TENS), now=NOON) as t,
        pytest.raises(StepError, match="2024-03-31T02:30:00 does not exist in Europe/Berlin"),
    ):
        t.send("in", items)
    dropping = replace(LOCAL, on_invalid="drop")
    with TestDriver(records_flow(dropping, TENS), now=NOON) as t:
        t.send("in", items)
        assert t.stats.counts["w", "dropped"] == 1


def records_flow(sense: Any, windower: Any) -> Any:
    return windowed_flow(
        lambda up: win.aggregate_window(
            "w", op.key_on("key", up, lambda _: "k"), sense, windower, n=win.Count()
        )
    )


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ({"unit": "m"}, "unit must be 's', 'ms', 'us' or 'ns', got 'm'"),
        ({"timezone": "Berlin"}, "timezone must be the name of an IANA time zone, such as"),
        ({"timezone": 1}, "timezone must be the name of an IANA time zone, such as"),
    ],
)
def test_a_wrong_unit_or_zone_is_refused(option: Any, problem: str) -> None:
    with pytest.raises(FlowBuildError, match=problem):
        EventClock("at", "0s", **option)
