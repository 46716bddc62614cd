"""Log warnings of dropped and late values, and of holds that do not move, at a limited rate."""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from flow.durations import duration_text
from flow.engine.epoch.statistics import LateSource, Stats, StepBound
from flow.engine.epoch.summary import EpochReport
from flow.engine.plan.plan import Plan, Reads
from flow.errors import printable
from flow.instants import from_us
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
        self._reads = {step_id: plan.reads.get(step_id, Reads()) for step_id in self._limits}
        self._counts: Counter[str] = Counter()
        self._totals = LateTotals()

    def __call__(self, stats: Stats) -> None:
        """Add an epoch's counts, and warn where the rate allows."""
        self._totals.add(stats)
        for step_id, limit in self._limits.items():
            self._counts[step_id] += stats.counts[step_id, "late"]
            count = self._counts[step_id]
            if count and limit.allows():
                were = "1 value was" if count == 1 else f"{count:,} values were"
                message = "step %r: %s late and nothing reads its `late` stream%s"
                advice = results_advice(self._reads[step_id]) or self._totals.advice(step_id)
                logger.warning(message, step_id, were, advice)
                self._counts[step_id] = 0
                self._totals.clear(step_id)


class HoldWarnings:
    """Warnings of steps that wait for another step whose hold does not move, at a limited rate.

    A step waits patiently for a minute more than the greatest lag of the results that it reads.
    Each further warning of a hold comes after four times as long.

    Args:
        plan: the compiled flow.
        clock: the clock that measures how long a hold has not moved.
    """

    def __init__(self, plan: Plan, clock: Seconds = time.monotonic) -> None:
        self._patience = {
            name: 60 + reads.greatest_us / 1e6
            for name, reads in plan.reads.items()
            if reads.results
        }
        self._clock = clock
        self._before: dict[str, _StillBound] = {}

    def __call__(self, stats: Stats) -> None:
        """Compare an epoch's bounds with those before, and warn of those that have not moved."""
        now, before, self._before = self._clock(), self._before, {}
        for step_id, bound in stats.bounds.items():
            if bound.partition >= 0 or step_id not in self._patience:
                continue
            still = before.get(step_id)
            if still is None or still.bound != bound:
                still = _StillBound(bound, now, self._patience[step_id])
            if now - still.since >= still.patience:
                waited = duration_text(round(now - still.since) * 1_000_000)
                time_held = from_us(bound.bound_us).isoformat()
                logger.warning(_HOLD_MESSAGE, step_id, waited, bound.setter, time_held)
                still = still._replace(patience=4 * still.patience)
            self._before[step_id] = still


class _StillBound(NamedTuple):
    """A bound that does not move, the time since when, and the seconds until the next warning."""

    bound: StepBound
    since: float
    patience: float


_HOLD_MESSAGE = (
    "step %r has waited %s for %s, whose results may still have the time %s: they leave as its "
    "watermarks pass them, or earlier with timestamp='close' for sessions that stay open, with a "
    "shorter wait, or with on_idle='advance' where keys fall silent"
)


def results_advice(reads: Reads) -> str:
    """Return what keeps late results on time, as a clause; empty if late values may be others.

    >>> from flow.dataflow import StreamId
    >>> results_advice(Reads(ignored=frozenset({StreamId("sessions", "down")})))
    ": they are results of step 'sessions', which upstream='hold' on the clock keeps on time"
    """
    if not reads.ignored and (reads.plain or not reads.results):
        return ""
    names = ", ".join(sorted({repr(stream.step_id) for stream in reads.ignored | reads.results}))
    kept = "which upstream='hold' on the clock keeps on time"
    made = "made of values that were late there, or of windows whose length is not known"
    return f": they are results of step {names}, {kept if reads.ignored else made}"


class LateTotals:
    """The lateness and the sources of late values by step, added epoch by epoch."""

    def __init__(self) -> None:
        self._lateness: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._sources: defaultdict[str, Counter[LateSource]] = defaultdict(Counter)

    def add(self, epoch: Stats | EpochReport) -> None:
        """Add the late values of an epoch."""
        for (step_id, late_by_us), count in epoch.lateness.items():
            self._lateness[step_id][late_by_us] += count
        for source, count in epoch.late_sources.items():
            self._sources[source.step_id][source] += count

    def advice(self, step_id: str) -> str:
        """Return the advice on the late values of a step, see `wait_advice`."""
        return wait_advice(self._lateness[step_id], self._sources[step_id])

    def clear(self, step_id: str) -> None:
        """Remove the late values of a step."""
        self._lateness[step_id].clear()
        self._sources[step_id].clear()


ENOUGH = 0.99
"""The share of late values that a longer wait should make on time."""


def wait_needed_us(late_by_us: Mapping[int, int]) -> int:
    """Return the least addition to the wait, in µs, that makes the share `ENOUGH` on time.

    Args:
        late_by_us: the number of late values by lateness in µs.

    >>> wait_needed_us({100: 98, 5_000: 1, 90_000: 1})
    5000
    """
    needed = ENOUGH * sum(late_by_us.values())
    total = 0
    for duration_us, count in sorted(late_by_us.items()):
        total += count
        if total >= needed:
            return duration_us
    return 0


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
