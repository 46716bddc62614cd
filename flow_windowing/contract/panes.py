"""Triggers and panes: the times at which a window emits before, at and after its end.

A window with a trigger emits *panes*. The watermark passes the end of a window at its close time,
without grace. A trigger is configuration, the value of ``emit`` of a windowing operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

from flow.checks import KnownArguments, check_flag, check_whole
from flow.durations import Duration, positive_us
from flow.errors import FlowBuildError, FlowTypeError, shorten


class PaneTiming(Enum):
    """The time of a pane, relative to the time at which the watermark passes the window's end.

    Attributes:
        EARLY: before the watermark passed the end.
        ON_TIME: as the watermark passed the end.
        LATE: after that, for values in the grace of the window.
    """

    EARLY = "early"
    ON_TIME = "on_time"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Pane:
    """One emission of a window with a trigger.

    Attributes:
        index: the number of panes that the window emitted before.
        timing: the time of the pane, relative to the end of the window.
        is_last: True if the window closed with this pane. A window whose last pane was emitted
            before its grace was over closes without another pane.

    >>> Pane(0, PaneTiming.EARLY).is_first
    True
    """

    index: int
    timing: PaneTiming
    is_last: bool = False

    @property
    def is_first(self) -> bool:
        """True for the first pane of a window."""
        return self.index == 0

    def as_record(self) -> dict[str, Any]:
        """Return the pane as columns, for sinks that write tables."""
        return {
            "pane_index": self.index,
            "pane_timing": self.timing.value,
            "pane_is_last": self.is_last,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a call of the class, like `WindowMetadata`."""
        return Pane, (self.index, self.timing, self.is_last)

    def __repr__(self) -> str:
        """Return an expression that evaluates to the pane, without defaults."""
        last = ", is_last=True" if self.is_last else ""
        return f"Pane({self.index}, {self.timing}{last})"


_RULE_NAMES = {
    "period": "use every=, the time after the first value of a pane",
    "interval": "use every=, the time after the first value of a pane",
    "delay": "use every=, the time after the first value of a pane",
    "seconds": 'use every=, a duration such as "10s"',
    "n": "use count=, the number of values of a pane",
    "elements": "use count=, the number of values of a pane",
    "accumulate": "use AfterWatermark(early=..., late=..., accumulate=...)",
}


@dataclass(frozen=True)
class FiringRule(KnownArguments):
    """The rule by which a window fires, counted from the first value after its last pane."""

    WRONG_ARGUMENTS: ClassVar[Mapping[str, str]] = _RULE_NAMES

    every: Duration | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.every is None and self.count is None:
            raise FlowBuildError(
                f"{name}: every or count is needed, got neither: write {name}(every='10s') or "
                f"{name}(count=100)"
            )
        if self.count is not None:
            check_whole(f"{name}: count", self.count, 1)
        _ = self.every_us

    @cached_property
    def every_us(self) -> int | None:
        """`every` in microseconds."""
        name = type(self).__name__
        return None if self.every is None else positive_us(self.every, f"{name}: every")


@dataclass(frozen=True)
class Early(FiringRule):
    """A rule by which a window fires before the watermark passes its end.

    With both arguments the window fires at the earlier of the two. A pane has at least one value
    that no earlier pane had.

    Args:
        every: the system time from the first value after the last pane to the next pane.
        count: the number of values after the last pane that fire the next pane.

    Raises:
        FlowBuildError, FlowTypeError, DurationError: when an argument is invalid.

    >>> Early(count=100)
    Early(every=None, count=100)
    """


@dataclass(frozen=True)
class Late(FiringRule):
    """A rule by which a window fires for values that enter it after the watermark passed its end.

    Such values enter in the grace of the windower only. Values that have fired no pane when the
    window closes are in its last pane.

    Args:
        every: as in `Early`.
        count: as in `Early`.

    Raises:
        FlowBuildError, FlowTypeError, DurationError: when an argument is invalid.

    >>> Late(every="1m").every_us
    60000000
    """


@dataclass(frozen=True)
class AfterWatermark(KnownArguments):
    """A trigger that fires as the watermark passes the end of a window, and before and after that.

    Args:
        early: the rule for panes before the on-time pane; without it there are none.
        late: the rule for panes after the on-time pane. Without it, the values that enter in the
            grace are in one pane, as the window closes.
        accumulate: ``True``: a pane has the result of all values of the window. ``False``: a pane
            has the result of the values since the last pane.

    Raises:
        FlowTypeError: when an argument is invalid.

    >>> AfterWatermark(early=Early(count=2), accumulate=False).accumulate
    False
    """

    WRONG_ARGUMENTS: ClassVar[Mapping[str, str]] = {
        "accumulation_mode": "use accumulate=, True or False",
        "accumulating": "use accumulate=, True or False",
        "discarding": "use accumulate=False",
        "allowed_lateness": "use grace= of the windower",
    }

    early: Early | None = None
    late: Late | None = None
    accumulate: bool = True

    def __post_init__(self) -> None:
        for name, kind in (("early", Early), ("late", Late)):
            rule: object = getattr(self, name)
            if rule is not None and not isinstance(rule, kind):
                raise FlowTypeError(
                    f"AfterWatermark: {name} must be {kind.__name__}(every='10s'), "
                    f"{kind.__name__}(count=100) or None, got {shorten(rule)}"
                )
        check_flag("AfterWatermark: accumulate", self.accumulate)


Trigger: TypeAlias = "Early | Late | AfterWatermark"
"""A trigger as operators take it; a rule alone stands for an `AfterWatermark` with the rule."""
