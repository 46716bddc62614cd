"""The base of builders of joins of two streams by time: reading of segments, view of a key."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from typing_extensions import override

from flow.instants import Moment
from flow.keyed.state_counts import StateCounter
from flow.keyed.step import KeyByKey, Lowering
from flow_windowing.clocks.clocked_builder import ClockedBuilder
from flow_windowing.columnar.state.watermarks import WatermarkRule, rule_of
from flow_windowing.columnar.storage.segments import SegmentContent
from flow_windowing.columnar.storage.snapshots import snapshots_of_content
from flow_windowing.interval.rules import LEFT, RIGHT
from flow_windowing.rules.key_state import IntervalState, counts_of
from flow_windowing.rules.tags import side_of


class TimeJoinBuilder(ClockedBuilder):
    """A builder of a join whose retained values are those of an `IntervalState`."""

    @abstractmethod
    def lower_with(self, rule: WatermarkRule) -> Lowering:
        """Choose the path of a step whose clock has a columnar form."""

    @property
    @override
    def counter(self) -> StateCounter:
        return counts_of

    @override
    def lower(self) -> Lowering:
        rule = rule_of(self.clock)
        if rule is None:
            return KeyByKey(f"{type(self.clock).__name__} has no columnar form")
        return self.lower_with(rule)

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
