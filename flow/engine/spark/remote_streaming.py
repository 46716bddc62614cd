"""The streaming engine over Spark Connect: the program's part of a run on a server.

The program opens the checkpoint by the server's tasks, starts the query, and follows the run by its
files (`flow.engine.spark.run_files`): itself where it reaches the checkpoint, else by small tasks.
The run itself stands on the server (`flow.engine.spark.remote_host`), and continues if the program
ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import cloudpickle as untyped_cloudpickle
from pyspark.errors import PySparkException, StreamingQueryException

from flow.connectors.driver_copies import pickled_for_driver
from flow.engine.checkpoint.checkpoint import read_identity
from flow.engine.checkpoint.identity import Identity
from flow.engine.checkpoint.lock import Lease, LockOfRun
from flow.engine.checkpoint.storage import open_storage
from flow.engine.epoch.failures import decode_failure, encode_failure
from flow.engine.epoch.statistics import Stats
from flow.engine.epoch.summary import Summary
from flow.engine.feed.feed import FeedReport, StopFlag
from flow.engine.feed.offsets import EpochOffset, logged_offset
from flow.engine.feed.run_tables import table_files
from flow.engine.plan.plan import Plan
from flow.engine.spark.epochs import commit_outputs, left_out, program_edges
from flow.engine.spark.flow_query import FlowQuery
from flow.engine.spark.input_frames import frames_of, keep_static_frames
from flow.engine.spark.remote_host import (
    OutputsHost,
    PlannerHost,
    RemoteRun,
    has_packages,
    opened,
    reported,
)
from flow.engine.spark.run_files import LogLines, RunEnd, RunReport, newest_run
from flow.engine.spark.run_host import StreamingSettings
from flow.engine.spark.session.session import code_sent_to
from flow.engine.spark.session.session_settings import cores_of
from flow.engine.spark.session.spark_capabilities import spark_capabilities
from flow.engine.spark.session.spark_failures import LATE_WORKER, spark_problem
from flow.engine.spark.session.versions import installed_version
from flow.engine.spark.shipped_code import Shipped
from flow.engine.spark.shipping import ShippedPlan
from flow.engine.spark.ticker import HostedWrite, TickReading, source_of_feed
from flow.engine.steps.outputs import sink_of
from flow.engine.temporary import temporary_directory
from flow.errors import (
    EngineError,
    EnvironmentProblem,
    FlowBuildError,
    FlowError,
    first_line,
    printable,
)
from flow.process import print_text

cloudpickle: Any = untyped_cloudpickle
logger = logging.getLogger("flow")
_STARTS = 3
"""Tries to start a query on a server that has much to do."""

Result = TypeVar("Result")

_START = Path(__file__).parents[2] / "__init__.py"
"""The file of this project that has its version."""
_HERE_SECONDS, _BY_TASKS_SECONDS = 0.05, 1.0
"""Time between two looks at the files of a run, by this process and by tasks."""
_ENDING_SECONDS = 60
"""The longest wait for the end of a query that has failed."""
_BRIEF_RETRIES = 4
UNREACHABLE = (PySparkException, OSError)
"""Errors of a session whose server has ended."""
_ACTIVE_SECONDS = 1.0
"""Time between two questions whether the query runs."""


@dataclass
class ServerCalls:
    """Calls of functions where a checkpoint is in reach.

    Attributes:
        spark: the session, of Spark Connect.
        here: True if this process reaches the checkpoint.
    """

    spark: Any
    here: bool = False

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function in this process or in a task of the server, and return its result.

        Raises:
            FlowError: the function's error.
        """
        return function() if self.here else self.in_task(function)

    def in_task(self, function: Callable[[], Result]) -> Result:
        """Call a function in a task of the server, and return its result.

        Raises:
            FlowError: the function's error, or that of a server which runs no task.
        """
        task = partial(_called, cloudpickle.dumps(function))
        one_row = self.spark.range(0, 1, 1, 1)
        try:
            found = one_row.mapInArrow(task, "content binary").toArrow()
        except PySparkException as error:
            raise EngineError(f"a task of the server failed: {spark_problem(error)}") from error
        is_result, content = pickle.loads(found.column(0)[0].as_py())
        if not is_result:
            raise decode_failure(content)
        result: Result = content
        return result

    def look_for(self, root: str, identity: Identity) -> None:
        """Find out if this process reaches a checkpoint, by its identity."""
        with contextlib.suppress(FlowError, ImportError):
            self.here = read_identity(open_storage(root)) == identity


def _called(content: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Call a pickled function in a task, and yield its pickled result or error."""
    for _ in batches:
        try:
            result = True, cloudpickle.loads(content)()
        except FlowError as error:
            result = False, encode_failure(error)
        yield pa.record_batch({"content": [pickle.dumps(result, 5)]})


@dataclass
class RunFollower:
    """Follower of a run on a server: its reports, lines and end reach this program.

    Attributes:
        plan: the flow.
        calls: calls where the checkpoint is in reach.
        root: the checkpoint's directory.
        token: id of the run.
        on_epoch: called with the report of each epoch.
        epoch: the last epoch that was reported.
        is_telling: True while the program is told of epochs, and after it raised then.
    """

    plan: Plan
    calls: ServerCalls
    root: str
    token: str
    on_epoch: Callable[[int, Stats, FeedReport], None]
    epoch: int = -1
    is_telling: bool = False
    _has_told: bool = False

    def follow(self, is_active: Callable[[], bool], stop: StopFlag) -> RunEnd | None:
        """Follow the run to its end; ``None`` if its query has ended without one.

        Args:
            is_active: returns True while the query runs.
            stop: the flag that asks the run to stop.
        """
        has_asked, was_active, looked = False, True, time.monotonic()
        seconds = _HERE_SECONDS if self.calls.here else _BY_TASKS_SECONDS
        while True:
            asks = stop.asked.is_set() and not has_asked
            look = partial(reported, self.root, self.token, self.epoch, asks_to_stop=asks)
            reports, end = self.calls.call(look)
            has_asked = has_asked or asks
            self.is_telling = True
            for report in reports:
                self._tell(report)
            self.is_telling = False
            if end is not None or not was_active:
                self._log(() if end is None else end.log)
                return end
            if time.monotonic() - looked > _ACTIVE_SECONDS:
                was_active, looked = is_active(), time.monotonic()
            # A run releases its lock before it tells its end.
            time.sleep(seconds if was_active else _ACTIVE_SECONDS)

    def _tell(self, report: RunReport) -> None:
        committed = report.committed
        missed = committed.epoch - self.epoch - 1 if self._has_told else 0
        if missed:
            logger.warning(
                "this program was behind the run: it has neither the reports of %s epochs nor what "
                "their sinks write here, as the newest reports alone stay",
                missed,
            )
        self._has_told = True
        self.epoch = committed.epoch
        self._log((*committed.log, *report.log))
        for text in committed.shown:
            print_text(text)
        if committed.messages:
            edges = program_edges(self.plan)
            commit_outputs(self.plan, edges, committed.epoch, committed.messages)
        self.on_epoch(committed.epoch, committed.stats, report.feed)

    def _log(self, lines: LogLines) -> None:
        for level, text in lines:
            logger.log(level, "%s", text)


@dataclass
class RunLease:
    """Activity of a run, by its lock, and by Spark where the lock does not tell.

    Attributes:
        calls: calls where the checkpoint is in reach.
        root: the checkpoint's directory.
        asks_spark: returns True while the run's query runs.
        was_held: True if the run has held the lock.
    """

    calls: ServerCalls
    root: str
    asks_spark: Callable[[], bool] = lambda: True
    was_held: bool = False
    _lease: Lease | None = None

    def is_active(self) -> bool:
        """Return True unless the run has ended; a run that starts has no lock yet."""
        is_over = self._look()
        self.was_held = self.was_held or is_over is False
        # A server that has ended answers nothing, and a client waits for it for ten minutes.
        return not is_over if self.was_held else self.asks_spark()

    def _look(self) -> bool | None:
        """Look at the lock: True if no run holds it, ``None`` if that is not known yet."""
        if not self.calls.here:
            return self.calls.call(partial(_is_over, self.root))
        self._lease = self._lease or Lease(open_storage(self.root))
        return self._lease.is_over()


@dataclass
class RemoteStreamingRun:
    """One run of a flow as a streaming query on a server of Spark Connect."""

    plan: Plan
    spark: Any
    settings: StreamingSettings
    on_epoch: Callable[[int, Stats, FeedReport], None] = lambda *_: None
    stop: StopFlag = field(default_factory=StopFlag)

    def run(self) -> Summary:
        """Run the flow until its sources end, a stop is requested, or an error.

        Raises:
            FlowBuildError: the run has no checkpoint, or reads a streaming data frame.
            EnvironmentProblem: the flow has keyed steps, and PySpark has no state over Connect.
            FlowError: when a step, a source, a sink or Spark fails.
        """
        check_no_frames(self.plan)
        check_keyed_steps(self.plan)
        if self.settings.recovery is not None:
            return self._run_on(str(self.settings.recovery.path))
        with temporary_directory("checkpoint-") as scratch:
            if not ServerCalls(self.spark).in_task(partial(os.path.isdir, scratch)):
                raise FlowBuildError(
                    "a stream on a server of another machine needs recovery=RecoveryConfig(path), "
                    "with a path that all machines of the server reach: its state lies there"
                )
            return self._run_on(scratch)

    def _run_on(self, root: str) -> Summary:
        calls, tasks = ServerCalls(self.spark), cores_of(self.spark)
        request = ShippedPlan.pack(self.plan)
        opening = partial(opened, root, request, self.settings, tasks, self.spark.version)
        identity, resuming, warnings = calls.call(opening)
        for warning in warnings:
            logger.warning("%s: %s", printable(root), printable(warning))
        calls.look_for(root, identity)
        run = self._prepared(calls, root, identity, resuming, tasks)
        for edge in program_edges(self.plan):
            sink_of(self.plan, edge).open(identity.run_id, resuming)
        return self._followed(calls, run)

    def _prepared(
        self, calls: ServerCalls, root: str, identity: Identity, resuming: bool, tasks: int
    ) -> RemoteRun:
        """Return the run for the processes of the server."""

        def exists(name: str) -> bool:
            return calls.call(partial(_exists, root, name))

        plan = keep_static_frames(identity.fitted(self.plan), root, exists)
        self.plan = plan = replace(plan, table_store=table_files(plan, root))
        waits = spark_capabilities().has_admission
        with pickled_for_driver():
            shipped = ShippedPlan.pack(plan)
        return RemoteRun(
            uuid.uuid4().hex, shipped, self.settings, root, identity, resuming, tasks, waits
        )

    def _followed(self, calls: ServerCalls, run: RemoteRun) -> Summary:
        """Start the query, follow the run, and return its summary."""
        logged = calls.call(partial(_logged, run.root, run.identity))
        has_own = calls.in_task(partial(has_packages, _START.read_text("utf-8")))
        query = self._start(run, logged, code_sent_to(self.spark, has_packages=has_own))
        last = EpochOffset.from_json(logged).control
        follower = RunFollower(self.plan, calls, run.root, run.token, self.on_epoch)
        follower.epoch = -1 if last is None else last.number - 1
        lease = RunLease(calls, run.root, lambda: bool(query.isActive))
        release = partial(_release, run.root, run.token)
        try:
            end = follower.follow(lease.is_active, self.stop)
        except (Exception, SystemExit):
            if follower.is_telling:  # Such as `on_epoch`, which ends the run.
                query.stop()
                calls.call(release)
            raise
        if end is not None and end.summary is not None:
            if not run.waits:
                query.stop()
            return end.summary
        raise self._failure(query, end, lambda: calls.call(release))

    def _failure(self, query: Any, end: RunEnd | None, release: Callable[[], None]) -> FlowError:
        """Return the error of a run that has failed.

        Args:
            query: the run's query, which may not have ended yet.
            end: the end of the run; ``None`` before it ends.
            release: releases the lock of the run, whose processes may have ended without that; in
                an object store, a new run would wait for minutes.
        """
        from pyspark.sql.connect.client.retries import DefaultPolicy

        client = self.spark.client
        error: BaseException | None = None
        policies = client.get_retry_policies()
        # A session repeats calls of a server that has ended for ten minutes.
        client.set_retry_policies([DefaultPolicy(max_retries=_BRIEF_RETRIES)])
        try:
            query.awaitTermination(_ENDING_SECONDS)
            if query.isActive:
                query.stop()
            error = query.exception()
        except StreamingQueryException as found:
            error = found
        except UNREACHABLE as found:
            logger.debug("the server does not answer: %s", first_line(found))
            return failure_of(end, None)
        client.set_retry_policies(policies)
        with contextlib.suppress(FlowError):  # The error of the run is more specific.
            release()
        return failure_of(end, error)

    def _start(self, run: RemoteRun, logged: Any, code: bytes) -> Any:
        plan, identity = self.plan, run.identity
        shipped = ShippedPlan.pack(plan.for_workers())
        kept, is_local = self.settings.kept_epochs, "://" not in run.root
        query = FlowQuery(
            self.spark, plan, shipped, identity, run.root, is_local, kept, left_out(plan), {}, code
        )
        reading = TickReading(shipped, query.layout)
        name = f"flow_{uuid.uuid4().hex}"
        planner, outputs = (
            Shipped(pickle.dumps(partial(host, run)), code) for host in (PlannerHost, OutputsHost)
        )
        source = source_of_feed(name, reading, logged, host=planner, code=code)
        interval_us = None if run.waits else self.settings.interval_us
        return started(partial(query.start, source, HostedWrite(outputs), interval_us))


def started(start: Callable[[], Any], tries: int = _STARTS) -> Any:
    """Start a query, and return it.

    A server with much to do may not start the process of the outputs in Spark's ten seconds.
    Nothing has happened then, so the start is tried again.

    Args:
        start: function that starts the query.
        tries: the number of tries.

    Raises:
        EngineError: the query did not start.
    """
    try:
        return start()
    except FlowError:
        raise
    except Exception as error:
        problem = spark_problem(error)
        if tries == 1 or LATE_WORKER not in problem:
            raise EngineError(f"the streaming query did not start: {problem}") from error
        logger.debug("the streaming query did not start, and is started again: %s", problem)
    return started(start, tries - 1)


@dataclass
class AttachedRun:
    """A run on a server that another program has started, on a checkpoint."""

    plan: Plan
    spark: Any
    root: str
    on_epoch: Callable[[int, Stats, FeedReport], None]
    stop: StopFlag

    def run(self) -> Summary:
        """Follow the newest run of the checkpoint to its end, and return its summary.

        Raises:
            CheckpointError: when no run over Spark Connect has begun on the checkpoint, or it is
                another flow's.
            FlowError: when the run failed.
        """
        calls = ServerCalls(self.spark)
        identity = calls.call(partial(_identity, self.root))
        identity.check_flow(self.plan, self.root)
        calls.look_for(self.root, identity)
        self.plan = identity.fitted(self.plan)
        token, epoch = calls.call(partial(newest_run, self.root))
        for edge in program_edges(self.plan):
            sink_of(self.plan, edge).open(identity.run_id, resuming=True)
        follower = RunFollower(self.plan, calls, self.root, token, self.on_epoch, epoch)
        lease = RunLease(calls, self.root, was_held=True)  # A run has files from then on.
        end = follower.follow(lease.is_active, self.stop)
        if end is None or end.summary is None:
            raise failure_of(end, None)
        return end.summary


def _identity(root: str) -> Identity:
    return read_identity(open_storage(root))


def _is_over(root: str) -> bool | None:
    return Lease(open_storage(root)).is_over()


def check_no_frames(plan: Plan) -> None:
    """Check that Spark itself reads no input of a stream over Spark Connect.

    Raises:
        FlowBuildError: when a streaming data frame is an input.
    """
    for step_id, frame in frames_of(plan).items():
        if not frame.isStreaming:
            continue  # The run reads a static data frame from files.
        raise FlowBuildError(
            f"step {step_id!r}: a streaming data frame needs Spark's JVM in reach, to see if it "
            "keeps state of its own, and Spark Connect has none: read the data with a source of "
            "this library, or run on a classic session"
        )


def check_keyed_steps(plan: Plan) -> None:
    """Check that PySpark passes packets to the levels of a flow over Spark Connect.

    Raises:
        EnvironmentProblem: when PySpark does so in classic sessions alone, as 4.0 does.
    """
    from pyspark.sql.connect.group import GroupedData

    form = spark_capabilities().adapter().value
    if plan.levels and not hasattr(GroupedData, form):
        raise EnvironmentProblem(
            f"step {plan.levels[0][0]!r} keeps state, for which PySpark {installed_version()} has "
            f"no {form} over Spark Connect: use Spark 4.1 or newer, a classic session, or "
            "engine='batch'"
        )


def _exists(root: str, name: str) -> bool:
    return open_storage(root).exists(name)


def _logged(root: str, identity: Identity) -> Any:
    return logged_offset(open_storage(root), identity)


def _release(root: str, token: str) -> None:
    LockOfRun(open_storage(root), token).release()


def failure_of(end: RunEnd | None, error: Any) -> FlowError:
    """Return the error of a run that has failed."""
    if end is not None and end.failure is not None:
        return decode_failure(end.failure)
    if error is None:
        return EngineError(
            "the streaming query ended on the server before its inputs had: it was stopped, or "
            "failed, or the server ended, which its log tells; run the flow again, it continues "
            "from its checkpoint"
        )
    failed = EngineError(f"the streaming query failed: {spark_problem(error)}")
    failed.__cause__ = error
    return failed
