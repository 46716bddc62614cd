"""Deduplication by a clock for one key.

A value behind the watermark is late. Any other value passes, unless a value of the same id passed
whose timestamp differs by less than the time to live. An id is evicted once the watermark has
passed its timestamp and the time to live: each later value with the id is either late or passes. So
results do not depend on the time of eviction.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from typing_extensions import override

from flow.instants import NEVER
from flow.keyed.id_segments import IdState
from flow.keyed.ids import IdOf
from flow.keyed.logic import DISCARD, KEEP, Keep
from flow_windowing.clocks.clock import Clock, check_clock
from flow_windowing.object.clocked_driver import ClockedDriver
from flow_windowing.rules.lateness import is_behind
from flow_windowing.rules.streams import DOWN, DUPLICATES


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
        check_clock(self.clock)


class DedupDriver(ClockedDriver[IdState]):
    """The clock and the remembered ids of one key; emits ``(port, value)``.

    Invariants: `_passed` is a heap of the values that passed, as timestamp, number and id;
    `_times_us` has the same timestamps by id.
    """

    def __init__(self, config: DedupConfig, snapshot: IdState | None) -> None:
        clock, ids, first_us = snapshot or (None, [], [])
        super().__init__(config.clock, 1, clock, len(ids))
        self._config = config
        self._passed: list[tuple[int, int, Hashable]] = []
        self._times_us: dict[Hashable, list[int]] = {}
        for number, (found, time_us) in enumerate(zip(ids, first_us, strict=True)):
            self._remember(found, time_us, number)

    @override
    def snapshot(self) -> IdState:
        passed = sorted(self._passed, key=itemgetter(1))
        times_us = [time_us for time_us, _, _ in passed]
        return self._clock.snapshot(), [found for _, _, found in passed], times_us

    @override
    def _enter_value(self, value: Any, timestamp_us: int, watermark_us: int, number: int) -> None:
        if is_behind(timestamp_us, watermark_us):
            self._emit_late(value, timestamp_us, watermark_us, ())
            return
        found = self._config.id_of(value)
        times_us = self._times_us.get(found, ())
        if any(abs(timestamp_us - one) < self._config.ttl_us for one in times_us):
            self._output.append((DUPLICATES, value))
        else:
            self._remember(found, timestamp_us, number)
            self._output.append((DOWN, value))

    def _remember(self, found: Hashable, time_us: int, number: int) -> None:
        heapq.heappush(self._passed, (time_us, number, found))
        self._times_us.setdefault(found, []).append(time_us)

    @override
    def _advance(self, watermark_us: int) -> bool:
        least_us, count = watermark_us - self._config.ttl_us, len(self._passed)
        while self._passed and self._passed[0][0] <= least_us:
            time_us, _, found = heapq.heappop(self._passed)
            times_us = self._times_us[found]
            times_us.remove(time_us)
            if not times_us:
                del self._times_us[found]
        return len(self._passed) < count

    @override
    def _has_values(self) -> bool:
        return bool(self._passed)

    @override
    def _has_state(self) -> bool:
        return False

    @override
    def _disposition(self) -> Keep:
        # The clock of a key without ids starts again, so its state is not kept either.
        return KEEP if self._passed else DISCARD

    @override
    def _next_us(self) -> int:
        return min(self._passed[0][0] + self._config.ttl_us, NEVER) if self._passed else NEVER
