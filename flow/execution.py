"""`run`: check the arguments, choose an engine, run a flow on a session, and report its epochs."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from flow.background import BackgroundRun, OnEpoch
from flow.checks import check_flag, right_names, wrong_type
from flow.config.effective_config import (
    EffectiveConfig,
    of_arguments,
    of_environment,
    of_program,
    recovery_of_program,
)
from flow.config.flow_config import FIELD, FlowConfig, Settings, Trigger
from flow.config.spark_session import session_for
from flow.dataflow import Dataflow
from flow.durations import duration_us
from flow.engine.checkpoint.identity import Recovery
from flow.engine.epoch.failures import with_brief_errors
from flow.engine.epoch.seen_fields import FieldWarnings
from flow.engine.epoch.statistics import Stats
from flow.engine.epoch.summary import EpochReport, Summary, watermark_lags
from flow.engine.feed.clocks import FixedTime, SystemTime, wall_time
from flow.engine.feed.feed import FeedReport, StopFlag
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.declared_columns import check_fields, needless_functions
from flow.engine.plan.plan import Plan
from flow.engine.plan.portability import check_portable
from flow.engine.steps.reading import source_of
from flow.errors import (
    EngineError,
    FlowBuildError,
    FlowError,
    FlowTypeError,
    brief,
    package_of_extra,
)
from flow.instants import Instant, from_us, instant_us
from flow.preflight import preflight
from flow.process import plainly_interrupted, stopping_on_signals
from flow.reports.loss_warnings import DropWarnings, HoldWarnings, LateWarnings
from flow.reports.progress import CellLine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flow.web.inside import StateReader
    from flow.web.server import LivePage

logger = logging.getLogger("flow")

_NEEDLESS_FUNCTION = (
    "step %r reads field %r with a function, which makes Python objects of the records: give the "
    "field's name in place of the function, and they stay columns"
)


@overload
def run(
    flow: Dataflow,
    config: FlowConfig | None = None,
    *,
    recovery: Recovery | None = None,
    spark: SparkSession | None = None,
    system_time: Instant | None = None,
    on_epoch: OnEpoch | None = None,
    stop: StopFlag | None = None,
    background: Literal[False] = False,
    **settings: Unpack[Settings],
) -> Summary: ...
@overload
def run(
    flow: Dataflow,
    config: FlowConfig | None = None,
    *,
    recovery: Recovery | None = None,
    spark: SparkSession | None = None,
    system_time: Instant | None = None,
    on_epoch: OnEpoch | None = None,
    stop: StopFlag | None = None,
    background: Literal[True],
    **settings: Unpack[Settings],
) -> BackgroundRun: ...
def run(
    flow: Dataflow,
    config: FlowConfig | None = None,
    *,
    recovery: Recovery | None = None,
    spark: SparkSession | None = None,
    system_time: Instant | None = None,
    on_epoch: OnEpoch | None = None,
    stop: StopFlag | None = None,
    background: bool = False,
    **settings: Unpack[Settings],
) -> Summary | BackgroundRun:
    """Run a flow on Spark until its sources end, and return a summary.

    A flow whose inputs all end, run without `recovery`, is one Spark batch job; any other is one
    streaming query.

    A streaming query that is run in the main thread ends after the current epoch when Ctrl-C or a
    SIGTERM comes, and this function returns; a second signal ends the process. Signal handlers that
    the program has set stay in place.

    In a cell of a notebook, a line below the cell shows the progress. An interrupt of the cell asks
    the run to stop, and the cell returns the summary; a second interrupt leaves the run to stop in
    the background. A batch that is stopped writes nothing.

    The fields of `FlowConfig` are arguments too, such as ``run(flow, master="local[4]")``. The
    value of a field comes from the argument, or else from an environment variable such as
    ``FLOW_MASTER``, from `config`, or from the default.

    Args:
        flow: the flow.
        config: the configuration of the run.
        recovery: the checkpoint of state and offsets, from which a later run continues; by default,
            the run has none.
        spark: the session to use; by default that of a data frame which the flow reads, else the
            active one, also of Spark Connect, else a new one.
        system_time: for tests: the system time, which only `Advance` moves; by default, the
            machine's clock.
        on_epoch: a function that is called with the `EpochReport` of each epoch; an exception in
            the function ends the run.
        stop: a flag by which another thread, or a signal handler, stops the run between two epochs;
            with a flag, `run` handles no signals.
        background: True to run the flow in another thread, and return at once.
        settings: fields of `FlowConfig` by name; ``None`` stands for a field that is not given.
            Fields of a new session are refused if the session exists and has other values.

    Returns:
        The summary of the run; with `background`, a `BackgroundRun`, whose `wait` returns the
        summary or raises the run's error.

    Raises:
        FlowBuildError: if the flow or an argument is invalid.
        EnvironmentProblem: if Spark or Java is missing or too old.
        StepError: if a step failed; its cause is the exception of the user's code. Tracebacks
            have the frames of the user's code; with ``logging.getLogger("flow")`` at the level
            DEBUG, all frames.
        SourceError, SinkError: if a source or a sink failed.
        EngineError: if Spark failed, or `on_epoch` raised an error that is none of a flow.
        KeyboardInterrupt: if Ctrl-C ended a batch.
    """
    _check_arguments(flow, config, settings, on_epoch, stop)
    check_flag("background", background)
    last = config or FlowConfig()
    first = of_arguments({"recovery": recovery, **settings})
    environment = of_environment(os.environ, recovery_of_program(last), first)
    effective = EffectiveConfig(first, environment, of_program(last))
    start = with_brief_errors(
        partial(run_configured, flow, effective, spark=spark, system_time=system_time)
    )
    line = CellLine.here()
    if not background and line is None:
        return start(on_epoch=on_epoch, stop=stop)
    work = partial(start, active=_active_session())
    started = BackgroundRun(flow, work, on_epoch, stop, line)
    return started if background else started.wait_in_cell()


def attach(
    flow: Dataflow,
    recovery: Recovery,
    *,
    spark: SparkSession | None = None,
    on_epoch: OnEpoch | None = None,
    stop: StopFlag | None = None,
    background: bool = False,
) -> Summary | BackgroundRun:
    """Follow a run over Spark Connect that another program has started, and return its summary.

    Such a run stands on the server, and continues if its program ends. A program that attaches to
    it gets the reports of its epochs from then on, and can stop it. Ctrl-C asks the run to stop, as
    in `run`; a second one ends the program alone.

    Args:
        flow: the flow, as it was run.
        recovery: the recovery settings of the run, whose path is that of its checkpoint.
        spark: a session on the same server; by default the active one.
        on_epoch: a function that is called with the `EpochReport` of each epoch.
        stop: a flag by which another thread, or a signal handler, stops the run between two epochs.
        background: True to follow the run in another thread, and return at once.

    Returns:
        The summary of the run; with `background`, a `BackgroundRun`.

    Raises:
        FlowBuildError: if an argument is invalid, or the session is none of Spark Connect.
        CheckpointError: if no run over Spark Connect has begun on the checkpoint.
        FlowError: if the run failed.
    """
    _check_arguments(flow, None, {}, on_epoch, stop)
    FIELD["recovery"].type.check("recovery", recovery)
    check_flag("background", background)
    start = with_brief_errors(
        partial(_follow, flow, recovery, spark, _active_session() if spark is None else None)
    )
    if background:
        return BackgroundRun(flow, start, on_epoch, stop)
    return start(on_epoch=on_epoch, stop=stop)


def _follow(
    flow: Dataflow,
    recovery: Recovery,
    spark: SparkSession | None,
    active: SparkSession | None,
    *,
    on_epoch: OnEpoch | None = None,
    on_start: Callable[[], None] = lambda: None,
    stop: StopFlag | None = None,
) -> Summary:
    """Follow a run on a server; `attach` describes arguments and errors."""
    from flow.engine.spark.remote_streaming import AttachedRun
    from flow.engine.spark.session.session import active_session, check_session, send_packages
    from flow.engine.spark.session.session_settings import is_remote

    session = spark or active or active_session()
    if not is_remote(session):
        raise FlowBuildError(
            "attach needs a session of Spark Connect, on the server of the run: pass "
            "spark=SparkSession.builder.remote('sc://host:15002').getOrCreate()"
        )
    check_session(session)
    plan = compile_flow(flow)
    send_packages(session)
    on_start()
    report = EpochReports(plan, on_epoch)
    with _stop_flag(stop) as flag:
        summary = AttachedRun(plan, session, str(recovery.path), report, flag).run()
    summary.behind = report.behind
    summary.describe(flow)
    return summary


def _active_session() -> SparkSession | None:
    """Return the active session of this thread, without an import of Spark."""
    if "pyspark" not in sys.modules:
        return None
    from flow.engine.spark.session.session import active_session

    return active_session()


def run_configured(
    flow: Dataflow,
    effective: EffectiveConfig,
    *,
    spark: SparkSession | None = None,
    active: SparkSession | None = None,
    system_time: Instant | None = None,
    on_epoch: OnEpoch | None = None,
    on_start: Callable[[], None] = lambda: None,
    stop: StopFlag | None = None,
) -> Summary:
    """Run a flow with an effective configuration; `run` describes arguments and errors.

    Args:
        flow: the flow.
        effective: the configuration.
        spark: the session that the user names.
        active: the active session of the user's thread, if this is another one.
        system_time: the system time.
        on_epoch: called with the report of each epoch.
        on_start: called as Spark has started.
        stop: the flag that stops the run.
    """
    from flow.engine.spark.session.versions import installed_version

    installed_version()
    from flow.engine.spark.session.session import active_session, check_session, ready_for_a_run
    from flow.engine.spark.session.session_settings import is_remote
    from flow.engine.spark.session.spark_capabilities import check_streaming
    from flow.engine.spark.task_network import check_network_of_tasks

    plan = compile_flow(flow)
    check_fields(plan)
    config = _with_drain(effective.config(), plan)
    if config.web and config.web_values:  # The page shows samples of late values.
        plan = replace(plan, samples_late=True)
    check_portable(plan.for_workers().steps)
    for step_id, path in needless_functions(plan.steps):
        logger.warning(_NEEDLESS_FUNCTION, step_id, path)
    is_batch = _chooses_batch(plan, config)
    given = spark or active or active_session()
    is_on_server = not is_batch and is_remote(given)
    preflight(plan, config.recovery, is_batch=is_batch, is_here=not is_on_server)
    if not is_batch:
        check_streaming()
    time_of_day = wall_time if system_time is None else FixedTime(instant_us(system_time))
    with _page(config, plan, is_batch=is_batch, is_on_server=is_on_server) as page:
        session = session_for(plan, effective, spark, active)
        check_session(session)
        on_start()
        if page is not None:
            # The state is read through Spark's JVM.
            read = None if is_on_server else _state_reader(config.recovery, flow, session)
            page.start(read)
        report = EpochReports(plan, on_epoch, None if page is None else page.report)
        start = time.monotonic()
        with ready_for_a_run(session):
            check_network_of_tasks(plan, session)
            summary = _run_plan(plan, session, config, time_of_day, stop, report, is_batch=is_batch)
        summary.seconds = time.monotonic() - start
        summary.behind = report.behind
        summary.describe(flow)
        if page is not None:
            page.end(summary)
    return summary


@contextlib.contextmanager
def _page(
    config: FlowConfig, plan: Plan, *, is_batch: bool, is_on_server: bool
) -> Iterator[LivePage | None]:
    """Yield the run's live page; ``None`` without `web`."""
    if config.web is None:
        yield None
        return
    with package_of_extra("web", "prometheus-client", "the live page"):
        from flow.web.server import live_page
    seconds = _interval_us(config.trigger) / 1e6 or None
    engine = "batch" if is_batch else "streaming"
    checkpoint = config.recovery.path if is_on_server and config.recovery else None
    with live_page(config.web, plan, engine, seconds, config.web_values, checkpoint) as page:
        yield page


def _state_reader(
    recovery: Recovery | None, flow: Dataflow, session: SparkSession
) -> StateReader | None:
    """Return the reader of a run's state, in a session of its own; ``None`` without checkpoint."""
    if recovery is None:
        return None
    return lambda step_id, key: recovery.state(step_id, key, flow, session.newSession())


def _check_arguments(
    flow: object, config: object, settings: Mapping[str, object], on_epoch: Any, stop: object
) -> None:
    """Raise a `FlowTypeError` for an argument of a wrong type, and for one with a wrong name."""
    if not isinstance(flow, Dataflow):
        raise wrong_type("run needs a Dataflow", flow)
    if config is not None and not isinstance(config, FlowConfig):
        raise wrong_type("config must be a FlowConfig", config)
    if stop is not None and not isinstance(stop, StopFlag):
        raise wrong_type("stop must be a StopFlag", stop)
    for name in settings.keys() - FIELD.keys():
        own = [name for name in (*signature(run).parameters, *FIELD) if name != "settings"]
        raise FlowTypeError(f"run has no argument {name!r}: {right_names(name, own)}")
    try:
        if on_epoch is not None:
            signature(on_epoch).bind(None)
    except TypeError:
        raise wrong_type(
            "on_epoch must be a function of one argument, an EpochReport", on_epoch
        ) from None
    except ValueError:  # Some built-in functions have no signature.
        pass


@contextlib.contextmanager
def _stop_flag(given: StopFlag | None) -> Iterator[StopFlag]:
    """Yield the caller's flag, or else a new flag that signals set."""
    if given is not None:
        yield given
        return
    flag = StopFlag()
    with stopping_on_signals(flag.ask):
        yield flag


def _run_plan(
    plan: Plan,
    session: SparkSession,
    config: FlowConfig,
    system_time: SystemTime,
    stop: StopFlag | None,
    report: EpochReports,
    *,
    is_batch: bool,
) -> Summary:
    """Run a plan as a batch or as a streaming query, and return its summary."""
    from flow.engine.spark.batch import BatchSettings, run_batch

    common = (config.drain is True, system_time, config.shards, config.partitions)
    if is_batch:
        with plainly_interrupted():
            return run_batch(plan, session, BatchSettings(*common), report, stop)
    from flow.engine.spark.remote_streaming import RemoteStreamingRun
    from flow.engine.spark.run_host import StreamingSettings
    from flow.engine.spark.session.session_settings import is_remote
    from flow.engine.spark.streaming import StreamingRun

    trigger = config.trigger
    settings = StreamingSettings(
        *common, config.recovery, _interval_us(trigger), trigger == "available"
    )
    with _stop_flag(stop) as flag:
        engine = RemoteStreamingRun if is_remote(session) else StreamingRun
        return engine(plan, session, settings, report, flag).run()


def _with_drain(config: FlowConfig, plan: Plan) -> FlowConfig:
    """Return a configuration that drains a flow whose sources all end, unless it says otherwise."""
    if config.drain is not None:
        return config
    return replace(config, drain=all(source_of(plan.steps[name]).bounded for name in plan.inputs))


def _chooses_batch(plan: Plan, config: FlowConfig) -> bool:
    if config.engine == "batch" and config.recovery is not None:
        raise FlowBuildError(
            "engine='batch' keeps no state to recover: leave out recovery=, or engine="
        )
    if config.engine == "auto":
        asks_for_streaming = config.recovery is not None or config.trigger is not None
        sources = [source_of(plan.steps[name]) for name in plan.sources]
        can_be_batch = all(each.bounded and not each.needs_streaming for each in sources)
        return can_be_batch and not asks_for_streaming
    return config.engine == "batch"


def _interval_us(trigger: Trigger | None) -> int:
    """Return the interval of a trigger in µs; 0 for a trigger without one."""
    return 0 if trigger in (None, "available") else duration_us(trigger, "trigger")


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
        self._warn_of_fields = FieldWarnings()
        self._warn_of_holds = HoldWarnings(plan)
        self._readers = [reader for reader in (on_page, on_epoch) if reader is not None]
        self.behind: dict[str, dict[str, int]] = {}

    def __call__(self, epoch: int, stats: Stats, feed: FeedReport | None = None) -> None:
        """Report an epoch; a batch has no feed."""
        self._warn_of_drops(stats)
        self._warn_of_late(stats)
        self._warn_of_fields(stats.seen)
        self._warn_of_holds(stats)
        if feed is not None:
            self.behind = _unread(feed)
        if self._readers:
            report = report_of(epoch, stats, feed)
            try:
                for reader in self._readers:
                    reader(report)
            except FlowError:
                raise
            except Exception as error:
                raise EngineError(f"on_epoch raised {brief(error)}") from error


def report_of(epoch: int, stats: Stats, feed: FeedReport | None) -> EpochReport:
    """Return the report of an epoch; without feed, of a batch."""
    control = None if feed is None else feed.control
    return EpochReport(
        epoch,
        stats.counts,
        stats.gauges,
        system_time=None if control is None else from_us(control.moment.now_us),
        end_of_input=feed is None or (control is not None and control.end_of_input),
        lag={} if feed is None else {name: lag for name, lag in feed.lag.items() if lag},
        behind={} if feed is None else _unread(feed),
        behind_by={} if control is None else control.behind_by(),
        phases=stats.phases,
        busy={step_id: ns / 1e9 for step_id, ns in stats.busy_ns.items()},
        lags=watermark_lags(stats.lags),
        workers=stats.workers,
        bounds=stats.bounds,
        lateness=stats.lateness,
        late_sources=stats.late_sources,
        late_items=tuple(stats.late_items),
    )


def _unread(feed: FeedReport) -> dict[str, dict[str, int]]:
    """Return the number of unread items by partition of each input that knows it."""
    return {step_id: counts for step_id, counts in feed.behind.items() if counts}
