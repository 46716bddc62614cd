"""The builder of an interval join, which runs over columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from typing_extensions import override

from flow.keyed.step import OverColumns, TimedResults
from flow_windowing.columnar.admission.shard_clocks import shard_clock_of
from flow_windowing.interval.config import IntervalJoinConfig
from flow_windowing.interval.join_builder import TimeJoinBuilder
from flow_windowing.interval.shard import ShardJoin


@dataclass(frozen=True)
class IntervalJoin(IntervalJoinConfig, TimeJoinBuilder):
    """Builder of an interval join."""

    @property
    @override
    def results(self) -> TimedResults | None:
        if not self.follows_inputs:
            return None
        return TimedResults(self.interval.grace_us, leave_early=True, rule=self.how)

    @override
    def lower(self) -> OverColumns:
        shard_logic = partial(ShardJoin, self, shard_clock_of(self.clock))
        return OverColumns(shard_logic, takes_sided_records=True)
