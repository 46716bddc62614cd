"""The base of builders of joins of two streams by time: reading of segments, view of a key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from typing_extensions import override

from flow.instants import Moment
from flow.keyed.segments import StateCounter
from flow.keyed.step import OverColumns
from flow_windowing.clocks.clocked_builder import ClockedBuilder
from flow_windowing.columnar.storage.segments import SegmentContent
from flow_windowing.columnar.storage.snapshots import snapshots_of_content
from flow_windowing.interval.rules import LEFT, RIGHT
from flow_windowing.rules.key_state import IntervalState, counts_of
from flow_windowing.rules.tags import side_of


class TimeJoinBuilder(ClockedBuilder, ABC):
    """A builder of a join whose retained values are those of an `IntervalState`."""

    has_keyed_form = False

    @abstractmethod
    @override
    def lower(self) -> OverColumns:
        """Return the lowering to columns."""

    @property
    @override
    def counter(self) -> StateCounter:
        return counts_of

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
