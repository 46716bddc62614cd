"""The builder of an as-of join, which knows both paths and lowers the step to columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from typing_extensions import override

from flow.keyed.step import KeyByKey, Lowering, OverColumns
from flow_windowing.asof.config import AsofJoinConfig
from flow_windowing.asof.driver import AsofDriver
from flow_windowing.asof.shard import ShardAsof
from flow_windowing.columnar.state.watermarks import WatermarkRule
from flow_windowing.interval.join_builder import TimeJoinBuilder
from flow_windowing.rules.key_state import IntervalState


@dataclass(frozen=True)
class AsofJoin(AsofJoinConfig, TimeJoinBuilder):
    """Builder of an as-of join: makes the driver of each key, and lowers the step."""

    @override
    def __call__(self, snapshot: IntervalState | None) -> AsofDriver:
        return AsofDriver(self, snapshot)

    @override
    def lower_with(self, rule: WatermarkRule) -> Lowering:
        if self.emit == "now":
            return KeyByKey("`emit='now'` pairs each value with those that arrived before it")
        return OverColumns(partial(ShardAsof, self, rule), takes_sided_records=True)
