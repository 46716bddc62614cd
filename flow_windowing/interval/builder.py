"""The builder of an interval join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from flow.instants import Moment
from flow_windowing.clocks.clocked_builder import ClockedBuilder
from flow_windowing.interval.config import IntervalJoinConfig
from flow_windowing.interval.driver import IntervalDriver
from flow_windowing.interval.rules import LEFT, RIGHT, side_of
from flow_windowing.rules.key_state import IntervalState


@dataclass(frozen=True)
class IntervalJoin(IntervalJoinConfig, ClockedBuilder):
    """Builder of an interval join: makes the driver of each key."""

    @override
    def __call__(self, snapshot: IntervalState | None) -> IntervalDriver:
        return IntervalDriver(self, snapshot)

    @override
    def view(self, snapshot: IntervalState, moment: Moment) -> dict[str, Any]:
        sides: tuple[list[Any], list[Any]] = ([], [])
        for _, tag, value in sorted(snapshot.retained, key=lambda one: one[:2]):
            sides[side_of(tag)].append(value)
        return {
            "watermark": self.watermark(snapshot, moment),
            "left": sides[LEFT],
            "right": sides[RIGHT],
        }
