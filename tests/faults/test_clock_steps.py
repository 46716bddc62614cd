"""Steps of the machine's clock, back and forward, between runs and within a run."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
from flow.connectors.source import Json, Planner, Slice
from flow.engine.feed.feed import Feed
from flow.engine.feed.offsets import EpochOffset
from flow.instants import Moment, instant_us
from flow.operators import KEEP, StatefulLogic
from flow.testing import EOF, TestingSink, TestingSource
from flow_windowing import EventClock, SystemClock, TumblingWindower
from recovery import RecoveryConfig

HOUR_US = 3_600_000_000
NOON = "2024-05-01T12:00:00Z"
AN_HOUR_BACK = "2024-05-01T11:00:00Z"
A_DAY_ON = "2024-05-02T12:00:00Z"
A_DAY_ON_US = 24 * HOUR_US


class TimeRecorder(StatefulLogic[Any, Any, None]):
    """Emits each value with the epoch's system time and downtime, since noon."""

    def __init__(self, state: None) -> None:
        pass

    def on_item(self, value: Any, moment: Moment) -> Any:
        return [(value["n"], moment.now_us - instant_us(NOON), moment.downtime_us)], KEEP

    def snapshot(self) -> None:
        return None


def reading(n: int, at: str) -> Any:
    return "sensor", {"n": n, "at": f"2024-05-01T{at}:00Z"}


#  run          1          2              3                       4
#  clock        12:00      11:00          12:00 the day after     11:00 the day before
#  now          12:00      12:00          12:00 the day after     the same
#  item         11:58      11:57          11:59                   11:56
#  watermark    11:53      11:53          11:54                   11:54
@pytest.mark.spark
def test_between_runs_system_time_never_goes_back_and_a_step_forward_makes_nothing_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    items = [
        *(reading(1, "11:58"), EOF()),
        *(reading(2, "11:57"), EOF()),
        *(reading(3, "11:59"), EOF()),
        *(reading(4, "11:56"), EOF()),
    ]
    outputs: dict[str, list[Any]] = {name: [] for name in ("clocked", "late", "system", "event")}
    flow = Dataflow("clocks")
    s = op.input("in", flow, TestingSource(items))
    event = win.collect_window("event", s, EventClock("at", "5m"), TumblingWindower("1h"))
    system = win.collect_window("system", s, SystemClock(), TumblingWindower("30m"))
    streams = (op.stateful("clocked", s, TimeRecorder), event.late, system.down, event.down)
    for name, stream in zip(outputs, streams, strict=True):
        op.output(f"{name}_out", stream, TestingSink(outputs[name]))

    def go_on(now: str) -> tuple[list[Any], list[Any]]:
        """One run; what was emitted: the times of its items, and system windows."""
        for items in outputs.values():
            items.clear()
        recovery = RecoveryConfig(tmp_path / "checkpoint")
        options: dict[str, Any] = {"shards": 2, "partitions": 1, "drain": False}
        run(flow, spark=spark, recovery=recovery, system_time=now, **options)
        assert outputs["late"] == []
        assert outputs["event"] == []
        windows = [
            (f"{window.open_time:%d %H:%M}", [value["n"] for value in values])
            for _, (window, values) in outputs["system"]
        ]
        return [clocked for _, clocked in outputs["clocked"]], windows

    assert go_on(NOON) == ([(1, 0, 0)], [])
    assert go_on(AN_HOUR_BACK) == ([(2, 0, 0)], [])
    assert go_on(A_DAY_ON) == ([(3, A_DAY_ON_US, A_DAY_ON_US)], [("01 12:00", [1, 2])])
    assert go_on(AN_HOUR_BACK) == ([(4, A_DAY_ON_US, A_DAY_ON_US)], [])


class Drip(Planner):
    """One thing to read an epoch."""

    def next(self, start: Json | None) -> Slice | None:
        return Slice((start or 0) + 1)

    def finished(self, start: Json | None) -> bool:
        return False


def test_within_a_run_system_time_stands_still_until_a_clock_set_back_catches_up() -> None:
    """
    clock  12:00  13:00  12:00  12:30  13:10  13:10 a day on
    now    12:00  13:00  13:00  13:00  13:10  13:10 a day on
    """
    clock = [0, 60, 0, 30, 70, 70 + 24 * 60]
    minutes = iter([0, *clock])
    feed = Feed({"in": Drip()}, system_time=lambda: next(minutes) * 60_000_000)
    offset, outputs = EpochOffset(), []
    next(minutes)  # a run that goes on from nowhere does not ask when it started
    for _ in clock:
        offset = feed.next(offset)
        assert offset.control is not None
        outputs.append(timedelta(microseconds=offset.control.moment.now_us) / timedelta(minutes=1))
        assert offset.control.moment.downtime_us == 0
    assert outputs == [0, 60, 60, 60, 70, 70 + 24 * 60]
