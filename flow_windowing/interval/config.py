"""Configuration of an interval join, which both paths run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from flow.checks import check_choice
from flow.durations import Duration, duration_us
from flow.errors import FlowBuildError, shorten
from flow_windowing.clocks.clock import Clock, check_clock
from flow_windowing.interval.rules import GREATEST_US, HOWS, How, Interval, unmatched_sides
from flow_windowing.rules.settings import settings_of


@dataclass(frozen=True)
class IntervalJoinConfig:
    """Configuration of an interval join.

    Attributes:
        clock: the clock.
        before: the time before a left value at which partners begin.
        after: the time after a left value at which partners end.
        how: the sides whose values leave without a partner too.
        grace: the time for which a value behind the watermark is still on time; ``None`` for none.

    Raises:
        FlowTypeError, FlowBuildError, DurationError: when an argument is invalid.
    """

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"how", "grace"})

    clock: Clock[Any, Any]
    before: Duration
    after: Duration
    how: How = "inner"
    grace: Duration | None = None

    def __post_init__(self) -> None:
        check_clock(self.clock)
        check_choice("how", self.how, HOWS)
        before_us, after_us = duration_us(self.before, "before"), duration_us(self.after, "after")
        if before_us + after_us < 0:
            raise FlowBuildError(
                "before + after must not be negative, as no pair would match, "
                f"got before={shorten(self.before)}, after={shorten(self.after)}"
            )
        if self.grace is not None and duration_us(self.grace, "grace") < 0:
            raise FlowBuildError(f"grace must not be negative, got {shorten(self.grace)}")

    @cached_property
    def interval(self) -> Interval:
        """The interval in microseconds."""
        grace_us = 0 if self.grace is None else _limited(self.grace)
        return Interval(_limited(self.before), _limited(self.after), grace_us)

    @cached_property
    def unmatched(self) -> frozenset[int]:
        """The sides whose unmatched values the join emits."""
        return unmatched_sides(self.how)

    @cached_property
    def settings(self) -> str:
        """The settings that determine the times at which values expire, as text."""
        return settings_of("close", self.clock, self.interval)


def _limited(value: Duration) -> int:
    """Return a duration in µs, limited to the greatest distance of two timestamps."""
    return max(-GREATEST_US, min(duration_us(value), GREATEST_US))
