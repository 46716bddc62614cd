"""Configuration of a windowing step, which both paths run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

from flow_windowing.clocks.clock import Clock, check_clock
from flow_windowing.contract.logic import WindowLogic
from flow_windowing.contract.triggers import AfterWatermark
from flow_windowing.rules.settings import Emission, settings_of
from flow_windowing.rules.timestamps import Timestamp
from flow_windowing.windowers.windower import Windower, check_windower

WindowBuilder: TypeAlias = Callable[[Any], WindowLogic[Any, Any, Any]]
"""A function that returns the logic of a window from a snapshot, ``None`` for a new window."""


@dataclass(frozen=True)
class WindowingConfig:
    """Configuration of a windowing step.

    Attributes:
        clock: the clock.
        windower: the windower.
        builder: returns the logic of a window.
        ordered: True if values enter windows in timestamp order.
        sides: number of streams that the step reads; with more than one, values are
            ``(side, value)``.
        emit: the time at which windows emit; see `flow_windowing.rules.settings`.
        timestamp: the timestamp that metadata carries; ``None`` for none.

    Raises:
        FlowTypeError: when `clock` is not a `Clock`, or `windower` is not a `Windower`.
    """

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"ordered", "emit", "timestamp"})

    clock: Clock[Any, Any]
    windower: Windower[Any]
    builder: WindowBuilder
    ordered: bool = True
    sides: int = 1
    emit: Emission = "close"
    timestamp: Timestamp | None = None

    def __post_init__(self) -> None:
        check_clock(self.clock)
        check_windower(self.windower)

    @property
    def result_timestamp(self) -> Timestamp:
        """The timestamp of a result for a step that reads it; that of windows without one."""
        return self.timestamp or "open"

    @cached_property
    def reach_us(self) -> int:
        """The greatest time before a value at which the result of its window may lie, in µs."""
        return self.windower.reach_us(self.result_timestamp)

    @cached_property
    def settings(self) -> str:
        """The settings that determine the times at which windows close and emit, as text."""
        return settings_of(self.emit, self.clock, self.windower)

    @cached_property
    def retracts(self) -> bool:
        """True if an emitted result may have to be retracted."""
        if isinstance(self.emit, AfterWatermark) and not self.emit.accumulate:
            return False  # Panes without common values stay valid as windows merge.
        return self.emit != "close" and self.windower.merges
