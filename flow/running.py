"""`run`: check the arguments, choose an engine, and run a flow on a Spark session."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from flow.checks import check_choice, check_whole
from flow.connectors.source import Source
from flow.dataflow import Dataflow
from flow.durations import Duration, duration_us
from flow.engine.checkpoint.admission import Recovery
from flow.engine.epoch.context import Stats
from flow.engine.epoch.summary import EpochReport, Summary
from flow.engine.feed.feed import Feed
from flow.engine.feed.stop import StopFlag
from flow.engine.feed.system_time import FixedTime, SystemTime, wall_time
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.plan import Plan
from flow.engine.plan.portability import check_portable
from flow.errors import FlowBuildError, FlowTypeError, shorten
from flow.instants import Instant, from_us, instant_us
from flow.operators.edges import Input
from flow.reports.loss_warnings import DropWarnings, LateWarnings
from flow.signals import own_handlers_kept, plainly_interrupted, stopping_on_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EngineName: TypeAlias = Literal["auto", "batch", "streaming"]
OnEpoch: TypeAlias = Callable[[EpochReport], object]
"""A function that gets the report of each epoch; its result is ignored."""


def run(
    flow: Dataflow,
    *,
    recovery: Recovery | None = None,
    spark: SparkSession | None = None,
    engine: EngineName = "auto",
    trigger: Duration | Literal["available"] | None = None,
    drain: bool | None = None,
    system_time: Instant | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log_level: str = "WARN",
    py_files: Sequence[str] = (),
    shards: int | None = None,
    partitions: int | None = None,
    on_epoch: OnEpoch | None = None,
    stop: StopFlag | None = None,
) -> Summary:
    """Run a flow on Spark until its sources end, and return a summary.

    A flow whose inputs all end, run without `recovery`, is one Spark batch job; any other is one
    streaming query.

    A streaming query that is run in the main thread ends after the current epoch when Ctrl-C or a
    SIGTERM comes, and this function returns; a second signal ends the process. Signal handlers that
    the program has set stay in place.

    Args:
        flow: the flow.
        recovery: the checkpoint of state and offsets, from which a later run continues; by default,
            the run has none.
        spark: the session to use; by default the active one, else a new local one.
        engine: ``"batch"`` or ``"streaming"`` to choose; ``"auto"`` chooses as described above.
        trigger: the interval at which epochs start, as a duration; ``"available"`` to read all
            available items and stop; by default, an epoch starts as soon as items are available.
        drain: True if the end of the run is the end of input, which closes every window; False
            leaves windows open in the checkpoint for the next run. By default, True if all sources
            have an end.
        system_time: for tests: the system time, which only `Advance` moves; by default, the
            machine's clock.
        master: Spark's master URL, for a new session.
        conf: Spark configuration, for a new session.
        log_level: the level of Spark's log, for a new session.
        py_files: the user's modules to send to a cluster's workers, for a new session.
        shards: the number of shards of the key space; fixed for a checkpoint's life.
        partitions: the number of partitions of each level; fixed for a checkpoint's life.
        on_epoch: a function that is called with the `EpochReport` of each epoch; an exception in
            the function ends the run.
        stop: a flag by which another thread, or a signal handler, stops the run between two epochs;
            with a flag, `run` handles no signals.

    Returns:
        The summary of the run.

    Raises:
        FlowBuildError: if the flow or an argument is invalid.
        EnvironmentProblem: if Spark or Java is missing or too old.
        StepError: if a step failed; its cause is the exception of the user's code.
        SourceError, SinkError: if a source or a sink failed.
        EngineError: if Spark failed.
        KeyboardInterrupt: if Ctrl-C ended a batch.
    """
    from flow.engine.spark.versions.supported import check_streaming, installed_version

    installed_version()
    from flow.engine.spark.session.given import check_session, ready_for_a_run

    _check_arguments(flow, recovery, shards, partitions)
    _check_on_epoch(on_epoch)
    plan = compile_flow(flow)
    check_portable(plan.steps)
    drain = _is_bounded(plan) if drain is None else bool(drain)
    is_batch = _chooses_batch(plan, engine, recovery, trigger)
    if not is_batch:
        check_streaming()
    time_of_day = wall_time if system_time is None else FixedTime(instant_us(system_time))
    interval = _interval(trigger)
    if spark is not None:
        _check_session_alone(master=master, conf=conf, py_files=py_files)
    session = spark or _new_session(flow.flow_id, master, conf, log_level, py_files)
    check_session(session, is_batch=is_batch)
    report = _EpochReports(plan, on_epoch)
    start = time.monotonic()
    with ready_for_a_run(session):
        if is_batch:
            summary = _run_batch(plan, session, drain, time_of_day, shards, partitions, report)
        else:
            from flow.engine.spark.streaming import StreamingRun, StreamingSettings

            only_available = trigger == "available"
            settings = StreamingSettings(
                recovery, interval, only_available, drain, time_of_day, shards, partitions
            )
            with _stop_flag(stop) as flag:
                summary = StreamingRun(plan, session, settings, report, flag).run()
    summary.seconds = time.monotonic() - start
    summary.behind = report.behind
    return summary


def _check_arguments(
    flow: object, recovery: object, shards: int | None, partitions: int | None
) -> None:
    if not isinstance(flow, Dataflow):
        raise FlowTypeError(f"run needs a Dataflow, got {type(flow).__name__} {shorten(flow)}")
    if recovery is not None and not hasattr(recovery, "admit"):
        raise FlowTypeError(
            f"recovery must be a RecoveryConfig, got {type(recovery).__name__} {shorten(recovery)}"
        )
    for name, count in (("shards", shards), ("partitions", partitions)):
        if count is not None:
            check_whole(name, count, 1)


def _check_on_epoch(on_epoch: object) -> None:
    """Raise a `FlowTypeError` unless `on_epoch` is None or takes one argument."""
    if on_epoch is not None and not _takes_one_argument(on_epoch):
        raise FlowTypeError(
            "on_epoch must be a function of one argument, an EpochReport; "
            f"got {type(on_epoch).__name__} {shorten(on_epoch)}"
        )


def _takes_one_argument(function: object) -> bool:
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # Some built-in functions have no signature.
        return True
    return True


def _check_session_alone(**for_new_session: object) -> None:
    """Raise a `FlowBuildError` if settings of a new session are given together with a session."""
    given = [f"{name}=" for name, value in for_new_session.items() if value]
    if given:
        raise FlowBuildError(
            f"run: {' and '.join(given)} cannot change the session that spark= names: set it where "
            "that session is made, or leave out spark="
        )


def _new_session(
    name: str,
    master: str | None,
    conf: Mapping[str, str] | None,
    log_level: str,
    py_files: Sequence[str],
) -> SparkSession:
    from flow.engine.spark.session.session import SparkSettings, make_session

    settings = SparkSettings(master, dict(conf or {}), log_level, tuple(py_files))
    with own_handlers_kept():
        return make_session(name, settings)


@contextlib.contextmanager
def _stop_flag(given: StopFlag | None) -> Iterator[StopFlag]:
    """Yield the caller's flag, or else a new flag that signals set."""
    if given is not None:
        yield given
        return
    flag = StopFlag()
    with stopping_on_signals(flag.ask):
        yield flag


class _EpochReports:
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
        self._warn_of_drops(stats)
        self._warn_of_late(stats)
        if feed is not None:
            self.behind = {step_id: counts for step_id, counts in feed.behind.items() if counts}
        if self._on_epoch is not None:
            self._on_epoch(_report(epoch, stats, feed))


def _report(epoch: int, stats: Stats, feed: Feed | None) -> EpochReport:
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


def _run_batch(
    plan: Plan,
    session: SparkSession,
    drain: bool,
    system_time: SystemTime,
    shards: int | None,
    partitions: int | None,
    report: _EpochReports,
) -> Summary:
    from flow.engine.spark.batch import BatchSettings, run_batch

    settings = BatchSettings(drain, system_time, shards, partitions)
    with plainly_interrupted():
        return run_batch(plan, session, settings, lambda epoch, stats: report(epoch, stats, None))


def _chooses_batch(plan: Plan, engine: str, recovery: Recovery | None, trigger: object) -> bool:
    check_choice("engine", engine, ("auto", "batch", "streaming"))
    if engine == "batch" and recovery is not None:
        raise FlowBuildError(
            "engine='batch' keeps no state to recover: leave out recovery=, or engine="
        )
    if engine == "auto":
        asks_for_streaming = recovery is not None or trigger is not None
        return not asks_for_streaming and _is_bounded(plan) and not _needs_streaming(plan)
    return engine == "batch"


def _is_bounded(plan: Plan) -> bool:
    return all(_source(plan, name).bounded for name in plan.inputs)


def _needs_streaming(plan: Plan) -> bool:
    return any(_source(plan, name).needs_streaming for name in plan.inputs)


def _source(plan: Plan, step_id: str) -> Source[Any]:
    """Return the source of an input step.

    Raises:
        FlowBuildError: if the step is not an input.
    """
    operator = plan.steps[step_id].operator
    if not isinstance(operator, Input):
        raise FlowBuildError(f"step {step_id!r} is not an input")
    return operator.source


def _interval(trigger: object) -> str | None:
    """Return the interval of a trigger in Spark's format; ``None`` for a trigger without one.

    Raises:
        FlowBuildError: if the interval is negative.
    """
    if trigger is None or trigger == "available":
        return None
    micros = duration_us(trigger, "trigger")  # type: ignore[arg-type]
    if micros < 0:
        raise FlowBuildError(f"trigger must not be negative, got {trigger!r}")
    return f"{micros // 1000} milliseconds"
