"""Configuration of an as-of join, which both paths run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from flow.checks import check_choice
from flow.durations import Duration, duration_us
from flow.errors import RAISED, FlowBuildError, FlowTypeError, brief, shorten
from flow.fields import field_path
from flow.keyed.logic import RejectedValue
from flow_windowing.asof.rules import DIRECTIONS, EMITS, HOWS, AsOf, AsofEmit, Direction, How
from flow_windowing.clocks.clock import Clock, check_clock
from flow_windowing.interval.rules import GREATEST_US
from flow_windowing.rules.settings import settings_of


@dataclass(frozen=True)
class AsofJoinConfig:
    """Configuration of an as-of join.

    Attributes:
        clock: the clock.
        tolerance: the greatest distance of a partner, inclusive; ``None`` for any distance.
        direction: the direction in which a left value looks for its partner.
        how: the left values that leave.
        emit: the time at which they leave.
        right_value: the part of a right value that is paired; ``None`` for the value itself.

    Raises:
        FlowTypeError, FlowBuildError, DurationError: when an argument is invalid.
    """

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"how", "emit"})

    clock: Clock[Any, Any]
    tolerance: Duration | None
    direction: Direction = "backward"
    how: How = "left"
    emit: AsofEmit = "complete"
    right_value: Callable[[Any], Any] | str | None = None

    def __post_init__(self) -> None:
        check_clock(self.clock)
        check_choice("direction", self.direction, DIRECTIONS)
        check_choice("how", self.how, HOWS)
        check_choice("emit", self.emit, EMITS)
        if self.tolerance is not None and duration_us(self.tolerance, "tolerance") < 0:
            raise FlowBuildError(f"tolerance must not be negative, got {shorten(self.tolerance)}")
        part: object = self.right_value
        if not (part is None or isinstance(part, str) or callable(part)):
            raise FlowTypeError(
                "right_value must be a function of a right value, or the path of a field, "
                f"got {type(part).__name__} {shorten(part)}"
            )

    @cached_property
    def as_of(self) -> AsOf:
        """The rule by which left values find their partners."""
        tolerance_us = GREATEST_US if self.tolerance is None else duration_us(self.tolerance)
        return AsOf(self.direction, min(tolerance_us, GREATEST_US))

    @cached_property
    def settings(self) -> str:
        """The settings that determine the times at which values leave, as text."""
        return settings_of("close", self.clock, self.as_of)

    def part_of(self, right: Any) -> Any:
        """Return the part of a right value that is paired; ``None`` deletes.

        Raises:
            RejectedValue: when the value has no such part.
        """
        part = self.right_value
        if part is None:
            return right
        try:
            return field_path(part).value_in(right) if isinstance(part, str) else part(right)
        except RAISED as error:
            problem = f"right_value {shorten(part)} gave nothing: {brief(error)}"
            raise RejectedValue(right, problem) from error
