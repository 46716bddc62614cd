"""The reports after each epoch of a run: warnings, and what the caller's function gets."""

from __future__ import annotations

from flow.engine.epoch.context import Stats
from flow.engine.epoch.summary import EpochReport
from flow.engine.feed.feed import Feed
from flow.engine.plan.plan import Plan
from flow.instants import from_us
from flow.reports.loss_warnings import DropWarnings, LateWarnings
from flow.runs.background import OnEpoch


class EpochReports:
    """The reports after each epoch: warnings of lost values, then the caller's function.

    Attributes:
        behind: the number of items left to read after the last epoch, by input and source
            partition.
    """

    def __init__(self, plan: Plan, on_epoch: OnEpoch | None) -> None:
        self._warn_of_drops = DropWarnings()
        self._warn_of_late = LateWarnings(plan)
        self._on_epoch = on_epoch
        self.behind: dict[str, dict[str, int]] = {}

    def __call__(self, epoch: int, stats: Stats, feed: Feed | None) -> None:
        """Report an epoch; a batch has no feed."""
        self._warn_of_drops(stats)
        self._warn_of_late(stats)
        if feed is not None:
            self.behind = {step_id: counts for step_id, counts in feed.behind.items() if counts}
        if self._on_epoch is not None:
            self._on_epoch(report_of(epoch, stats, feed))


def report_of(epoch: int, stats: Stats, feed: Feed | None) -> EpochReport:
    """Return the report of an epoch; without feed, of a batch."""
    if feed is None:
        return EpochReport(epoch, stats.counts, stats.gauges, end_of_input=True)
    control = feed.last.control
    return EpochReport(
        epoch,
        stats.counts,
        stats.gauges,
        None if control is None else from_us(control.moment.now_us),
        control is not None and control.end_of_input,
        {step_id: lag for step_id, lag in feed.lag.items() if lag},
        {step_id: counts for step_id, counts in feed.behind.items() if counts},
    )
