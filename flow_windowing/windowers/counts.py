"""Count windows: windows of a number of values, regardless of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from typing_extensions import override

from flow.checks import check_flag, check_whole
from flow.instants import NEVER
from flow_windowing.rules.metadata import WindowMetadata
from flow_windowing.windowers.windower import AssignedWindows, Windower, WindowerLogic

CountState: TypeAlias = tuple[int, dict[int, tuple[int, int]]]
"""The number of values, and the least and greatest timestamp in each open window, by id."""


@dataclass(frozen=True)
class CountWindower(Windower[CountState]):
    """Windows of `count` values; every `step` values, a window opens.

    Values are counted as they enter windows: in timestamp order if the operator is ordered, else in
    order of arrival. No value is late, as a count window has no end in time: a value behind the
    watermark enters at once, in order of arrival, even if the operator is ordered.

    A window closes when it is full; its bounds are the least and the greatest timestamp in it, and
    its id is its index. If the step is less than the count, windows overlap. If it is greater,
    windows leave gaps, and a value in a gap goes to the late stream as `LateReason.GAP`.

    Args:
        count: the number of values in a window.
        step: the number of values after which the next window opens; by default `count`.
        partial: ``True``: windows that are not full close when the input ends. By default they stay
            open, and a later run fills them.

    Raises:
        FlowBuildError, FlowTypeError: when an argument is invalid.

    >>> CountWindower(count=4, step=2).step_count
    2
    """

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"partial"})
    closes_by_time = False
    # No watermark closes a count window, so a value behind the watermark may enter.
    grace_us = 0

    count: int
    step: int | None = None
    partial: bool = False

    def __post_init__(self) -> None:
        check_whole("CountWindower: count", self.count, 1)
        if self.step is not None:
            check_whole("CountWindower: step", self.step, 1)
        check_flag("CountWindower: partial", self.partial)

    @property
    def step_count(self) -> int:
        """The number of values after which the next window opens."""
        return self.count if self.step is None else self.step

    @override
    def build(self, state: CountState | None) -> WindowerLogic[CountState]:
        return _CountLogic(self.count, self.step_count, self.partial, state)


class _CountLogic(WindowerLogic[CountState]):
    """The windows of one key: window i holds `count` values from number i * step on."""

    __slots__ = ("_bounds", "_count", "_full", "_partial", "_seen", "_step")

    def __init__(self, count: int, step: int, partial: bool, state: CountState | None) -> None:
        self._count = count
        self._step = step
        self._partial = partial
        self._seen, bounds = state or (0, {})
        self._bounds = dict(bounds)
        self._full: int | None = None

    @override
    def open_for(self, timestamp_us: int, watermark_us: int) -> AssignedWindows:
        number, self._seen = self._seen, self._seen + 1
        first = max(0, (number - self._count) // self._step + 1)
        # A window that is neither open nor begins with this value was closed before it was full.
        ids = [
            window_id
            for window_id in range(first, number // self._step + 1)
            if window_id in self._bounds or window_id * self._step == number
        ]
        for window_id in ids:
            least, greatest = self._bounds.get(window_id, (timestamp_us, timestamp_us))
            self._bounds[window_id] = min(least, timestamp_us), max(greatest, timestamp_us)
        if first in self._bounds and number + 1 == first * self._step + self._count:
            self._full = first
        return AssignedWindows(ids)

    @override
    def missed_by(self, timestamp_us: int) -> Sequence[WindowMetadata]:
        return ()

    @override
    def metadata(self, window_id: int) -> WindowMetadata:
        return WindowMetadata.of_us(window_id, *self._bounds[window_id])

    @override
    def close_for(self, watermark_us: int) -> Sequence[WindowMetadata]:
        closing = [] if self._full is None else [self._full]
        self._full = None
        if watermark_us >= NEVER and self._partial and self._bounds:
            closing = sorted(self._bounds)
            # Closed windows never open again, so counting continues where the next window begins.
            self._seen = (closing[-1] + 1) * self._step
        closed = [self.metadata(window_id) for window_id in closing]
        for window_id in closing:
            del self._bounds[window_id]
        return closed

    @override
    def next_close_us(self) -> int:
        return NEVER if self._full is None else -NEVER

    @override
    def snapshot(self) -> CountState | None:
        return (self._seen, dict(self._bounds)) if self._seen else None
