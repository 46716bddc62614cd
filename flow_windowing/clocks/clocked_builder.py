"""The builder of a step with a clock: the capabilities that follow from the clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, Self

from typing_extensions import override

from flow.instants import MAX_US, MIN_US, Moment, from_us
from flow.keyed.logic import Progress
from flow.keyed.step import LogicBuilder
from flow_windowing.clocks.clock import Clock


class ClockedBuilder(LogicBuilder):
    """A builder of key logic with a clock; snapshots have the clock's state in `clock`.

    Attributes:
        clock: the clock.
    """

    clock: Clock[Any, Any]

    @property
    @override
    def progress(self) -> Progress | None:
        return self.clock.progress

    @property
    @override
    def holds(self) -> Progress | None:
        return self.clock.holds

    @property
    @override
    def follows_inputs(self) -> bool:
        return self.clock.follows_inputs

    @property
    @override
    def takes_holds(self) -> bool:
        return self.clock.takes_holds

    @property
    @override
    def wait_us(self) -> int:
        return self.clock.wait_us

    @override
    def with_wait(self, wait_us: int) -> Self:
        builder: Any = self
        longer: Self = replace(builder, clock=self.clock.with_wait(wait_us))
        return longer

    @override
    def watermark(self, snapshot: Any, moment: Moment) -> datetime | None:
        clock = self.clock.build(None if snapshot is None else snapshot.clock)
        watermark_us = clock.watermark(moment)
        return from_us(watermark_us) if MIN_US <= watermark_us <= MAX_US else None
