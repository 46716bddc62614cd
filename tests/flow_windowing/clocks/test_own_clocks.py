"""User-written clocks: the values that they see, drop and reject."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

import flow_windowing as win
from flow import StepError
from flow.instants import NEVER, Moment
from flow.operators import RejectedValue
from flow.testing import TestDriver
from flow_windowing import Clock, ClockLogic, DroppedValue, Reading, TumblingWindower
from flow_windowing.rules.watermark import NO_WATERMARK
from tests.support.windowed_flows import windowed_flow


@dataclass(frozen=True)
class Picky(Clock[str, None]):
    """A clock that notes the values that it is asked about, and drops or rejects some."""

    values: list[str] = field(default_factory=list)

    def build(self, state: None) -> PickyLogic:
        return PickyLogic(self.values)


class PickyLogic(ClockLogic[str, None]):
    def __init__(self, values: list[str]) -> None:
        self.values = values

    def on_item(self, value: str, moment: Moment) -> Reading:
        self.values.append(value)
        if value == "odd":
            raise DroppedValue(f"odd: {value}")
        if value == "bad":
            raise RejectedValue(value, "it is bad")
        return Reading(moment.now_us, NO_WATERMARK)

    def watermark(self, moment: Moment) -> int:
        return NO_WATERMARK

    def due_us(self, watermark_us: int, moment: Moment) -> int:
        return NEVER

    def snapshot(self) -> None:
        return None


def test_dropped_values_are_counted_and_rejected_values_stop_the_flow() -> None:
    clock = Picky()
    flow = windowed_flow(lambda up: win.collect_window("w", up, clock, TumblingWindower("10s")))
    with TestDriver(flow) as t:
        t.send("in", [("k", "odd")])
        assert t.stats.counts["w", "dropped"] == 1
        assert t.stats.gauges["w", "keys"] == 0
        t.send("in", [("k", "fit")])
        with pytest.raises(StepError, match="step 'w': it is bad") as caught:
            t.send("in", [("k", "bad")])
        assert (caught.value.key, caught.value.item) == ("k", "'bad'")
    assert clock.values == ["odd", "fit", "bad"], "each value is read once"
