"""The builder of an interval join, which runs over columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from typing_extensions import override

from flow.keyed.step import OverColumns
from flow_windowing.columnar.admission.shard_clocks import shard_clock_of
from flow_windowing.interval.config import IntervalJoinConfig
from flow_windowing.interval.join_builder import TimeJoinBuilder
from flow_windowing.interval.shard import ShardJoin


@dataclass(frozen=True)
class IntervalJoin(IntervalJoinConfig, TimeJoinBuilder):
    """Builder of an interval join."""

    @override
    def lower(self) -> OverColumns:
        shard_logic = partial(ShardJoin, self, shard_clock_of(self.clock))
        return OverColumns(shard_logic, takes_sided_records=True)
