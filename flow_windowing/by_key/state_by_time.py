"""The state of one key that expires by a clock.

Values enter the state in timestamp order, as the watermark passes them. State expires at a
timestamp: a value at or after that time meets no state, and the watermark expires state that no
value meets. So results do not depend on the boundaries of epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from typing_extensions import override

from flow.errors import RAISED, brief
from flow.instants import NEVER, Moment, from_us
from flow.keyed.logic import DISCARD, KEEP, Keep, RejectedValue
from flow.keyed.state import StateCounts
from flow.keyed.step import Capabilities, KeyByKey, Lowering, TimedResults
from flow.operators.stateful_steps import Expirable, TtlFrom
from flow_windowing.by_key.clocked_driver import ClockedDriver
from flow_windowing.clocks.clock import Clock, ClockedBuilder, check_clock
from flow_windowing.rules.key_state import Waiting, WaitQueue, WaitState, count_waiting
from flow_windowing.rules.metadata import DOWN, EXPIRED
from flow_windowing.rules.triggers import settings_of
from flow_windowing.rules.watermark import is_behind


class TimedState(NamedTuple):
    """The state of a key between epochs.

    Attributes:
        clock: the snapshot of the clock.
        waiting: the buffered values.
        arrived: the arrival number of the next value.
        since_us: the timestamp that the time to live counts from; ``None`` if no value has entered
            since the state last expired.
        state: the snapshot of the logic, ``None`` for no state.
    """

    clock: Any
    waiting: WaitState | None
    arrived: int
    since_us: int | None
    state: Any


def _counts_of(state: TimedState) -> StateCounts:
    return StateCounts(0, 0 if state.waiting is None else count_waiting(state.waiting))


_NEW_KEY = TimedState(None, None, 0, None, None)


@dataclass(frozen=True)
class StateByTime(ClockedBuilder):
    """Configuration of a step whose state expires by a clock, and builder of its drivers.

    Attributes:
        clock: the clock.
        builder: the builder of the logics, without a time to live.
        ttl_us: the time to live in µs.
        ttl_from: the value that it counts from.

    Raises:
        FlowTypeError: when `clock` is not a `Clock`.
    """

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"ttl_us", "ttl_from"})

    clock: Clock[Any, Any]
    builder: Callable[[Any], Expirable]
    ttl_us: int
    ttl_from: TtlFrom

    def __post_init__(self) -> None:
        check_clock(self.clock)

    @override
    def __call__(self, snapshot: TimedState | None) -> StateByTimeDriver:
        return StateByTimeDriver(self, snapshot)

    @property
    @override
    def capabilities(self) -> Capabilities:
        settings = f"{settings_of('close', self.clock, None)} ttl {self.ttl_us}"
        results = TimedResults() if self.clock.follows_inputs else None
        return super().capabilities._replace(settings=settings, counter=_counts_of, results=results)

    @override
    def lower(self) -> Lowering:
        return KeyByKey("a mapper is called with one value at a time")

    @override
    def view(self, snapshot: TimedState, moment: Moment) -> dict[str, Any]:
        since_us = snapshot.since_us
        return {
            "watermark": self.watermark(snapshot, moment),
            "since": None if since_us is None else from_us(since_us),
            "state": snapshot.state,
        }


class StateByTimeDriver(ClockedDriver[TimedState]):
    """The state of one key and the values that wait for the watermark; emits ``(port, value)``."""

    def __init__(self, config: StateByTime, snapshot: TimedState | None) -> None:
        kept = snapshot or _NEW_KEY
        super().__init__(config.clock, 1, kept.clock, kept.arrived)
        self._config = config
        self._logic = config.builder(kept.state)
        self._since_us = kept.since_us
        self._buffer = WaitQueue(kept.waiting)

    @override
    def snapshot(self) -> TimedState:
        waiting = self._buffer.snapshot() if self._buffer else None
        clock, state = self._clock.snapshot(), self._logic.snapshot()
        return TimedState(clock, waiting, self._arrived, self._since_us, state)

    @override
    def _enter_value(self, value: Any, timestamp_us: int, watermark_us: int, number: int) -> None:
        if is_behind(timestamp_us, watermark_us):
            self._emit_late(value, timestamp_us, watermark_us, ())
        else:
            self._buffer.push(Waiting(timestamp_us, number, value))

    @override
    def _advance(self, watermark_us: int) -> bool:
        """Enter buffered values that the watermark has passed, and expire state."""
        has_entered = False
        while self._buffer and self._buffer.next_us() <= watermark_us:
            has_entered = True
            timestamp_us, _, value = self._buffer.pop()
            self._expire(timestamp_us)
            self._enter(value, timestamp_us)
        has_expired = self._expire(watermark_us)
        if not self._has_values():
            # A reset at the end of the epoch would make numbers depend on the boundaries of epochs.
            self._arrived = 0
        return has_entered or has_expired

    def _enter(self, value: Any, timestamp_us: int) -> None:
        """Call the logic with a value.

        Raises:
            RejectedValue: when the mapper raised.
        """
        makes_state = self._logic.snapshot() is None
        try:
            made, _ = self._logic.on_item(value, self._moment)
            self._output += [(DOWN, one) for one in made]
        except RAISED as error:
            raise RejectedValue(value, f"the mapper raised {brief(error)}") from error
        if makes_state or self._config.ttl_from == "write":
            self._since_us = timestamp_us

    def _expire(self, time_us: int) -> bool:
        """Remove the state if its time to live has passed at a time; return True if it has.

        A mapper that has returned ``None`` leaves nothing to emit. The key still stays until this
        time, so that its clock does not start again in the middle of an epoch.
        """
        if self._expires_us() > time_us:
            return False
        if self._logic.snapshot() is not None:
            self._output += [(EXPIRED, one) for one in self._logic.on_expired()]
        self._logic, self._since_us = self._config.builder(None), None
        return True

    def _expires_us(self) -> int:
        """Return the time at which the state expires, `NEVER` for no state."""
        return NEVER if self._since_us is None else self._since_us + self._config.ttl_us

    @override
    def hold_us(self, ports: Collection[int]) -> int:
        return min(self._buffer.next_us(), self._expires_us() if EXPIRED in ports else NEVER)

    @override
    def _has_values(self) -> bool:
        return self._since_us is not None or bool(self._buffer)

    @override
    def _has_state(self) -> bool:
        return False

    @override
    def _disposition(self) -> Keep:
        # The clock of a key without state starts again, so it is not kept either.
        return KEEP if self._has_values() else DISCARD

    @override
    def _next_us(self) -> int:
        return min(self._buffer.next_us(), self._expires_us())
