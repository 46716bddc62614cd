"""User-written clocks: the values that they see, and the windows that they close."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

import flow_windowing as win
from flow import StepError
from flow.instants import NEVER, Moment
from flow.operators import RejectedValue
from flow.testing import TestDriver, swap_clock
from flow_windowing import Clock, ClockLogic, DroppedValue, Reading, TumblingWindower
from flow_windowing.rules.watermark import NO_WATERMARK
from tests.support.windowed_flows import received, windowed_flow

SECOND = 1_000_000


@dataclass(frozen=True)
class PunctuatedClock(Clock[Any, int]):
    """Values are ``(second, name)``; one named ``"mark"`` moves the watermark to its time.

    Attributes:
        seen: every value it was asked about.
    """

    values: list[Any] = field(default_factory=list)

    def build(self, state: int | None) -> PunctuatedLogic:
        return PunctuatedLogic(self, state)


class PunctuatedLogic(ClockLogic[Any, int]):
    def __init__(self, clock: PunctuatedClock, state: int | None) -> None:
        self.clock = clock
        self.mark_us = NO_WATERMARK if state is None else state

    def on_item(self, value: Any, moment: Moment) -> Reading:
        self.clock.values.append(value)
        second, name = value
        if name == "odd":
            raise DroppedValue(f"odd: {value}")
        if name == "bad":
            raise RejectedValue(value, "it is bad")
        if name == "mark":
            self.mark_us = max(self.mark_us, second * SECOND)
        return Reading(second * SECOND, self.mark_us)

    def watermark(self, moment: Moment) -> int:
        return self.mark_us

    def due_us(self, watermark_us: int, moment: Moment) -> int:
        return NEVER

    def snapshot(self) -> int | None:
        return None if self.mark_us == NO_WATERMARK else self.mark_us


class Gather(win.WindowLogic[Any, Any, list[Any]]):
    def __init__(self, state: list[Any] | None) -> None:
        self.held = list(state or ())

    def on_value(self, value: Any) -> list[Any]:
        self.held.append(value)
        return []

    def on_close(self) -> list[Any]:
        return [[name for _, name in self.held]]

    def snapshot(self) -> list[Any]:
        return list(self.held)


TENS = TumblingWindower("10s")


@pytest.mark.parametrize("ordered", [True, False])
def test_windows_close_by_the_watermarks_of_a_user_written_clock(ordered: bool) -> None:
    # b@7 a@3 | mark@10 closes [0,10) | late@5
    clock = PunctuatedClock()
    flow = windowed_flow(lambda up: win.window("w", up, clock, TENS, Gather, ordered))
    with TestDriver(flow) as t:
        t.send("in", [("k", (7, "b")), ("k", (3, "a"))])
        t.advance("1000h")
        assert t.received("down") == []
        t.send("in", [("k", (10, "mark"))])
        assert [held for _, (_, held) in t.received("down")] == [
            ["a", "b"] if ordered else ["b", "a"]
        ]
        t.send("in", [("k", (5, "late"))])
        assert [late.value for late in received(t)["late"]["k"]] == [(5, "late")]
        t.end()
        assert clock.values == [(7, "b"), (3, "a"), (10, "mark"), (5, "late")]


def test_dropped_values_are_counted_and_rejected_values_stop_the_flow() -> None:
    flow = windowed_flow(lambda up: win.window("w", up, PunctuatedClock(), TENS, Gather))
    with TestDriver(flow) as t:
        t.send("in", [("k", (1, "odd"))])
        assert t.stats.counts["w", "dropped"] == 1
        assert t.stats.gauges["w", "keys"] == 0
        with pytest.raises(StepError, match="step 'w': it is bad") as caught:
            t.send("in", [("k", (1, "bad"))])
        assert (caught.value.key, caught.value.item) == ("k", "(1, 'bad')")


def test_a_user_written_clock_can_replace_another_in_a_test() -> None:
    flow = windowed_flow(lambda up: win.window("w", up, win.SystemClock(), TENS, Gather))
    with TestDriver(swap_clock(flow, "w", PunctuatedClock())) as t:
        t.send("in", [("k", (7, "b")), ("k", (10, "mark"))])
        assert [held for _, (_, held) in t.received("down")] == [["b"]]
