"""The builder of an as-of join, which runs over columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from typing_extensions import override

from flow.keyed.step import OverColumns, TimedResults
from flow_windowing.asof.config import AsofJoinConfig
from flow_windowing.asof.shard import ShardAsof
from flow_windowing.columnar.admission.shard_clocks import shard_clock_of
from flow_windowing.interval.join_builder import TimeJoinBuilder


@dataclass(frozen=True)
class AsofJoin(AsofJoinConfig, TimeJoinBuilder):
    """Builder of an as-of join."""

    @property
    @override
    def results(self) -> TimedResults | None:
        return TimedResults(leave_early=self.emit == "now") if self.follows_inputs else None

    @override
    def lower(self) -> OverColumns:
        shard_logic = partial(ShardAsof, self, shard_clock_of(self.clock))
        return OverColumns(shard_logic, takes_sided_records=True)
