"""Windowing operators in the in-process driver: lateness, order, time, state and errors."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, StepError
from flow.errors import FlowBuildError, FlowTypeError
from flow.testing import TestDriver, TestingSink, TestingSource
from flow_windowing import EventClock, SystemClock, TumblingWindower

NOON = "2024-01-01T12:00:00Z"


def seconds(value: Any) -> float:
    return value if isinstance(value, (int, float)) else value[0]


def collecting(
    clock: win.Clock[Any, Any] | None = None,
    into: type = list,
    length: str = "10s",
    ordered: bool = True,
) -> Dataflow:
    """Key every value alike, and collect windows; values are their own time, in seconds."""
    flow = Dataflow("collecting")
    keyed = op.input("in", flow, TestingSource([]))
    clock = clock or EventClock(seconds, "0s")
    out = win.collect_window("w", keyed, clock, TumblingWindower(length), into, ordered)
    for name in out._fields:
        op.output(name, getattr(out, name), TestingSink([]))
    return flow


def keyed(*values: Any) -> list[tuple[str, Any]]:
    return [("k", value) for value in values]


def down(driver: TestDriver) -> list[tuple[str, int, Any]]:
    return [(key, meta.window_id, value) for key, (meta, value) in driver.received("down")]


def late(driver: TestDriver) -> list[tuple[Any, int]]:
    return [(one.value, one.window.window_id) for _, one in driver.received("late")]


def test_a_window_emits_when_the_watermark_passes_its_close() -> None:
    # 1  5   |10  12    |20
    with TestDriver(collecting()) as t:
        t.send("in", keyed(1, 5))
        assert down(t) == []
        t.send("in", keyed(12))
        assert down(t) == [("k", 0, [1, 5])]
        assert [(key, meta.window_id) for key, meta in t.received("closed")] == [("k", 0)]
        t.end()
        assert down(t) == [("k", 0, [1, 5]), ("k", 1, [12])]


def test_keys_have_watermarks_of_their_own() -> None:
    with TestDriver(collecting()) as t:
        t.send("in", [("a", 100), ("b", 1)])
        t.end()
        assert sorted(down(t)) == [("a", 10, [100]), ("b", 0, [1])]
        assert t.received("late") == []


def test_a_value_behind_its_keys_watermark_is_late_even_when_its_window_is_open() -> None:
    with TestDriver(collecting(EventClock(seconds, "2s"))) as t:
        t.send("in", keyed(5, 3, 2))
        t.end()
        assert down(t) == [("k", 0, [3, 5])]
        (_, missed) = t.received("late")[0]
        assert (missed.value, missed.late_by) == (2, timedelta(seconds=1))
        assert missed.reason is win.LateReason.LATE
        assert t.stats.counts["w", "late"] == 1


def test_ordered_values_enter_by_time_and_ties_by_arrival() -> None:
    with TestDriver(collecting(EventClock(seconds, "10s"))) as t:
        t.send("in", keyed((5, "a"), (3, "b"), (5, "c")))
        t.end()
        assert down(t) == [("k", 0, [(3, "b"), (5, "a"), (5, "c")])]


def test_unordered_values_enter_by_arrival() -> None:
    with TestDriver(collecting(EventClock(seconds, "10s"), ordered=False)) as t:
        t.send("in", keyed((5, "a"), (3, "b"), (5, "c")))
        t.end()
        assert down(t) == [("k", 0, [(5, "a"), (3, "b"), (5, "c")])]


def test_values_that_wait_can_be_of_types_that_do_not_compare() -> None:
    with TestDriver(collecting(EventClock(lambda value: 5, "10s"))) as t:
        t.send("in", keyed({"a": 1}, "text", None))
        t.end()
        assert down(t) == [("k", 0, [{"a": 1}, "text", None])]


def test_a_silent_key_closes_its_windows_as_system_time_passes() -> None:
    with TestDriver(collecting(EventClock(seconds, "5s")), now=NOON) as t:
        t.send("in", keyed(8))
        t.advance("6s")
        assert down(t) == []
        t.advance("1s")
        assert down(t) == [("k", 0, [8])]


def test_a_key_whose_windows_have_closed_still_remembers_its_watermark() -> None:
    with TestDriver(collecting()) as t:
        t.send("in", keyed(1, 25))
        t.end()
        t.send("in", keyed(3))
        t.end()
        assert down(t) == [("k", 0, [1]), ("k", 2, [25])]
        assert late(t) == [(3, 0)]


def test_after_an_hours_outage_the_backlog_is_on_time() -> None:
    with TestDriver(collecting(EventClock(seconds, "5s")), now=NOON) as t:
        t.send("in", keyed(100))
        t.restart(after="1h")
        t.send("in", keyed(101, 102))
        t.end()
        assert down(t) == [("k", 10, [100, 101, 102])]


def test_system_time_closes_a_half_filled_window_after_an_outage() -> None:
    with TestDriver(collecting(SystemClock(), length="1m"), now=NOON) as t:
        t.send("in", keyed("a"))
        t.restart(after="1h")
        t.advance("0s")
        assert [value for _, _, value in down(t)] == [["a"]]


def test_system_time_puts_values_into_the_window_of_their_arrival() -> None:
    with TestDriver(collecting(SystemClock(), length="1m"), now=NOON) as t:
        t.send("in", keyed("a"))
        t.advance("59s")
        t.send("in", keyed("b"))
        t.advance("1s")
        t.send("in", keyed("c"))
        t.end()
        assert [value for _, _, value in down(t)] == [["a", "b"], ["c"]]
        assert t.stats.gauges["w", "keys"] == 0


def test_collecting_into_a_set_and_a_dict() -> None:
    with TestDriver(collecting(into=set)) as t:
        t.send("in", keyed(1, 1, 2))
        t.end()
        assert down(t) == [("k", 0, {1, 2})]
    with TestDriver(collecting(into=dict)) as t:
        t.send("in", keyed((1, "x"), (2, "y"), (2, "z")))
        t.end()
        assert down(t) == [("k", 0, {1: "x", 2: "z"})]


class Echo(win.WindowLogic[Any, str, int]):
    """Emits at each value and at the close, and counts in its state."""

    def __init__(self, seen: int | None) -> None:
        self.seen = seen or 0

    def on_value(self, value: Any) -> Iterable[str]:
        self.seen += 1
        return [f"{value} is number {self.seen}"]

    def on_close(self) -> Iterable[str]:
        return ["closed", "for good"]

    def snapshot(self) -> int:
        return self.seen


def test_a_logic_of_ones_own_emits_at_values_and_at_the_close_across_snapshots() -> None:
    flow = Dataflow("own")
    stream = op.input("in", flow, TestingSource([]))
    out = win.window("w", stream, EventClock(seconds, "0s"), TumblingWindower("10s"), Echo)
    op.output("down", out.down, TestingSink([]))
    with TestDriver(flow) as t:
        t.send("in", keyed(1))
        t.send("in", keyed(2))
        t.send("in", keyed(13))
        assert down(t) == [
            ("k", 0, "1 is number 1"),
            ("k", 0, "2 is number 2"),
            ("k", 0, "closed"),
            ("k", 0, "for good"),
            ("k", 1, "13 is number 1"),
        ]


@given(
    st.lists(st.integers(0, 60), max_size=30),
    st.lists(st.integers(1, 7), max_size=30),
    st.sampled_from(["0s", "3s", "20s"]),
    st.booleans(),
)
def test_cutting_the_input_into_epochs_differently_changes_nothing(
    times: list[int], cuts: list[int], wait: str, ordered: bool
) -> None:
    def play(sizes: list[int]) -> list[list[Any]]:
        with TestDriver(collecting(EventClock(seconds, wait), ordered=ordered), shards=2) as t:
            rest = [("k", (time, number)) for number, time in enumerate(times)]
            for size in sizes:
                t.send("in", rest[:size])
                rest = rest[size:]
            t.send("in", rest)
            t.end()
            return [t.received(name) for name in ("down", "late", "closed")]

    whole = play([])
    assert play(cuts) == whole
    counted = sum(len(values) for _, (_, values) in whole[0]) + len(whole[1])
    assert counted == len(times)


def test_a_value_without_a_timestamp_stops_the_flow_and_is_named() -> None:
    with TestDriver(collecting(EventClock("at", "0s"))) as t, pytest.raises(StepError) as caught:
        t.send("in", keyed({"at": 1}, {"when": 2}))
    assert (caught.value.step_id, caught.value.key, caught.value.item) == (
        "w",
        "k",
        "{'when': 2}",
    )
    assert "there is no field 'at'" in str(caught.value)


def test_a_folder_that_raises_is_named_with_its_cause() -> None:
    flow = Dataflow("folding")
    stream = op.input("in", flow, TestingSource([]))
    out = win.fold_window(
        "w", stream, EventClock(seconds, "0s"), TumblingWindower("10s"), int, _refuse, _refuse
    )
    op.output("down", out.down, TestingSink([]))
    with TestDriver(flow) as t, pytest.raises(StepError) as caught:
        t.send("in", keyed(1))
    assert "step 'w'" in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def _refuse(left: int, right: int) -> float:
    return left / 0


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"clock": "now"}, FlowTypeError, "clock must be a Clock such as EventClock(...), got str"),
        ({"windower": "1h"}, FlowTypeError, "windower must be a Windower such as"),
        ({"into": tuple}, FlowBuildError, "into must be list, set or dict, got <class 'tuple'>"),
    ],
)
def test_an_unfit_argument_is_refused_when_the_flow_is_built(
    change: dict[str, Any], kind: type[Exception], message: str
) -> None:
    stream = op.input("in", Dataflow("unfit"), TestingSource([]))
    fit = {"clock": SystemClock(), "windower": TumblingWindower("1h"), "into": list}
    with pytest.raises(kind) as caught:
        win.collect_window("w", stream, **{**fit, **change})
    assert "step 'w'" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("which", ["builder", "folder", "merger"])
def test_a_non_callable_is_refused_and_named(which: str) -> None:
    stream = op.input("in", Dataflow("unfit"), TestingSource([]))
    functions: dict[str, Any] = {"builder": int, "folder": int, "merger": int, which: 5}
    with pytest.raises(FlowTypeError, match=f"step 'w': {which} must be a function, got int 5"):
        win.fold_window("w", stream, SystemClock(), TumblingWindower("1h"), **functions)


def test_the_whole_output_in_place_of_one_of_its_streams_is_refused() -> None:
    stream = op.input("in", Dataflow("unfit"), TestingSource([]))
    out = win.collect_window("w", stream, SystemClock(), TumblingWindower("1h"))
    with pytest.raises(FlowTypeError, match="holds several streams"):
        op.key_rm("values", out)  # type: ignore[arg-type]


@pytest.mark.parametrize("at_once", [1, 5])
@pytest.mark.parametrize(
    ("grace", "collected", "late"),
    [(None, [1, 10, 12], [2]), ("20s", [1, 10, 12], [2]), ("10m", [1, 10, 12, 2], [])],
)
def test_a_late_value_lets_all_enter_first_that_another_key_has_let_the_watermark_pass(
    at_once: int, grace: Any, collected: list[int], late: list[int]
) -> None:
    """
    b   1 · 10 · 12           2 (late)
    a              100                      one watermark for both: 95
    """
    flow = Dataflow("shared")
    clock = EventClock(seconds, "5s", scope="stream")
    windower = TumblingWindower("60s", grace=grace)
    out = win.collect_window("w", op.input("in", flow, TestingSource([])), clock, windower)
    for name in out._fields:
        op.output(name, getattr(out, name), TestingSink([]))
    items = [("b", 1), ("b", 10), ("b", 12), ("a", 100), ("b", 2)]
    with TestDriver(flow, now=0) as driver:
        for start in range(0, len(items), at_once):
            driver.send("in", items[start : start + at_once])
        driver.end()
        found = {
            name: [value for key, value in driver.received(name) if key == "b"]
            for name in ("down", "closed", "late")
        }
    assert [(meta.window_id, values) for meta, values in found["down"]] == [(0, collected)]
    assert [meta.window_id for meta in found["closed"]] == [0]
    assert [one.value for one in found["late"]] == late


NAN = float("nan")


@pytest.mark.parametrize("values", [[1, NAN, 2], [NAN, 1, 2], [2, 1, NAN]])
def test_what_is_no_number_is_the_greatest_wherever_it_comes(values: list[float]) -> None:
    flow = Dataflow("extremes")
    keyed = op.key_on("key", op.input("in", flow, TestingSource([])), lambda _: "k")
    clock, windower = SystemClock(), TumblingWindower("1m")
    op.output("most", win.max_window("max", keyed, clock, windower).down, TestingSink([]))
    op.output("least", win.min_window("min", keyed, clock, windower).down, TestingSink([]))
    with TestDriver(flow, now=0) as driver:
        driver.send("in", values)
        driver.end()
        ((_, (_, most)),), ((_, (_, least)),) = driver.received("most"), driver.received("least")
    assert (str(most), least) == ("nan", 1)


class Tally(win.EpochWindowLogic[Any, str, int]):
    """Says at the end of an epoch how many values there are, where they have become more."""

    def __init__(self, state: int | None) -> None:
        self.count = state or 0

    def on_value(self, value: Any) -> Iterable[str]:
        self.count += 1
        return []

    def on_merge(self, original: Tally) -> Iterable[str]:
        self.count += original.count
        return []

    def on_epoch_end(self) -> Iterable[str]:
        return [f"{self.count} so far"]

    def on_close(self) -> Iterable[str]:
        return [f"{self.count} in all"]

    def snapshot(self) -> int:
        return self.count


@pytest.mark.parametrize("windower", [TumblingWindower("10s"), win.SessionWindower("5s")])
def test_a_custom_logic_emits_at_the_end_of_each_epoch_that_changed_its_window(
    windower: Any,
) -> None:
    flow = Dataflow("tally")
    keyed = op.input("in", flow, TestingSource([]))
    out = win.window("tally", keyed, EventClock(seconds, "0s"), windower, Tally, ordered=False)
    op.output("out", out.down, TestingSink([]))
    with TestDriver(flow, now=0) as driver:
        for values in ([1, 2], [], [3], [20]):
            driver.send("in", [("k", value) for value in values])
        driver.end()
        texts = [text for _, (_, text) in driver.received("out")]
    assert texts == ["2 so far", "3 so far", "3 in all", "1 so far", "1 in all"]
