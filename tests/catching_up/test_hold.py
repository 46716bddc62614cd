"""Holds of partitions that are behind, value by value; timelines are in seconds of 1970."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pyarrow as pa
import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, FlowBuildError
from flow.testing import Part, TestDriver, TestingSink, TestingSource, key_by_key


class Flow:
    """Flow that counts values in windows of ten seconds, over columns or key by key."""

    def __init__(self, columns: bool, inputs: int = 1, **clock: Any) -> None:
        flow = Dataflow("held")
        names = [f"in {n}" for n in range(inputs)] if inputs > 1 else ["in"]
        streams = [op.input(name, flow, TestingSource([])) for name in names]
        merged = op.merge("merge", *streams) if inputs > 1 else streams[0]
        keyed = op.key_on("key", merged, "k")
        event_time = win.EventClock("at", clock.pop("wait", "0s"), **clock)
        windows = win.TumblingWindower("10s")
        counted = win.aggregate_window("count", keyed, event_time, windows, n=win.Count())
        op.output("out", counted.down, TestingSink([]))
        op.output("late", counted.late, TestingSink([]))
        self._columns = columns
        self.driver = TestDriver(flow, now=1_000)

    def rows(self, *values: int | tuple[str, int]) -> Any:
        pairs = [one if isinstance(one, tuple) else ("k", one) for one in values]
        rows = [{"k": key, "at": at} for key, at in pairs]
        return pa.RecordBatch.from_pylist(rows) if self._columns and rows else rows

    def parts(self, *parts: list[Any], name: str = "in", **options: Any) -> None:
        found = [Part(self.rows(*values), n) for n, values in enumerate(parts) if values]
        self.driver.send_parts({name: found}, **options)

    @property
    def out(self) -> list[tuple[str, int, int]]:
        found = self.driver.received("out")
        return [(key, meta.window_id, figures["n"]) for key, (meta, figures) in found]

    @property
    def late(self) -> list[int]:
        return [late.value["at"] for _, late in self.driver.received("late")]


@pytest.fixture(params=[True, False], ids=["columns", "objects"])
def columns(request: pytest.FixtureRequest) -> Any:
    path: AbstractContextManager[None] = nullcontext() if request.param else key_by_key()
    with path:
        yield request.param


#  partition 0   5 25 35 ┆         (behind)
#  partition 1           ┆ 6 16    partition 1 had brought nothing: it holds all at the beginning
def test_a_partition_without_items_holds_the_watermark_from_the_beginning(columns: bool) -> None:
    flow = Flow(columns)
    flow.parts([5, 25, 35], [], behind=[("in", 0), ("in", 1)])
    flow.parts([36], [], behind=[("in", 0), ("in", 1)])
    assert flow.out == []
    flow.parts([], [6, 16], behind=[("in", 0)])
    assert flow.late == []
    flow.driver.end()
    assert flow.out == [("k", 0, 2), ("k", 1, 1), ("k", 2, 1), ("k", 3, 2)]


#  partition 0   5 25 ┆ 45        (caught up)
#  partition 1   6    ┆    15     behind, at 6: 15 is on time, and [0, 10) closes with it
def test_the_hold_rises_with_the_partition_that_is_behind(columns: bool) -> None:
    flow = Flow(columns)
    flow.parts([5, 25], [6], behind=[("in", 1)])
    assert flow.out == []
    flow.parts([45], [15], behind=[("in", 1)])
    assert (flow.out, flow.late) == ([("k", 0, 2)], [])
    flow.parts([], [16])
    assert flow.out == [("k", 0, 2), ("k", 1, 2), ("k", 2, 1)]


#  partition 0   30 ┆             all windows before 30 are closed, and nobody holds
#  partition 1      ┆ 12 ┆ 22     is behind now: what was taken is not taken back
def test_the_watermark_does_not_go_back_when_a_partition_falls_behind(columns: bool) -> None:
    flow = Flow(columns)
    flow.parts([5, 30], [1])
    assert flow.out == [("k", 0, 2)]
    flow.parts([], [12], behind=[("in", 1)])
    flow.parts([], [22], behind=[("in", 1)])
    flow.parts([], [31])
    assert flow.late == [12, 22]
    flow.driver.end()
    assert flow.out == [("k", 0, 2), ("k", 3, 2)]


#  partition 0   ("a", 5) ("b", 41) ┆ ("b", 42)
#  partition 1   ("b", 1)           ┆            is behind at 1, and then lower than it was for "a"
def test_a_lower_hold_does_not_lower_the_watermark_of_a_key(columns: bool) -> None:
    flow = Flow(columns, inputs=2)
    both = ["in 0", "in 1"]
    sent = {"in 0": flow.rows(("a", 5), ("a", 25)), "in 1": flow.rows(("b", 21))}
    flow.driver.send_all(sent, behind=["in 1"])
    assert flow.out == [("a", 0, 1)]
    # The second is behind as well now, and further back than what has been taken for "a".
    flow.driver.send_all({"in 0": flow.rows(("a", 7)), "in 1": flow.rows(("b", 22))}, behind=both)
    flow.driver.end()
    assert flow.late == [7]
    assert ("a", 0, 1) in flow.out


def test_a_partition_silent_for_a_minute_does_not_hold(columns: bool) -> None:
    flow = Flow(columns)
    flow.parts([5], [1], behind=[("in", 1)])
    silent = {"in": [Part(flow.rows(35), 0), Part([], 1)]}
    flow.driver.send_parts(silent, after="40s", behind=[("in", 1)])
    # The time in which it is not read from does not count.
    flow.parts([36], [], after="1h", behind=[("in", 0), ("in", 1)])
    assert flow.out == []
    silent = {"in": [Part(flow.rows(37), 0), Part([], 1)]}
    flow.driver.send_parts(silent, after="20s", behind=[("in", 1)])
    assert flow.out == [("k", 0, 2)]
    # It holds again when it brings something.
    flow.parts([55], [50], behind=[("in", 1)])
    flow.parts([], [51])
    assert flow.late == []


def test_a_silent_key_closes_while_another_partition_has_a_steady_backlog(columns: bool) -> None:
    flow = Flow(columns)
    flow.parts([("silent", 5)], [("busy", 5)], behind=[("in", 1)])
    for second in range(6, 200, 10):
        flow.parts([("fast", second + 100)], [("busy", second)], behind=[("in", 1)])
    assert ("silent", 0, 1) not in flow.out
    assert flow.late == []
    flow.parts([], [("busy", 200)])
    flow.driver.advance("10s")
    assert ("silent", 0, 1) in flow.out


#  now 1000      send 1, wait 2 s; 21 s pass while 3 … 22 wait to be read
def test_values_that_waited_through_a_slow_epoch_are_not_late(columns: bool) -> None:
    slow, at_once = Flow(columns, wait="2s"), Flow(columns, wait="2s")
    for flow, options in ((slow, {"after": "21s"}), (at_once, {})):
        flow.driver.send("in", flow.rows(1))
        if not options:
            flow.driver.advance("21s")
        flow.driver.send("in", flow.rows(*range(3, 22)), **options)
    assert slow.late == []
    assert at_once.late == list(range(3, 20))


def test_an_input_that_is_behind_does_not_advance_with_system_time(
    columns: bool,
) -> None:
    flow = Flow(columns, wait="2s")
    flow.driver.send("in", flow.rows(1), behind=True)
    flow.driver.advance("60s")
    flow.driver.send("in", flow.rows(2, 3), behind=True)
    assert (flow.late, flow.out) == ([], [])
    flow.driver.send("in", flow.rows(4))
    flow.driver.advance("8s")
    assert flow.out == [("k", 0, 4)]


def test_lateness_of_late_values_is_counted(columns: bool) -> None:
    flow = Flow(columns)
    flow.driver.send("in", flow.rows(100, 93, 88, 99, 50))
    assert flow.driver.stats.lateness == {
        ("count", 1_000_000): 1,
        ("count", 7_000_000): 1,
        ("count", 12_000_000): 1,
        ("count", 50_000_000): 1,
    }


def test_late_values_are_counted_by_partition(columns: bool) -> None:
    flow = Flow(columns)
    flow.parts([5, 30, 1], [4, 40])
    flow.parts([], [7, 20, 50])
    late = {("count", ("in", 0)): 1, ("count", ("in", 1)): 2}
    assert (flow.late, flow.driver.stats.late_from) == ([1, 7, 20], late)


def test_an_input_without_items_holds_the_watermark(columns: bool) -> None:
    flow = Flow(columns, inputs=2)
    flow.driver.send_all({"in 0": flow.rows(5, 30)}, behind=["in 1"])
    flow.driver.send_all({"in 1": flow.rows(2, 31)})
    assert (flow.out, flow.late) == ([("k", 0, 2)], [])


def test_unknown_inputs_behind_are_refused() -> None:
    with pytest.raises(FlowBuildError, match="list of inputs, among \\['in'\\]; got \\['other'\\]"):
        Flow(True).driver.send_all({"in": []}, behind=["other"])
    with pytest.raises(FlowBuildError, match="system time never goes back"):
        Flow(True).driver.send("in", [], after="-1s")
    with pytest.raises(FlowBuildError, match="system time never goes back: restart"):
        Flow(True).driver.restart("-1s")
