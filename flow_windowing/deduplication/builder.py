"""The builder of a deduplicating step, which runs over columns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from typing_extensions import override

from flow.instants import MAX_US, MIN_US, Moment, from_us
from flow.keyed.step import OverColumns
from flow_windowing.clocks.clock import Clock, check_clock
from flow_windowing.clocks.clocked_builder import ClockedBuilder
from flow_windowing.columnar.admission.shard_clocks import shard_clock_of
from flow_windowing.deduplication.ids import IdOf
from flow_windowing.deduplication.segments import IdState
from flow_windowing.deduplication.shard import ShardIds
from flow_windowing.rules.settings import settings_of
from flow_windowing.rules.streams import DOWN, DUPLICATES, LATE


@dataclass(frozen=True)
class DedupBuilder(ClockedBuilder):
    """Builder of a step that drops repeated values by a clock, over columns.

    Attributes:
        clock: the clock.
        id_of: the id of a value.
        ttl_us: how long an id is remembered, in µs.
    """

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"ttl_us"})
    has_keyed_form = False

    clock: Clock[Any, Any]
    id_of: IdOf
    ttl_us: int

    def __post_init__(self) -> None:
        check_clock(self.clock)

    @property
    @override
    def settings(self) -> str:
        return f"{settings_of('close', self.clock, None)} ttl {self.ttl_us}"

    @override
    def keeps_back(self, port: int) -> bool:
        return False

    @override
    def lower(self) -> OverColumns:
        clock = shard_clock_of(self.clock)
        shard_logic = partial(ShardIds, clock, self.id_of, self.ttl_us)
        of_clock, of_id = clock.fields, self.id_of.fields
        fields = None if of_clock is None or of_id is None else of_clock | of_id
        return OverColumns(shard_logic, fields, frozenset({DOWN, LATE, DUPLICATES}))

    @override
    def watermark(self, snapshot: IdState | None, moment: Moment) -> datetime | None:
        clock = self.clock.build(None if snapshot is None else snapshot[0])
        watermark_us = clock.watermark(moment)
        return from_us(watermark_us) if MIN_US <= watermark_us <= MAX_US else None

    @override
    def view(self, snapshot: IdState, moment: Moment) -> dict[str, Any]:
        _, ids, first_us = snapshot
        pairs = list(zip(ids, map(from_us, first_us), strict=True))
        return {"watermark": self.watermark(snapshot, moment), "ids": pairs}
