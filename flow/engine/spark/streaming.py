"""The streaming engine: the whole flow as one Structured Streaming query on one checkpoint."""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from flow.engine.checkpoint.checkpoint import Checkpoint, Upkeep
from flow.engine.checkpoint.identity import NAME as CHECKPOINT_NAME
from flow.engine.checkpoint.lock import CheckpointLock, CheckpointWatch
from flow.engine.checkpoint.storage import Storage, open_storage
from flow.engine.epoch.statistics import Stats
from flow.engine.epoch.summary import Summary
from flow.engine.feed.feed import Feed, FeedReport, StopFlag
from flow.engine.feed.offsets import logged_offset
from flow.engine.feed.run_tables import table_files
from flow.engine.plan.plan import Plan
from flow.engine.spark.epochs import EpochOutputs, EpochTimer, left_out
from flow.engine.spark.flow_query import FlowQuery, layout_of
from flow.engine.spark.input_frames import (
    check_frames_with_tables,
    keep_static_frames,
    refuse_stateful_frames,
)
from flow.engine.spark.run_host import EpochPlanner, StreamingSettings, epoch_planner
from flow.engine.spark.session.jvm import SPARK_LOG
from flow.engine.spark.session.session import check_python_of, quiet_query
from flow.engine.spark.session.session_settings import cores_of
from flow.engine.spark.session.spark_capabilities import spark_capabilities
from flow.engine.spark.session.spark_failures import (
    JVM_ERRORS,
    SESSION_STOPPED,
    disks_of,
    full_disk_problem,
    is_stopped,
    jvm_needed,
    spark_problem,
)
from flow.engine.spark.shipping import ShippedPlan
from flow.engine.spark.ticker import FeedServer, TickReading
from flow.engine.temporary import temporary_directory
from flow.errors import CheckpointError, EngineError, FlowError, brief, first_line, printable

logger = logging.getLogger("flow")


@dataclass
class StreamingRun:
    """One run of a flow as a streaming query."""

    plan: Plan
    spark: SparkSession
    settings: StreamingSettings
    on_epoch: Callable[[int, Stats, FeedReport], None] = lambda *_: None
    stop: StopFlag = field(default_factory=StopFlag)

    def run(self) -> Summary:
        """Run the flow until its sources end, a stop is requested, or an error.

        Raises:
            FlowBuildError: when a streaming data frame has state of its own.
            EnvironmentProblem: when the interpreter of the workers does not exist on the driver.
            FlowError: when a step, a source, a sink or Spark fails.
        """
        recovery = self.settings.recovery
        with temporary_directory("checkpoint-") as scratch, jvm_needed(self.spark):
            refuse_stateful_frames(self.plan)
            check_python_of(self.spark)
            storage = open_storage(str(recovery.path) if recovery else scratch, self.spark)
            self._lock = None if recovery is None else CheckpointLock(storage)
            with self._lock or contextlib.nullcontext(), quiet_query(self.spark):
                if self._lock is not None:
                    storage.check_seen_by(self.spark, self._lock.file)
                self._run_on(self._open(storage))
        return self._summary

    def _open(self, storage: Storage) -> Checkpoint:
        if self.settings.recovery is not None and storage.exists(CHECKPOINT_NAME):
            self.settings.recovery.check(self.spark)
        checkpoint = Checkpoint.open(
            storage,
            self.plan,
            self.settings.recovery,
            cores_of(self.spark),
            self.settings.shards,
            self.settings.partitions,
            self.spark.version,
        )
        for warning in checkpoint.warnings:
            logger.warning("%s: %s", printable(storage.root), printable(warning))
        return checkpoint

    def _run_on(self, checkpoint: Checkpoint) -> None:
        identity, storage = checkpoint.identity, checkpoint.storage
        self._checkpoint = checkpoint
        self._summary = Summary(self.plan.flow_id, "streaming")
        self._disks = disks_of(self.spark, storage.root)
        self._watch = CheckpointWatch(storage, identity.spark, self._lock)
        self.plan = keep_static_frames(identity.fitted(self.plan), storage.root, storage.exists)
        check_frames_with_tables(self.plan)
        self.plan = replace(self.plan, table_store=table_files(self.plan, storage.root))
        self._layout = layout_of(identity, self.plan)
        self._shipped = ShippedPlan.pack(self.plan.for_workers())
        self._failure: BaseException | None = None
        self._planner: EpochPlanner | None = None
        self._timer = EpochTimer(slots=cores_of(self.spark))
        outputs = EpochOutputs(
            self.plan,
            self._layout,
            identity.run_id,
            self._check_before_commit,
            self._count,
            self._timer,
            checkpoint.context(self.settings.kept_epochs) if self.settings.recovery else None,
        )
        outputs.open(checkpoint.resuming)
        try:
            self._passes(outputs)
        finally:
            outputs.close()

    def _passes(self, outputs: EpochOutputs) -> None:
        """Run the query, and run it again to drain it if Spark itself reads sources."""
        self._pass(outputs, end_now=False)
        finished = not (self._summary.stopped or self._summary.aborted)
        if self.plan.frames and self.settings.drain and finished:
            self._pass(outputs, end_now=True)

    def _pass(self, outputs: EpochOutputs, end_now: bool) -> None:
        parallelism = cores_of(self.spark)
        with epoch_planner(
            self.plan,
            self.settings,
            self._checkpoint,
            self._summary,
            parallelism,
            self._check_before_planning,
            end_now=end_now,
        ) as planner:
            self._planner, feed = planner, planner.feed
            self.stop.on_ask(feed.end.stop_asked.set)
            server = FeedServer(feed, parallelism, self._timer)
            query = self._query = None
            try:
                query = self._query = self._started(outputs, server)
                self._wait(query, feed, server)
            finally:
                # If the JVM has ended, the original failure must stay visible.
                with contextlib.suppress(*JVM_ERRORS):
                    if query is not None and query.isActive:
                        self._stop_query(query, server)
                server.close()

    def _check_before_planning(self) -> bool:
        """Check the checkpoint; return True if the last epoch read all rows of Spark's sources."""
        self._watch.check_regularly()
        query = self._query
        return bool(self.plan.frames) and query is not None and _is_read_to_its_end(query)

    def _started(self, outputs: EpochOutputs, server: FeedServer) -> StreamingQuery:
        try:
            return self._start(outputs, server)
        except FlowError:
            raise
        except Exception as error:
            cause = full_disk_problem(error, self._disks) or first_line(error)
            problem = f"the streaming query did not start: {cause} (Spark's log: {SPARK_LOG})"
            raise EngineError(problem) from error

    def _start(self, outputs: EpochOutputs, server: FeedServer) -> StreamingQuery:
        reading = TickReading(self._shipped, self._layout)
        identity, storage = self._checkpoint.identity, self._checkpoint.storage
        logged = logged_offset(storage, identity)
        upkeep = Upkeep(storage, identity.spark)

        def write(frame: DataFrame, epoch: int) -> None:
            try:
                upkeep.end_first_epoch(frame)
                outputs.write(frame, identity.first_epoch + epoch)
            except BaseException as error:
                self._failure = error
                if isinstance(error, Exception):
                    raise
                # Py4J answers Spark with nothing else, and Spark would wait for ever.
                raise RuntimeError(brief(error)) from None

        query = FlowQuery(
            self.spark,
            self.plan,
            self._shipped,
            identity,
            storage.root,
            storage.is_local,
            self.settings.kept_epochs,
            left_out(outputs.plan),
            upkeep.conf,
        )
        source = server.source(f"flow_{uuid.uuid4().hex}", reading, logged)
        interval_us = None if self._ends_by_itself() else self.settings.interval_us
        return query.start(source, write, interval_us)

    def _wait(self, query: StreamingQuery, feed: Feed, server: FeedServer) -> None:
        stopped_by_spark = False
        try:
            while query.isActive and not feed.end.done.wait(0.2):
                self._check_session_and_files()
                if feed.end.stop_asked.is_set() and _is_between_epochs(query):
                    break  # The feed plans no epoch from now on, and need not be asked for one.
            stopped_by_spark = not query.isActive
            self._stop_query(query, server)
        except JVM_ERRORS:
            # A failure of the flow is more specific than the end of the JVM.
            if not isinstance(self._failure, FlowError):
                raise
        self._summary.stopped = feed.end.stop_asked.is_set()
        failure = self._failure or server.failure
        if isinstance(failure, RunAborted):
            self._summary.aborted = True
            return
        if failure is not None and not isinstance(failure, Exception):
            raise failure  # Such as `SystemExit` of `on_epoch`, as in a batch.
        if isinstance(failure, FlowError):
            raise failure
        error = query.exception() if stopped_by_spark or failure is not None else None
        if failure is not None or error is not None:
            raise self._explained(failure or error) from failure or error
        if stopped_by_spark and not self._ends_by_itself() and not feed.end.done.is_set():
            self._check_session_and_files()
            raise EngineError(
                "the streaming query was stopped by query.stop() or the like before its inputs "
                "had ended: let run() return first, or ask it to (stop=StopFlag())"
            )

    def _check_session_and_files(self) -> None:
        """Check that the session and the checkpoint exist.

        Raises:
            EngineError: when the session was stopped.
            CheckpointError: when the checkpoint was removed in whole or in part.
        """
        if is_stopped(self.spark):
            raise EngineError(SESSION_STOPPED)
        self._watch.check_regularly()

    def _ends_by_itself(self) -> bool:
        """Return True if Spark ends the query after the available data.

        Otherwise the feed ends it, for sources of Spark after an epoch in which they had no data.
        """
        can_end = spark_capabilities().has_admission
        return can_end and self.settings.only_available and bool(self.plan.frames)

    def _explained(self, error: BaseException | None) -> FlowError:
        """Return the error of a failed query; a stopped session or lost checkpoint has priority."""
        if is_stopped(self.spark):
            return EngineError(SESSION_STOPPED)
        try:
            self._watch.check()
        except CheckpointError as problem_of_files:
            return problem_of_files
        problem = spark_problem(error, self._disks)
        return EngineError(f"the streaming query failed: {problem} (Spark's log: {SPARK_LOG})")

    def _stop_query(self, query: StreamingQuery, server: FeedServer) -> None:
        """Stop between epochs: the feed answers only after the stop has begun."""
        stopping = threading.Thread(target=_stop, args=(query,), name="flow-stop", daemon=True)
        stopping.start()
        stopping.join(0.05)
        server.release()
        stopping.join()

    def _check_before_commit(self, epoch: int) -> None:
        """Check checkpoint and lock before an epoch's outputs are committed."""
        number = epoch - self._checkpoint.identity.first_epoch
        self._watch.check(number - 1 if number else None)
        if self._planner is not None and self._planner.feed.aborted:
            raise RunAborted

    def _count(self, epoch: int, stats: Stats) -> None:
        if self._planner is None:
            return
        report = self._planner.finish_epoch(epoch, stats)
        self.on_epoch(epoch, stats, report)


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except JVM_ERRORS as error:  # The JVM has ended, and the query with it.
        logger.debug("the query could not be stopped: %s", first_line(error))


def _is_between_epochs(query: StreamingQuery) -> bool:
    """Return True if a query that has begun waits for the end of its trigger's interval."""
    return query.lastProgress is not None and not query.status["isTriggerActive"]


def _is_read_to_its_end(query: StreamingQuery) -> bool:
    """Return True if the last epoch read all available rows of Spark's sources.

    Some of Spark's sources report their latest offset. For other sources, an epoch with rows counts
    as incomplete.
    """
    progress = query.lastProgress
    if progress is None:
        return False
    frames = progress.sources[1:]  # The first source is the feed.
    return all(each.numInputRows == 0 or each.latestOffset == each.endOffset for each in frames)


class RunAborted(Exception):
    """A test's ABORT, which ends a run like a kill."""
