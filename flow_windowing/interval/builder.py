"""The builder of an interval join, which knows both paths and lowers the step to columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from typing_extensions import override

from flow.keyed.step import Lowering, OverColumns
from flow_windowing.columnar.state.watermarks import WatermarkRule
from flow_windowing.interval.config import IntervalJoinConfig
from flow_windowing.interval.driver import IntervalDriver
from flow_windowing.interval.join_builder import TimeJoinBuilder
from flow_windowing.interval.shard import ShardJoin
from flow_windowing.rules.key_state import IntervalState


@dataclass(frozen=True)
class IntervalJoin(IntervalJoinConfig, TimeJoinBuilder):
    """Builder of an interval join: makes the driver of each key, and lowers the step."""

    @override
    def __call__(self, snapshot: IntervalState | None) -> IntervalDriver:
        return IntervalDriver(self, snapshot)

    @override
    def lower_with(self, rule: WatermarkRule) -> Lowering:
        return OverColumns(partial(ShardJoin, self, rule), takes_sided_records=True)
