"""Steps of the machine's clock, back and forward, between runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, run
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
@pytest.mark.extended
def test_between_runs_system_time_never_goes_back_and_a_step_forward_makes_nothing_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    times = ("11:58", "11:57", "11:59", "11:56")
    items = [item for n, at in enumerate(times, 1) for item in (reading(n, at), EOF())]
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
