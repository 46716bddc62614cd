"""Log warnings of dropped and late values, and of holds that do not move, at a limited rate."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from flow.durations import duration_text
from flow.engine.epoch.context import LateSource, Stats, StepBound
from flow.engine.epoch.summary import ENOUGH, wait_needed_us
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
                advice = results_advice(self._reads[step_id]) or wait_advice(lateness, sources)
                logger.warning(message, step_id, were, advice)
                self._counts[step_id] = 0
                lateness.clear()
                sources.clear()


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
        self._held: dict[str, _Held] = {}

    def __call__(self, stats: Stats) -> None:
        """Compare an epoch's bounds with those before, and warn of those that have not moved."""
        now, before, self._held = self._clock(), self._held, {}
        for step_id, bound in stats.bounds.items():
            if bound.partition >= 0 or step_id not in self._patience:
                continue
            held = before.get(step_id)
            if held is None or held.bound != bound:
                held = _Held(bound, now, self._patience[step_id])
            if now - held.since >= held.patience:
                waited = duration_text(round(now - held.since) * 1_000_000)
                time_held = from_us(bound.bound_us).isoformat()
                logger.warning(_HOLD_MESSAGE, step_id, waited, bound.setter, time_held)
                held = held._replace(patience=4 * held.patience)
            self._held[step_id] = held


class _Held(NamedTuple):
    """A bound that does not move, the time since when, and the seconds until the next warning."""

    bound: StepBound
    since: float
    patience: float


_HOLD_MESSAGE = (
    "step %r has waited %s for %s, whose results may still have the time %s: they leave as its "
    "watermarks pass them, or earlier with timestamp='close' where sessions go on, with a shorter "
    "wait, or with on_idle='advance' where keys fall silent"
)


def results_advice(reads: Reads) -> str:
    """Return what keeps late results on time, as a clause; empty if late values may be others.

    >>> from flow.dataflow import StreamId
    >>> results_advice(Reads(ignored=frozenset({StreamId("sessions", "down")})))
    ": they are results of step 'sessions', which upstream='hold' on the clock keeps on time"
    """
    if reads.plain and not reads.ignored:
        return ""
    names = ", ".join(sorted({repr(stream.step_id) for stream in reads.ignored | reads.results}))
    if reads.ignored:
        return (
            f": they are results of step {names}, which upstream='hold' on the clock keeps on time"
        )
    if not reads.results:
        return ""
    return (
        f": they are results of step {names}, made of values that were late there, or of windows "
        "whose length is not known"
    )


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
