"""The reports after each epoch of a run: warnings, and what the caller's function gets."""

from __future__ import annotations

from dataclasses import replace

from flow.engine.epoch.context import Stats
from flow.engine.epoch.summary import EpochReport
from flow.engine.epoch.watermark_lag import watermark_lags
from flow.engine.feed.feed import Feed
from flow.engine.plan.plan import Plan
from flow.instants import from_us
from flow.reports.loss_warnings import DropWarnings, HoldWarnings, LateWarnings
from flow.runs.background import OnEpoch


class EpochReports:
    """The reports after each epoch: warnings of lost values, the page, the caller's function.

    Attributes:
        behind: the number of items left to read after the last epoch, by input and source
            partition.
    """

    def __init__(
        self, plan: Plan, on_epoch: OnEpoch | None, on_page: OnEpoch | None = None
    ) -> None:
        self._warn_of_drops = DropWarnings()
        self._warn_of_late = LateWarnings(plan)
        self._warn_of_holds = HoldWarnings(plan)
        self._readers = [reader for reader in (on_page, on_epoch) if reader is not None]
        self.behind: dict[str, dict[str, int]] = {}

    def __call__(self, epoch: int, stats: Stats, feed: Feed | None) -> None:
        """Report an epoch; a batch has no feed."""
        self._warn_of_drops(stats)
        self._warn_of_late(stats)
        self._warn_of_holds(stats)
        if feed is not None:
            self.behind = {step_id: counts for step_id, counts in feed.behind.items() if counts}
        if self._readers:
            report = report_of(epoch, stats, feed)
            for reader in self._readers:
                reader(report)


def report_of(epoch: int, stats: Stats, feed: Feed | None) -> EpochReport:
    """Return the report of an epoch; without feed, of a batch."""
    report = EpochReport(
        epoch,
        stats.counts,
        stats.gauges,
        end_of_input=True,
        phases=stats.phases,
        busy={step_id: ns / 1e9 for step_id, ns in stats.busy_ns.items()},
        lags=watermark_lags(stats.lags),
        workers=stats.workers,
        bounds=stats.bounds,
        lateness=stats.lateness,
        late_sources=stats.late_sources,
        late_items=tuple(stats.late_items),
    )
    if feed is None:
        return report
    control = feed.last.control
    return replace(
        report,
        system_time=None if control is None else from_us(control.moment.now_us),
        end_of_input=control is not None and control.end_of_input,
        lag={step_id: lag for step_id, lag in feed.lag.items() if lag},
        behind={step_id: counts for step_id, counts in feed.behind.items() if counts},
    )
