"""`run`: check the arguments, choose an engine, and run a flow on a Spark session."""

from __future__ import annotations

import contextlib
import inspect
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from flow.config.effective import (
    EffectiveConfig,
    of_arguments,
    of_environment,
    of_program,
    recovery_of_program,
)
from flow.config.flow_config import EngineName, FlowConfig, Trigger
from flow.config.sessions import session_for
from flow.connectors.source import Source
from flow.dataflow import Dataflow
from flow.durations import duration_us
from flow.engine.checkpoint.admission import Recovery
from flow.engine.epoch.context import Stats
from flow.engine.epoch.summary import EpochReport, Summary
from flow.engine.epoch.watermark_lag import watermark_lags
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
from flow.signals import plainly_interrupted, stopping_on_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flow.engine.spark.streaming import StreamingSettings
    from flow.web.live_page import LivePage

OnEpoch: TypeAlias = Callable[[EpochReport], object]
"""A function that gets the report of each epoch; its result is ignored."""


def run(
    flow: Dataflow,
    *,
    config: FlowConfig | None = None,
    recovery: Recovery | None = None,
    spark: SparkSession | None = None,
    engine: EngineName | None = None,
    trigger: Trigger | None = None,
    drain: bool | None = None,
    system_time: Instant | None = None,
    shards: int | None = None,
    partitions: int | None = None,
    parallelism: int | None = None,
    master: str | None = None,
    driver_memory: str | None = None,
    conf: Mapping[str, str] | None = None,
    py_files: Sequence[str | os.PathLike[str]] | None = None,
    speedups: bool | None = None,
    log_level: str | None = None,
    web: str | None = None,
    on_epoch: OnEpoch | None = None,
    stop: StopFlag | None = None,
) -> Summary:
    """Run a flow on Spark until its sources end, and return a summary.

    A flow whose inputs all end, run without `recovery`, is one Spark batch job; any other is one
    streaming query.

    A streaming query that is run in the main thread ends after the current epoch when Ctrl-C or a
    SIGTERM comes, and this function returns; a second signal ends the process. Signal handlers that
    the program has set stay in place.

    The arguments that `FlowConfig` has too come, where they are left out, from environment
    variables such as ``FLOW_MASTER``, then from `config`, then from the defaults.

    Args:
        flow: the flow.
        config: the configuration of the run; another argument, or an environment variable, replaces
            its value.
        recovery: the checkpoint of state and offsets, from which a later run continues; by default,
            the run has none.
        spark: the session to use; by default that of a data frame which the flow reads, else the
            active one, also of Spark Connect, else a new one.
        engine: ``"batch"`` or ``"streaming"`` to choose; ``"auto"``, the default, chooses as
            described above.
        trigger: the interval at which epochs start, as a duration; ``"available"`` to read all
            available items and stop; by default, an epoch starts as soon as items are available.
        drain: True if the end of the run is the end of input, which closes every window; False
            leaves windows open in the checkpoint for the next run. By default, True if all sources
            have an end.
        system_time: for tests: the system time, which only `Advance` moves; by default, the
            machine's clock.
        shards: the number of shards of the key space; fixed for a checkpoint's life.
        partitions: the number of partitions of each level; fixed for a checkpoint's life.
        parallelism: the number of parts into which inputs are read, for a new session. This and the
            next three arguments are refused if an active session has other values.
        master: Spark's master URL, for a new session.
        driver_memory: the heap of the JVM, such as ``"4g"``, for a new session.
        conf: Spark configuration, for a new session.
        py_files: the user's modules to send to a cluster's workers.
        speedups: False to switch off the optional speed-ups, for a new session.
        log_level: the level of Spark's log, for a new session.
        web: the address on which the live page of the run is served, such as ``"127.0.0.1:4041"``.
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
    _check_arguments(flow, config)
    first = of_arguments(
        {
            "recovery": recovery,
            "engine": engine,
            "trigger": trigger,
            "drain": drain,
            "shards": shards,
            "partitions": partitions,
            "parallelism": parallelism,
            "master": master,
            "driver_memory": driver_memory,
            "conf": conf,
            "py_files": py_files,
            "speedups": speedups,
            "log_level": log_level,
            "web": web,
        }
    )
    last = config or FlowConfig()
    environment = of_environment(os.environ, recovery_of_program(last), first)
    effective = EffectiveConfig(first, environment, of_program(last))
    return run_configured(
        flow, effective, spark=spark, system_time=system_time, on_epoch=on_epoch, stop=stop
    )


def run_configured(
    flow: Dataflow,
    effective: EffectiveConfig,
    *,
    spark: SparkSession | None = None,
    system_time: Instant | None = None,
    on_epoch: OnEpoch | None = None,
    stop: StopFlag | None = None,
) -> Summary:
    """Run a flow with an effective configuration; `run` describes arguments and errors."""
    from flow.engine.spark.versions.supported import check_streaming, installed_version

    installed_version()
    from flow.engine.spark.session.given import check_session, ready_for_a_run

    _check_on_epoch(on_epoch)
    config = effective.config()
    plan = compile_flow(flow)
    check_portable(plan.steps)
    drain = _is_bounded(plan) if config.drain is None else config.drain
    is_batch = _chooses_batch(plan, config)
    if not is_batch:
        check_streaming()
    time_of_day = wall_time if system_time is None else FixedTime(instant_us(system_time))
    with _page(config, plan, is_batch) as page:
        session = session_for(plan, effective, spark)
        check_session(session, is_batch=is_batch)
        report = _EpochReports(plan, on_epoch, page)
        if page is not None:
            page.start()
        start = time.monotonic()
        with ready_for_a_run(session):
            if is_batch:
                summary = _run_batch(plan, session, config, drain, time_of_day, report)
            else:
                summary = _run_stream(plan, session, config, drain, time_of_day, report, stop)
        summary.seconds = time.monotonic() - start
        summary.behind = report.behind
        if page is not None:
            page.end(summary)
    return summary


@contextlib.contextmanager
def _page(config: FlowConfig, plan: Plan, is_batch: bool) -> Iterator[LivePage | None]:
    """Yield the run's live page; ``None`` without `web`."""
    if config.web is None:
        yield None
        return
    try:
        from flow.web.live_page import live_page
    except ModuleNotFoundError as error:
        raise FlowBuildError(
            f"web: the live page needs the package {error.name}: pip install 'flow-windows[web]'"
        ) from error
    is_interval = config.trigger not in (None, "available")
    seconds = duration_us(config.trigger or "0s", "trigger") / 1e6 if is_interval else None
    with live_page(config.web, plan, "batch" if is_batch else "streaming", seconds) as page:
        yield page


def _check_arguments(flow: object, config: object) -> None:
    if not isinstance(flow, Dataflow):
        raise FlowTypeError(f"run needs a Dataflow, got {type(flow).__name__} {shorten(flow)}")
    if config is not None and not isinstance(config, FlowConfig):
        raise FlowTypeError(
            f"config must be a FlowConfig, got {type(config).__name__} {shorten(config)}"
        )


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


def _streaming_settings(
    config: FlowConfig, drain: bool, system_time: SystemTime
) -> StreamingSettings:
    from flow.engine.spark.streaming import StreamingSettings

    return StreamingSettings(
        config.recovery,
        _interval(config.trigger),
        config.trigger == "available",
        drain,
        system_time,
        config.shards,
        config.partitions,
    )


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
    """The reports after each epoch: warnings of lost values, the page, the caller's function.

    Attributes:
        behind: the number of items left to read after the last epoch, by input and source
            partition.
    """

    def __init__(self, plan: Plan, on_epoch: OnEpoch | None, page: LivePage | None = None) -> None:
        self._warn_of_drops = DropWarnings()
        self._warn_of_late = LateWarnings(plan)
        self._on_epoch = on_epoch
        self._page = page
        self.behind: dict[str, dict[str, int]] = {}

    def __call__(self, epoch: int, stats: Stats, feed: Feed | None) -> None:
        self._warn_of_drops(stats)
        self._warn_of_late(stats)
        if feed is not None:
            self.behind = {step_id: counts for step_id, counts in feed.behind.items() if counts}
        if self._on_epoch is None and self._page is None:
            return
        report = _report(epoch, stats, feed)
        if self._page is not None:
            self._page.report(report)
        if self._on_epoch is not None:
            self._on_epoch(report)


def _report(epoch: int, stats: Stats, feed: Feed | None) -> EpochReport:
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


def _run_batch(
    plan: Plan,
    session: SparkSession,
    config: FlowConfig,
    drain: bool,
    system_time: SystemTime,
    report: _EpochReports,
) -> Summary:
    from flow.engine.spark.batch import BatchSettings, run_batch

    settings = BatchSettings(drain, system_time, config.shards, config.partitions)
    with plainly_interrupted():
        return run_batch(plan, session, settings, lambda epoch, stats: report(epoch, stats, None))


def _run_stream(
    plan: Plan,
    session: SparkSession,
    config: FlowConfig,
    drain: bool,
    system_time: SystemTime,
    report: _EpochReports,
    stop: StopFlag | None,
) -> Summary:
    from flow.engine.spark.streaming import StreamingRun

    settings = _streaming_settings(config, drain, system_time)
    with _stop_flag(stop) as flag:
        return StreamingRun(plan, session, settings, report, flag).run()


def _chooses_batch(plan: Plan, config: FlowConfig) -> bool:
    if config.engine == "batch" and config.recovery is not None:
        raise FlowBuildError(
            "engine='batch' keeps no state to recover: leave out recovery=, or engine="
        )
    if config.engine == "auto":
        asks_for_streaming = config.recovery is not None or config.trigger is not None
        return not asks_for_streaming and _is_bounded(plan) and not _needs_streaming(plan)
    return config.engine == "batch"


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


def _interval(trigger: Trigger | None) -> str | None:
    """Return the interval of a trigger in Spark's format; ``None`` for a trigger without one."""
    if trigger is None or trigger == "available":
        return None
    return f"{duration_us(trigger, 'trigger') // 1000} milliseconds"
