"""The run host: the parts of a streaming run that plan and commit epochs.

`EpochPlanner` plans: it has the sources, the clocks, the tables and the reports of epochs.
`flow.engine.spark.epochs.EpochOutputs` commits: it has the sinks. In a classic session both stand
in the program's process, and Spark's process that plans offsets asks the planner over a local
connection (`flow.engine.spark.ticker`). Over Spark Connect the planner stands in that process of
the server, and the outputs in the server's process of ``foreachBatch``
(`flow.engine.spark.remote_host`). The two share the offset of an epoch and the checkpoint alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from flow.connectors.source import Planner, SourceLog
from flow.engine.checkpoint.checkpoint import Checkpoint
from flow.engine.checkpoint.identity import Recovery
from flow.engine.checkpoint.stored_log import StoredLog
from flow.engine.epoch.statistics import Stats
from flow.engine.epoch.summary import Summary
from flow.engine.feed.clocks import EpochClocks
from flow.engine.feed.feed import Feed, FeedReport, FeedSettings
from flow.engine.feed.input_progress import InputProgress, ProgressLog
from flow.engine.feed.offsets import (
    EpochOffset,
    Origin,
    foreign_offsets,
    oldest_offsets,
    oldest_table,
)
from flow.engine.feed.run_tables import Tables
from flow.engine.feed.slices import InputSlices, planners_of
from flow.engine.plan.plan import Plan
from flow.engine.spark.batch import BatchSettings

DEFAULT_KEPT_EPOCHS = 100


@dataclass(frozen=True)
class StreamingSettings(BatchSettings):
    """Settings of a streaming run; shards and partitions are those of a new checkpoint.

    Attributes:
        recovery: recovery settings; ``None`` for a temporary checkpoint.
        interval_us: time between starts of epochs, in µs; 0 for no pause.
        only_available: True to stop once no source has new data.
    """

    recovery: Recovery | None = None
    interval_us: int = 0
    only_available: bool = False

    @property
    def kept_epochs(self) -> int:
        """Number of finished epochs that the checkpoint retains."""
        return DEFAULT_KEPT_EPOCHS if self.recovery is None else self.recovery.keep_epochs


@dataclass
class EpochPlanner:
    """The planning part of a run, in one pass of its query.

    Attributes:
        plan: the flow, as it fits the checkpoint.
        settings: the settings of the run.
        checkpoint: the checkpoint, which is open.
        summary: the summary of the run.
        feed: the planner of epochs.
    """

    plan: Plan
    settings: StreamingSettings
    checkpoint: Checkpoint
    summary: Summary
    feed: Feed
    _progress_log: ProgressLog | None = None

    def finish_epoch(self, epoch: int, stats: Stats) -> FeedReport:
        """Take the statistics of an epoch, after its outputs are committed, and complete them."""
        is_busy = False
        if self.plan.frames:  # Their offsets may advance even without rows.
            identity, storage = self.checkpoint.identity, self.checkpoint.storage
            before, after = (foreign_offsets(storage, identity, one) for one in (epoch - 1, epoch))
            is_busy = before != after
        report = self.feed.finish_epoch(stats, is_busy)
        stats.add(report.stats)
        if self._progress_log is not None:
            self._progress_log.write(epoch, report.progress)
        if self.summary.epochs:
            self.checkpoint.committed()
        self.summary.add(stats)
        return report


@contextlib.contextmanager
def epoch_planner(
    plan: Plan,
    settings: StreamingSettings,
    checkpoint: Checkpoint,
    summary: Summary,
    tasks: int,
    check: Callable[[], bool],
    *,
    end_now: bool = False,
) -> Iterator[EpochPlanner]:
    """Open the sources of a run, and yield its planner.

    Args:
        plan: the flow, as it fits the checkpoint.
        settings: the settings of the run.
        checkpoint: the checkpoint.
        summary: the summary, to which epochs are added.
        tasks: maximum number of tasks of an epoch.
        check: see `Feed.check`.
        end_now: True in a second pass, which ends the input after Spark has read its sources.
    """
    storage = checkpoint.storage

    def log_of(name: str) -> SourceLog:
        return StoredLog(storage, f"sources/{plan.file_of(name)}")

    progress_log = None
    if settings.recovery is not None and plan.compared_inputs:
        progress_log = ProgressLog(storage, settings.kept_epochs)
    with planners_of(plan, plan.sources, tasks, log_of) as planners:
        progress = _progress_at_start(progress_log, checkpoint, settings.kept_epochs)
        feed = _feed(plan, settings, checkpoint, planners, progress, check, end_now)
        yield EpochPlanner(plan, settings, checkpoint, summary, feed, progress_log)


def _feed(
    plan: Plan,
    settings: StreamingSettings,
    checkpoint: Checkpoint,
    planners: Mapping[str, Planner],
    progress: InputProgress,
    check: Callable[[], bool],
    end_now: bool,
) -> Feed:
    identity, storage = checkpoint.identity, checkpoint.storage
    of_feed = FeedSettings(
        settings.drain,
        settings.only_available,
        foreign=bool(plan.frames),
        end_now=end_now,
        origin=_origin(checkpoint),
        # Spark plans its own sources, and reads other rows of them than before.
        undone=() if plan.frames else tuple(map(EpochOffset.from_json, identity.undone)),
    )
    return Feed(
        InputSlices(plan, planners, progress),
        EpochClocks(settings.system_time),
        Tables.of(plan, storage, partial(oldest_table, storage, identity)),
        of_feed,
        check,
        partial(oldest_offsets, storage, identity),
    )


def _progress_at_start(
    log: ProgressLog | None, checkpoint: Checkpoint, kept_epochs: int
) -> InputProgress:
    """Return the progress of the inputs after the last finished epoch."""
    if log is None:
        return InputProgress()
    identity = checkpoint.identity
    epochs = identity.epochs(checkpoint.storage, "commits")
    last = max(epochs, default=identity.first_epoch - 1)
    log.remove_before(last - kept_epochs)
    return log.read(last)


def _origin(checkpoint: Checkpoint) -> Origin | None:
    """Return the start of a later generation; ``None`` for the first."""
    identity = checkpoint.identity
    if not identity.generation:
        return None
    start = EpochOffset.from_json(identity.start or {})
    begun = None if identity.begun is None else EpochOffset.from_json(identity.begun)
    return Origin(start, begun, f"{checkpoint.storage.root}/{identity.seed}")
