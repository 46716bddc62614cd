"""Deduplication by a clock for one key.

For each value, in order of arrival, the clock returns its timestamp and advances the watermark. A
value behind the watermark is late. Any other value passes, unless a value of the same id passed
whose timestamp differs by less than the time to live. An id is evicted once the watermark has
passed its timestamp and the time to live: each later value with the id is either late or passes. So
results do not depend on the time of eviction.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import override

from flow.errors import FlowTypeError, shorten
from flow.instants import NEVER, NO_PROGRESS, Moment
from flow.keyed.id_table import IdState
from flow.keyed.ids import IdOf
from flow.keyed.logic import (
    COUNTED,
    DISCARD,
    KEEP,
    Bounded,
    Counted,
    Keep,
    Stamped,
    StatefulLogic,
)
from flow_windowing.clocks.clock import Clock, DroppedValue, Reading
from flow_windowing.contract.metadata import LateReason, LateValue
from flow_windowing.rules.lateness import counted_late, is_behind
from flow_windowing.rules.streams import DOWN, DUPLICATES, LATE


@dataclass(frozen=True)
class DedupConfig:
    """Configuration of a step that drops repeated values by a clock.

    Attributes:
        clock: the clock.
        id_of: the id of a value.
        ttl_us: how long an id is remembered, in µs.
    """

    clock: Clock[Any, Any]
    id_of: IdOf
    ttl_us: int

    def __post_init__(self) -> None:
        clock: object = self.clock
        if not isinstance(clock, Clock):
            raise FlowTypeError(
                f"clock must be a Clock such as EventClock('at', '5s'), got {shorten(clock)}"
            )


class DedupDriver(StatefulLogic[Any, tuple[int, Any], IdState]):
    """The clock and the remembered ids of one key; emits ``(port, value)``.

    Invariants: `_first_us` has the timestamps of the values that passed for each id. `_unsettled`
    is the moment of the epoch while the clock has read values of it that have not been settled.
    """

    detaches = True

    def __init__(self, config: DedupConfig, snapshot: IdState | None) -> None:
        clock, ids, first_us = snapshot or (None, [], [])
        self._config = config
        self._clock = config.clock.build(clock)
        self._first_us: dict[Hashable, list[int]] = {}
        for found, time_us in zip(ids, first_us, strict=True):
            self._first_us.setdefault(found, []).append(time_us)
        self._unsettled: Moment | None = None
        self._moment = Moment(0)

    @override
    def on_item(self, value: Any, moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        self._unsettled = self._moment = moment
        before, source = moment.before, -1
        if isinstance(value, Bounded):
            value, bound_us, progress_us, source = value
            before = replace(before, bound_us=bound_us, progress_us=progress_us)
        elif isinstance(value, Stamped):
            value, progress_us = value
            before = replace(before, progress_us=progress_us)
        try:
            reading = self._clock.on_item(value, before)
        except DroppedValue as dropped:
            return [(COUNTED, Counted("dropped", 1, f"dropped a value: {dropped}"))], KEEP
        return self._routed(value, reading, source), KEEP

    def _routed(self, value: Any, reading: Reading, source: int) -> list[tuple[int, Any]]:
        """Return a value with its stream, and counts."""
        timestamp_us, watermark_us, refused = reading
        if refused is not None:
            late = LateValue.of_us(value, timestamp_us, watermark_us, (), refused)
            return [(LATE, late), (COUNTED, Counted(refused.value))]
        if is_behind(timestamp_us, watermark_us):
            late = LateValue.of_us(value, timestamp_us, watermark_us, (), LateReason.LATE)
            late_by_us = np.array([watermark_us - timestamp_us])
            counts = counted_late(late_by_us, np.array([source]))
            return [(LATE, late), *((COUNTED, one) for one in counts)]
        first_us = self._first_us.setdefault(self._config.id_of(value), [])
        if any(abs(timestamp_us - one) < self._config.ttl_us for one in first_us):
            return [(DUPLICATES, value)]
        first_us.append(timestamp_us)
        return [(DOWN, value)]

    @override
    def on_notify(self, moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        self._settle()
        self._moment = moment
        if self._evict(self._clock.watermark(moment)):
            self._clock.settle(moment)
        return (), KEEP if self._first_us else DISCARD

    @override
    def on_end(self, moment: Moment) -> tuple[Iterable[tuple[int, Any]], Keep]:
        return (), DISCARD

    @override
    def notify_at_us(self) -> int:
        self._settle()
        if not self._first_us:
            return NO_PROGRESS  # Due at once: the key has nothing to remember.
        least_us = min(min(times_us) for times_us in self._first_us.values())
        return self._clock.due_us(min(least_us + self._config.ttl_us, NEVER), self._moment)

    @override
    def snapshot(self) -> IdState:
        self._settle()
        pairs = [(found, one) for found, times_us in self._first_us.items() for one in times_us]
        return self._clock.snapshot(), [found for found, _ in pairs], [one for _, one in pairs]

    def _settle(self) -> None:
        """Advance the clock to the end of an epoch, after its values."""
        moment, self._unsettled = self._unsettled, None
        if moment is not None:
            self._clock.settle(moment)

    def _evict(self, watermark_us: int) -> bool:
        """Remove the ids that the watermark has passed; return True if there was one."""
        least_us, count = watermark_us - self._config.ttl_us, _count(self._first_us)
        remaining = {
            found: kept
            for found, times_us in self._first_us.items()
            if (kept := [one for one in times_us if one > least_us])
        }
        self._first_us = remaining
        return _count(remaining) < count


def _count(first_us: dict[Hashable, list[int]]) -> int:
    return sum(map(len, first_us.values()))
