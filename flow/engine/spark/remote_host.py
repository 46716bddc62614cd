"""The run host over Spark Connect: planner and outputs in two processes of the server.

The planner stands in the process of the feed's source, the outputs in that of ``foreachBatch``.
Both live as long as the query, and share the checkpoint alone: after a commit the outputs leave the
statistics of the epoch in a file (`RunFiles`), and the planner takes them before it plans the next
epoch. The planner has the checkpoint's lock. Programs follow the run by its files, and the run goes
on without them.

With Spark's trigger for available data a query ends when its source returns no new offset, so the
planner returns one only at the end of the run: it waits for an epoch to be due.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame

from flow.connectors.source import Json
from flow.engine.checkpoint.checkpoint import Checkpoint, read_identity
from flow.engine.checkpoint.identity import Identity
from flow.engine.checkpoint.lock import CheckpointLock, CheckpointWatch, LockOfRun
from flow.engine.checkpoint.storage import open_storage
from flow.engine.epoch.failures import encode_failure
from flow.engine.epoch.statistics import Stats
from flow.engine.epoch.summary import Summary
from flow.engine.feed.feed import FeedEnd
from flow.engine.feed.offsets import EpochOffset
from flow.engine.plan.plan import Plan
from flow.engine.spark.epochs import EpochOutputs, EpochTimer
from flow.engine.spark.flow_query import layout_of
from flow.engine.spark.run_files import (
    CommittedEpoch,
    LogLinesKept,
    RunEnd,
    RunFiles,
    RunReport,
)
from flow.engine.spark.run_host import EpochPlanner, StreamingSettings, epoch_planner
from flow.engine.spark.shipping import ShippedPlan
from flow.engine.spark.ticker import FeedAnswers
from flow.errors import CheckpointError, EngineError, FlowError, brief

_LOOK_SECONDS = 1.0
"""Time between two looks for a request to stop, in an object store."""
_UNATTENDED_SECONDS = 60.0
"""Time after the end of a run in which a program stops a query that does not end by itself."""


@dataclass(frozen=True)
class RemoteRun:
    """A streaming run on a server, as its processes get it.

    Attributes:
        token: id of the run.
        shipped: the flow, as it fits the checkpoint.
        settings: the settings of the run.
        root: the checkpoint's directory, a path or a URI.
        identity: the identity of the checkpoint.
        resuming: True if an earlier run made the checkpoint.
        tasks: the number of tasks that run at a time.
        waits: True if the query ends as soon as the feed returns no new offset.
    """

    token: str
    shipped: ShippedPlan
    settings: StreamingSettings
    root: str
    identity: Identity
    resuming: bool
    tasks: int
    waits: bool

    @property
    def plan(self) -> Plan:
        """The flow."""
        return self.shipped.plan()

    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint.

        Raises:
            CheckpointError: when another run, or a tool, has changed it since the run was prepared,
                or this process does not reach it.
        """
        storage = open_storage(self.root)
        identity = read_identity(storage)
        if identity.run_id != self.identity.run_id:
            raise CheckpointError(
                f"{self.root} is another directory to Spark's driver than to its workers: choose "
                "one that all machines of the cluster reach, such as a volume or an object store"
            )
        if identity != self.identity:
            raise CheckpointError(
                f"{self.root} was changed by another run or a tool while this run was starting: "
                "run the flow again"
            )
        return Checkpoint(storage, identity, self.resuming)


class PlannerHost:
    """The planner of a run, in the process of the feed's source.

    Args:
        run: the run.

    Raises:
        FlowError: when the run cannot begin.
    """

    def __init__(self, run: RemoteRun) -> None:
        self._run = run
        self._log = LogLinesKept()
        self._summary = Summary(run.plan.flow_id, "streaming")
        self._held = contextlib.ExitStack()
        storage = open_storage(run.root)
        self._files = RunFiles(storage, run.token)
        self._look_seconds = 0.0 if storage.is_local else _LOOK_SECONDS
        self._looked = self._planned = self._ended = 0.0
        self._counted: int | None = None
        self._timer = EpochTimer(slots=run.tasks)
        try:
            self._planner = self._open()
        except BaseException as error:
            self._fail(error)
            raise
        self._answers = FeedAnswers(self._planner.feed, run.tasks, self._timer)

    def _open(self) -> EpochPlanner:
        run = self._run
        lock = self._held.enter_context(CheckpointLock(open_storage(run.root), run.token))
        checkpoint = run.checkpoint()
        self._files.begin(run.plan.flow_id)
        self._watch = CheckpointWatch(checkpoint.storage, run.identity.spark, lock)
        return self._held.enter_context(
            epoch_planner(run.plan, run.settings, checkpoint, self._summary, run.tasks, self._check)
        )

    def _check(self) -> bool:
        self._watch.check_regularly()
        return False

    def answer(self, question: Json) -> Json:
        """Answer a request of the source; an error of the flow is the answer ``failed``."""
        try:
            return self._answer(question)
        except BaseException as error:
            self._fail(error)
            return {"failed": brief(error)}

    def _answer(self, question: Json) -> Json:
        if self._ended:
            if not self._run.waits and time.monotonic() - self._ended > _UNATTENDED_SECONDS:
                raise EngineError("the flow has ended, and no program has stopped its query")
            return {"offset": question["after"]}
        if "tasks of" in question:
            if self._planner.feed.aborted:
                self._end(aborted=True)
                return {"failed": "a test's ABORT ended the run"}
            return self._answers(question)
        self._count()
        return self._next(question)

    def _next(self, question: Json) -> Json:
        """Return the next offset; the same again if the run has ended, or Spark asks again."""
        after, end = EpochOffset.from_json(question["after"]), self._planner.feed.end
        while True:
            self._pause(end)
            self._look(end)
            answer = self._answers(question)
            if EpochOffset.from_json(answer["offset"]) != after:
                self._planned = time.monotonic()
                return answer
            if end.done.is_set():
                self._end()
                return answer
            if not self._run.waits:
                return answer

    def _pause(self, end: FeedEnd) -> None:
        """Wait for the interval between epochs to pass, where no trigger of Spark does."""
        left = self._planned + self._run.settings.interval_us / 1e6 - time.monotonic()
        while self._run.waits and left > 0 and not end.stop_asked.wait(min(left, _LOOK_SECONDS)):
            self._look(end)
            left -= _LOOK_SECONDS

    def _look(self, end: FeedEnd) -> None:
        """Look for a request to stop."""
        if time.monotonic() - self._looked >= self._look_seconds:
            self._looked = time.monotonic()
            if self._files.is_asked_to_stop():
                end.stop_asked.set()

    def _count(self) -> None:
        """Take the statistics of the epoch before, and report it."""
        committed = self._files.read_committed()
        if committed is None or committed.epoch == self._counted:
            return
        stats, self._counted = committed.stats, committed.epoch
        stats.phases = self._timer.complete(stats.phases, *committed.span)
        report = self._planner.finish_epoch(committed.epoch, stats)
        self._files.report(RunReport(committed, report, self._log.take()))

    def _end(self, aborted: bool = False) -> None:
        """Release the checkpoint, and tell the end."""
        summary, feed = self._summary, self._planner.feed
        self._ended = time.monotonic()
        self._held.close()
        summary = replace(summary, stopped=feed.end.stop_asked.is_set(), aborted=aborted)
        self._files.write_end(RunEnd(summary, log=self._log.take()))

    def _fail(self, error: BaseException) -> None:
        if self._files.read_end() is None:
            self._files.write_end(RunEnd(failure=_encoded(error), log=self._log.take()))
        self._held.close()


class OutputsHost:
    """The outputs of a run, in the process of ``foreachBatch``.

    Args:
        run: the run.

    Raises:
        FlowError: when a sink cannot be opened.
    """

    def __init__(self, run: RemoteRun) -> None:
        self._run = run
        self._log = LogLinesKept()
        self._shown: list[str] = []
        self._messages: Mapping[int, list[Any]] = {}
        self._storage = open_storage(run.root)
        self._files = RunFiles(self._storage, run.token)
        self._outputs: EpochOutputs | None = None

    def _open(self) -> EpochOutputs:
        run, checkpoint = self._run, self._run.checkpoint()
        lock = LockOfRun(self._storage, run.token)
        self._watch = CheckpointWatch(self._storage, run.identity.spark, lock)
        self._timer = EpochTimer(slots=run.tasks)
        outputs = EpochOutputs(
            run.plan,
            layout_of(run.identity, run.plan),
            run.identity.run_id,
            self._check,
            self._commit,
            self._timer,
            checkpoint.context(run.settings.kept_epochs) if run.settings.recovery else None,
            self._shown.append,
            self._keep,
        )
        outputs.open(run.resuming)
        return outputs

    def write(self, frame: DataFrame, number: int) -> None:
        """Write the outputs of an epoch, and commit them.

        Args:
            frame: the packets of the last stage.
            number: the number of the micro-batch.

        Raises:
            FlowError: when a step, a source or a sink fails.
        """
        try:
            if self._outputs is None:
                self._outputs = self._open()
            self._outputs.write(frame, self._run.identity.first_epoch + number)
        except BaseException as error:
            self._files.write_end(RunEnd(failure=_encoded(error), log=self._log.take()))
            raise

    def _check(self, epoch: int) -> None:
        """Check the checkpoint and its lock before an epoch's outputs are committed."""
        number = epoch - self._run.identity.first_epoch
        self._watch.check(number - 1 if number else None)

    def _keep(self, messages: Mapping[int, list[Any]]) -> None:
        self._messages = messages

    def _commit(self, epoch: int, stats: Stats) -> None:
        shown, self._shown[:] = tuple(self._shown), []
        span = self._timer.job_span
        self._files.write_committed(
            CommittedEpoch(epoch, stats, span, shown, self._messages, self._log.take())
        )


def _encoded(error: BaseException) -> bytes | None:
    """Return an error of the flow as bytes; ``None`` for an error of Spark, which the query has."""
    return encode_failure(error) if isinstance(error, FlowError) else None


def opened(
    root: str,
    shipped: ShippedPlan,
    settings: StreamingSettings,
    tasks: int,
    spark_version: str,
) -> tuple[Identity, bool, tuple[str, ...]]:
    """Open a checkpoint for a run, or create it, from any process that reaches it.

    Args:
        root: the checkpoint's directory, a path or a URI.
        shipped: the flow.
        settings: the settings of the run.
        tasks: the number of tasks that run at a time.
        spark_version: version of Spark of the server.

    Returns:
        The identity; True if an earlier run made the checkpoint; and warnings for the user.

    Raises:
        CheckpointError: when another run holds the checkpoint, or it fits not the flow or Spark.
    """
    storage = open_storage(root)
    with CheckpointLock(storage):
        checkpoint = Checkpoint.open(
            storage,
            shipped.plan(),
            settings.recovery,
            tasks,
            settings.shards,
            settings.partitions,
            spark_version,
            is_remote=True,
        )
        # As the processes of the run read it.
        identity = read_identity(storage)
    return identity, checkpoint.resuming, checkpoint.warnings


def reported(
    root: str, token: str, epoch: int, *, asks_to_stop: bool
) -> tuple[list[RunReport], RunEnd | None]:
    """Return the reports of a run after an epoch, and its end if it has ended.

    Args:
        root: the checkpoint's directory, a path or a URI.
        token: id of the run.
        epoch: the epoch.
        asks_to_stop: True to ask the run to stop.
    """
    files = RunFiles(open_storage(root), token)
    if asks_to_stop:
        files.ask_to_stop()
    end = files.read_end()
    return files.reports_after(epoch), end


def has_packages(start: str) -> bool:
    """Return True if this Python has the packages of the project, apart from a session's files.

    A new process does not see those files.

    Args:
        start: the text of the project's first file, with its version.
    """
    found = subprocess.run([sys.executable, "-c", _FIND], capture_output=True, text=True)
    return found.stdout.strip() == start.strip()


_FIND = "import importlib.util as u; f = u.find_spec('flow'); f and print(open(f.origin).read())"
