"""Log warnings of dropped and late values, at a limited rate."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping

from flow.durations import duration_text
from flow.engine.epoch.context import LateSource, Stats
from flow.engine.epoch.lateness import ENOUGH, wait_needed_us
from flow.engine.plan.plan import Plan
from flow.errors import printable
from flow.reports.progress import RateLimit, Seconds

logger = logging.getLogger("flow")

DROP_INTERVAL_SECONDS = 10.0
"""The least time between two warnings of dropped values."""

LATE_INTERVAL_SECONDS = 60.0
"""The least time between two warnings of a step's late values."""


class DropWarnings:
    """Warnings with examples of dropped values, at a limited rate."""

    def __init__(self, clock: Seconds = time.monotonic) -> None:
        self._limit = RateLimit(DROP_INTERVAL_SECONDS, clock)
        self._skipped = 0

    def __call__(self, stats: Stats) -> None:
        """Log an epoch's examples, or count them until the rate allows a warning."""
        if not stats.notes:
            return
        if not self._limit.allows():
            self._skipped += len(stats.notes)
            return
        for note in stats.notes:
            logger.warning("%s", printable(note))
        if self._skipped:
            logger.warning("%d more such messages were left out", self._skipped)
        self._skipped = 0


class LateWarnings:
    """Warnings of late values, for steps whose `late` stream no step reads, at a limited rate.

    Args:
        plan: the compiled flow.
        clock: the clock that measures the time between warnings.
    """

    def __init__(self, plan: Plan, clock: Seconds = time.monotonic) -> None:
        self._limits = {
            down.step_id: RateLimit(LATE_INTERVAL_SECONDS, clock)
            for step in plan.steps.values()
            for down in step.downs[1:]
            if down.port == "late" and not plan.hops_of(down)
        }
        self._counts: Counter[str] = Counter()
        self._lateness: dict[str, Counter[int]] = {step_id: Counter() for step_id in self._limits}
        self._sources: dict[str, Counter[LateSource]] = {name: Counter() for name in self._limits}

    def __call__(self, stats: Stats) -> None:
        """Add an epoch's counts, and warn where the rate allows."""
        for (step_id, late_by_us), count in stats.lateness.items():
            if step_id in self._lateness:
                self._lateness[step_id][late_by_us] += count
        for source, count in stats.late_sources.items():
            if source.step_id in self._sources:
                self._sources[source.step_id][source] += count
        for step_id, limit in self._limits.items():
            self._counts[step_id] += stats.counts[step_id, "late"]
            count = self._counts[step_id]
            if count and limit.allows():
                were = "1 value was" if count == 1 else f"{count:,} values were"
                message = "step %r: %s late and nothing reads its `late` stream%s"
                lateness, sources = self._lateness[step_id], self._sources[step_id]
                logger.warning(message, step_id, were, wait_advice(lateness, sources))
                self._counts[step_id] = 0
                lateness.clear()
                sources.clear()


def wait_advice(
    late_by_us: Mapping[int, int], sources: Mapping[LateSource, int] | None = None
) -> str:
    """Return the longer wait that late values needed, and their main source, as a clause.

    Args:
        late_by_us: the number of values that were late by each duration, in microseconds.
        sources: the number of late values by source.

    Returns:
        The clause, which follows a sentence; empty if the durations are not known.

    >>> wait_advice({4_100_000: 99, 60_000_000: 1}, {LateSource("hourly", "b.csv", "a.csv"): 80})
    ': a wait_for_system_duration longer by 4s100ms would have been enough for 99 % of them; \
80 of them came from b.csv, while a.csv was furthest ahead'
    """
    needed_us = wait_needed_us(late_by_us)
    if not needed_us:
        return ""
    share = "all" if needed_us == max(late_by_us) else f"{ENOUGH * 100:.0f} %"
    longer = duration_text(needed_us)
    return (
        f": a wait_for_system_duration longer by {longer} would have been enough for {share} "
        f"of them{printable(_source_advice(sources or {}))}"
    )


def _source_advice(sources: Mapping[LateSource, int]) -> str:
    if not sources:
        return ""
    most = max(sources, key=sources.__getitem__)
    behind = (
        "out of order within it"
        if most.came_from == most.ahead
        else f"while {most.ahead} was furthest ahead"
    )
    return f"; {sources[most]:,} of them came from {most.came_from}, {behind}"
