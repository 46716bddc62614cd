"""Times at which windows emit: `emit`, triggers, timestamps, and the settings stored with state.

A window with a trigger emits *panes*. The watermark passes the end of a window at its close time,
without grace. A trigger is configuration, the value of ``emit`` of a windowing operator.

The settings of a step are stored as text with the state. Clock and windower determine the system
time at which a window closes, and `emit` the time at which it emits. If a flow restarts with other
settings than its state was written with, the due times in the state are out of date. The engine
compares the texts and, if they differ, runs all keys once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias, TypeVar

from flow.checks import KnownArguments, check_flag, check_whole
from flow.durations import Duration, positive_us
from flow.errors import FlowBuildError, FlowTypeError, shorten

T = TypeVar("T")

Timestamp: TypeAlias = Literal["open", "close", "last"]
"""The time of a window in its metadata: open time, close time, or greatest timestamp."""


@dataclass(frozen=True)
class FiringRule(KnownArguments):
    """The rule by which a window fires, counted from the first value after its last pane."""

    WRONG_ARGUMENTS: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("period", "interval", "delay"),
            "use every=, the time after the first value of a pane",
        ),
        **dict.fromkeys(("n", "elements"), "use count=, the number of values of a pane"),
        "accumulate": "use AfterWatermark(early=..., late=..., accumulate=...)",
    }

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


Emit: TypeAlias = Literal["close", "epoch", "update"]
"""The time at which a window emits: as it closes; also at the end of each epoch that changes it; or
only after every value."""


Emission: TypeAlias = Emit | AfterWatermark
"""The time at which a window emits, also by a trigger."""


_PLAIN = (str, bool, int, float, timedelta, type(None))


def settings_of(emit: Emission, clock: object, windower: object) -> str:
    """Return the time of emission and the plain values of clock and windower as JSON.

    >>> from flow_windowing import SystemClock, SessionWindower
    >>> settings_of("close", SystemClock(), SessionWindower("5m"))
    '["close", {}, {"gap": "5m", "inclusive": "True", "grace": "None"}]'
    """
    return json.dumps([str(emit), _plain_values(clock), _plain_values(windower)])


def owes_updates(before: str, emit: Emission) -> bool:
    """Return True if restored windows owe an update, as `emit` changed to "update".

    With "close" or a trigger before, windows have values that they have not emitted, and with
    "update" they emit nothing as they close.

    Args:
        before: the settings that the state was written with; empty if they are unknown.
        emit: the current setting.
    """
    if not before or emit != "update":
        return False
    return json.loads(before)[0] not in {"update", "epoch"}


def _plain_values(config: object) -> dict[str, str]:
    """Return the fields of a clock or windower as texts by name, without those of other types.

    Functions, for example, are left out, as they cannot be compared between runs.
    """
    if not is_dataclass(config):
        return {}
    values = ((one.name, getattr(config, one.name)) for one in fields(config))
    return {name: str(value) for name, value in values if isinstance(value, _PLAIN)}


def timestamp_of(choice: Timestamp, open_time: T, close_time: T, last_time: Callable[[], T]) -> T:
    """Return the timestamp of a window, or of many in columns.

    Args:
        choice: the time to return.
        open_time: the open time.
        close_time: the close time.
        last_time: returns the greatest timestamp in the window, or the close time of a window that
            opened before the step recorded timestamps.
    """
    if choice == "last":
        return last_time()
    return open_time if choice == "open" else close_time
