"""The window driver: one key's clock, windower, waiting values and window logics, working together.

For each value, in arrival order: the clock gives its timestamp and moves the watermark; the value
is late, or waits until the watermark passes it (`ordered`), or enters its windows at once; windows
that the watermark has passed close. Each value is dealt with wholly before the next, so that
cutting the input into epochs differently changes nothing.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Self, TypeVar

from typing_extensions import override

from flow.instants import NEVER, Moment
from flow.operators import DISCARD, KEEP, Keep, StatefulBatchLogic
from flow_windowing.clocks import Clock
from flow_windowing.metadata import LateValue, WindowMetadata
from flow_windowing.windowers import Windower

V = TypeVar("V")
W = TypeVar("W")
S = TypeVar("S")

PORTS = ("down", "late", "closed")
DOWN, LATE, CLOSED = range(len(PORTS))


class WindowLogic(ABC, Generic[V, W, S]):
    """What happens inside one window of one key: the contract for `window`."""

    @abstractmethod
    def on_value(self, value: V) -> Iterable[W]:
        """Called with each value that enters the window; returns what to emit at once."""

    def on_merge(self, original: Self) -> Iterable[W]:
        """Called when another window becomes part of this one, with that window's logic.

        Must be written for windowers that merge windows, such as sessions.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot merge windows: write on_merge")

    @abstractmethod
    def on_close(self) -> Iterable[W]:
        """Called once when the window closes; returns what to emit last."""

    @abstractmethod
    def snapshot(self) -> S:
        """Return a copy of the state, which must not change when the logic goes on."""


LogicBuilder = Callable[[Any], WindowLogic[Any, Any, Any]]


class DriverState(NamedTuple):
    """A key's state between epochs.

    Attributes:
        clock: what the clock remembers.
        windower: what the windower remembers.
        waiting: a heap of the values that wait: timestamp, number of arrival, value.
        arrived: how many values have waited so far.
        windows: a snapshot of each open window's logic, by id.
    """

    clock: Any
    windower: Any
    waiting: list[tuple[int, int, Any]]
    arrived: int
    windows: dict[int, Any]


@dataclass(frozen=True)
class DriverBuilder:
    """Makes the driver of each key of a windowing step."""

    clock: Clock[Any, Any]
    windower: Windower[Any]
    builder: LogicBuilder
    ordered: bool

    def __call__(self, state: DriverState | None) -> WindowDriver:
        """Make the driver of a key, from a snapshot if there is one."""
        return WindowDriver(self, state)


class WindowDriver(StatefulBatchLogic[Any, tuple[int, Any], DriverState]):
    """The logic of one key of a windowing step; emits (port, value)."""

    def __init__(self, config: DriverBuilder, state: DriverState | None) -> None:
        clock, windower, waiting, arrived, windows = state or DriverState(None, None, [], 0, {})
        self._builder = config.builder
        self._ordered = config.ordered
        self._late_at_once = config.windower.grace_us is None
        self._clock = config.clock.build(clock)
        self._windower = config.windower.build(windower)
        self._waiting = waiting
        self._arrived = arrived
        self._windows = {number: config.builder(one) for number, one in windows.items()}
        self._out: list[tuple[int, Any]] = []
        self._moment = Moment(0)

    @override
    def on_batch(self, values: list[Any], moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        self._moment = moment
        for value in values:
            timestamp_us, watermark_us = self._clock.on_item(value, moment)
            if timestamp_us < watermark_us and self._late_at_once:
                self._reject(value, timestamp_us, watermark_us)
            elif self._ordered and timestamp_us > watermark_us:
                heapq.heappush(self._waiting, (timestamp_us, self._arrived, _Opaque(value)))
                self._arrived += 1
            else:
                self._pass(watermark_us, before_us=timestamp_us)
                self._insert(value, timestamp_us, watermark_us)
            self._pass(watermark_us)
        return self._emit()

    @override
    def on_notify(self, moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        self._moment = moment
        self._pass(self._clock.watermark(moment))
        return self._emit()

    @override
    def on_end(self, moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        self._moment = moment
        self._pass(NEVER)
        return self._emit()

    @override
    def notify_at_us(self) -> int:
        closes_us = self._windower.next_close_us()
        if self._waiting:
            closes_us = min(closes_us, self._waiting[0][0])
        return NEVER if closes_us >= NEVER else self._clock.due_us(closes_us, self._moment)

    @override
    def snapshot(self) -> DriverState:
        windows = {number: logic.snapshot() for number, logic in self._windows.items()}
        return DriverState(
            self._clock.snapshot(),
            self._windower.snapshot(),
            list(self._waiting),
            self._arrived,
            windows,
        )

    def _pass(self, watermark_us: int, before_us: int = NEVER) -> None:
        """Let waiting values that the watermark has passed enter, then close what it has passed."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= watermark_us and waiting[0][0] <= before_us:
            timestamp_us, _, held = heapq.heappop(waiting)
            self._insert(held.value, timestamp_us, watermark_us)
        if before_us == NEVER and self._windower.next_close_us() <= watermark_us:
            for metadata in self._windower.close_for(watermark_us):
                self._close(metadata)

    def _insert(self, value: Any, timestamp_us: int, watermark_us: int) -> None:
        floor_us = timestamp_us if self._late_at_once else watermark_us
        ids, missed = self._windower.open_for(timestamp_us, min(floor_us, watermark_us))
        for window_id in ids:
            logic = self._windows.get(window_id)
            if logic is None:
                logic = self._windows[window_id] = self._builder(None)
            made = logic.on_value(value)
            if made:
                self._down(self._windower.metadata(window_id), made)
        for original, target in self._windower.merged():
            self._merge(original, target)
        for metadata in missed:
            late = LateValue.of_us(value, timestamp_us, watermark_us, metadata)
            self._out.append((LATE, late))

    def _merge(self, original: int, target: int) -> None:
        consumed = self._windows.pop(original)
        kept = self._windows.get(target)
        if kept is None:
            self._windows[target] = consumed
        else:
            self._down(self._windower.metadata(target), kept.on_merge(consumed))

    def _close(self, metadata: WindowMetadata) -> None:
        logic = self._windows.pop(metadata.window_id)
        self._down(metadata, logic.on_close())
        self._out.append((CLOSED, metadata))

    def _reject(self, value: Any, timestamp_us: int, watermark_us: int) -> None:
        for metadata in self._windower.missed_by(timestamp_us):
            late = LateValue.of_us(value, timestamp_us, watermark_us, metadata)
            self._out.append((LATE, late))

    def _down(self, metadata: WindowMetadata, values: Iterable[Any]) -> None:
        self._out.extend((DOWN, (metadata, value)) for value in values)

    def _emit(self) -> tuple[Iterable[tuple[int, Any]], Keep]:
        out, self._out = self._out, []
        remembers = (
            self._windows
            or self._waiting
            or self._clock.snapshot() is not None
            or self._windower.snapshot() is not None
        )
        return out, KEEP if remembers else DISCARD


class _Opaque:
    """A waiting value, kept from being compared when timestamps tie."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value
