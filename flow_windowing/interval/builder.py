"""The builder of an interval join, which knows both paths and lowers the step to columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from typing_extensions import override

from flow.instants import Moment
from flow.keyed.step import KeyByKey, Lowering, OverColumns
from flow_windowing.clocks.clocked_builder import ClockedBuilder
from flow_windowing.columnar.state.watermarks import rule_of
from flow_windowing.columnar.storage.segments import SegmentContent
from flow_windowing.columnar.storage.snapshots import snapshots_of_content
from flow_windowing.interval.config import IntervalJoinConfig
from flow_windowing.interval.driver import IntervalDriver
from flow_windowing.interval.rules import LEFT, RIGHT, side_of
from flow_windowing.interval.shard import ShardJoin
from flow_windowing.rules.key_state import IntervalState


@dataclass(frozen=True)
class IntervalJoin(IntervalJoinConfig, ClockedBuilder):
    """Builder of an interval join: makes the driver of each key, and lowers the step."""

    @override
    def __call__(self, snapshot: IntervalState | None) -> IntervalDriver:
        return IntervalDriver(self, snapshot)

    @override
    def lower(self) -> Lowering:
        rule = rule_of(self.clock)
        if rule is None:
            return KeyByKey(f"{type(self.clock).__name__} has no columnar form")
        return OverColumns(partial(ShardJoin, self, rule))

    @override
    def snapshots_in(self, content: bytes) -> Iterable[tuple[str, IntervalState, int]]:
        return snapshots_of_content(SegmentContent.decode(content))

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
