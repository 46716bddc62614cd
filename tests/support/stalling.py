"""A source that gives one item and then has nothing for a long time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from flow.connectors.source import Batch, Json, Planner, Slice, Source, SourceLog, Split


@dataclass
class PlannerCalls:
    """Count of the calls of a stalling planner's `next` after its only item."""

    next_calls: int = 0


@dataclass(frozen=True)
class StallingSource(Source[Any]):
    """Source of one item, which then has nothing for `seconds` until it ends."""

    seconds: float
    calls: PlannerCalls = field(default_factory=PlannerCalls)
    bounded = False

    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        return _StallingPlanner(self)

    def read(self, split: Split) -> Iterator[Batch]:
        yield [("a", 1)]


class _StallingPlanner(Planner):
    def __init__(self, source: StallingSource) -> None:
        self._source = source
        self._until: float | None = None

    def next(self, start: Json | None) -> Slice | None:
        if start is None:
            return Slice(1, [Split("first")])
        self._source.calls.next_calls += 1
        return None

    def finished(self, start: Json | None) -> bool:
        if self._until is None:
            self._until = time.monotonic() + self._source.seconds
        return time.monotonic() >= self._until
