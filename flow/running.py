"""`run`: one way to run a flow, whatever engine fits it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from flow.checks import check_choice, check_whole
from flow.connectors.source import Source
from flow.dataflow import Dataflow
from flow.durations import Duration, duration_us
from flow.engine.checkpoint.admission import Recovery
from flow.engine.epoch.context import Stats
from flow.engine.feed.feed import Feed, FixedTime, StopFlag, SystemTime, wall_time
from flow.engine.plan.plan import Plan, compile_flow
from flow.errors import FlowBuildError, FlowTypeError, shorten
from flow.instants import Instant, instant_us
from flow.operators.edges import Input
from flow.reports.progress import DropWarnings, LateWarnings
from flow.signals import own_handlers_kept, plainly_interrupted, stopping_on_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flow.engine.epoch.summary import Summary

EngineName: TypeAlias = Literal["auto", "batch", "streaming"]
EpochReport: TypeAlias = Callable[[int, Stats, Feed | None], None]


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
    on_epoch: EpochReport | None = None,
    stop: StopFlag | None = None,
) -> Summary:
    """Run a flow on Spark until its sources end, and return what it did.

    A flow whose inputs all end, run without `recovery`, is one Spark batch job; any other is one
    streaming query.

    A streaming query that is run in the main thread ends after the epoch in hand when Ctrl-C or a
    SIGTERM asks for it, and this returns; a second one ends the process. Handlers of these signals
    that the program has set itself are left alone.

    Args:
        flow: the flow.
        recovery: where to keep state and offsets, to go on from after a stop.
        spark: the session to use; else the one there is, else a local one is made.
        engine: ``"batch"`` or ``"streaming"`` to choose; ``"auto"`` chooses as said above.
        trigger: how often to start an epoch, as a duration; ``"available"`` to read what there is
            and stop; when left out, as soon as there is something to do.
        drain: whether to end the input when the run ends by itself, which closes every window;
            ``False`` leaves them open in the checkpoint for the next run. When left out: whether
            all sources have an end.
        system_time: for tests: system time stands still there, and only `Advance` moves it.
        master: Spark's master URL, when a session has to be made.
        conf: Spark configuration, when a session has to be made.
        log_level: how much Spark writes to its log, when a session has to be made.
        py_files: modules of one's own to send to a cluster's workers, when a session has to be
            made.
        shards: how many slices the key space has; kept for a checkpoint's life.
        partitions: how many partitions each level has; kept for a checkpoint's life.
        on_epoch: called with each epoch's number, counts, and feed (``None`` in a batch).
        stop: asked by another thread, or a signal handler, to stop between two epochs; when it is
            given, signals are left alone.

    Returns:
        What the run did.

    Raises:
        FlowBuildError: when the flow or an argument is not fit to run.
        EnvironmentProblem: when there is no Java that Spark can run on.
        StepError: when a step failed; its cause is the user's own exception.
        SourceError, SinkError: when a source or a sink failed.
        EngineError: when Spark failed.
        KeyboardInterrupt: when Ctrl-C ended a batch.
    """
    if not isinstance(flow, Dataflow):
        raise FlowTypeError(f"run needs a Dataflow, got {type(flow).__name__} {shorten(flow)}")
    if recovery is not None and not hasattr(recovery, "admit"):
        raise FlowTypeError(
            f"recovery must be a RecoveryConfig, got {type(recovery).__name__} {shorten(recovery)}"
        )
    plan = compile_flow(flow)
    for name, count in (("shards", shards), ("partitions", partitions)):
        if count is not None:
            check_whole(name, count, 1)
    drain = _bounded(plan) if drain is None else bool(drain)
    batch = _chooses_batch(plan, engine, recovery, trigger)
    time_of_day = wall_time if system_time is None else FixedTime(instant_us(system_time))
    interval = _interval(trigger)

    from flow.engine.spark.session.session import SparkSettings, make_session

    settings = SparkSettings(master, dict(conf or {}), log_level, tuple(py_files))
    with own_handlers_kept():
        session = spark or make_session(flow.flow_id, settings)
    report = _Reports(plan, on_epoch)
    started = time.monotonic()
    if batch:
        summary = _batch(plan, session, drain, time_of_day, shards, partitions, report)
    else:
        from flow.engine.spark.streaming import StreamingRun, StreamingSettings

        streaming = StreamingSettings(
            recovery,
            interval,
            trigger == "available",
            drain,
            time_of_day,
            shards,
            partitions,
        )
        with _stop_flag(stop) as flag:
            summary = StreamingRun(plan, session, streaming, report, flag).run()
    summary.seconds = time.monotonic() - started
    summary.behind = report.behind
    return summary


@contextlib.contextmanager
def _stop_flag(given: StopFlag | None) -> Iterator[StopFlag]:
    """The flag that the caller asks to stop by, or else one that signals ask."""
    if given is not None:
        yield given
        return
    flag = StopFlag()
    with stopping_on_signals(flag.ask):
        yield flag


class _Reports:
    """What is done after each epoch: warnings of what was lost, then what was asked for.

    Attributes:
        behind: how many items waited behind the last epoch, by input and source partition.
    """

    def __init__(self, plan: Plan, on_epoch: EpochReport | None) -> None:
        self._warn_of_drops = DropWarnings()
        self._warn_of_late = LateWarnings(plan)
        self._on_epoch = on_epoch
        self.behind: dict[str, dict[str, int]] = {}

    def __call__(self, epoch: int, stats: Stats, feed: Feed | None) -> None:
        self._warn_of_drops(stats)
        self._warn_of_late(stats)
        if feed is not None:
            self.behind = {step_id: one for step_id, one in feed.behind.items() if one}
        if self._on_epoch is not None:
            self._on_epoch(epoch, stats, feed)


def _batch(
    plan: Plan,
    session: SparkSession,
    drain: bool,
    system_time: SystemTime,
    shards: int | None,
    partitions: int | None,
    report: EpochReport,
) -> Summary:
    from flow.engine.spark.batch import BatchSettings, run_batch

    settings = BatchSettings(drain, system_time, shards, partitions)
    with plainly_interrupted():
        return run_batch(plan, session, settings, lambda epoch, stats: report(epoch, stats, None))


def _chooses_batch(plan: Plan, engine: str, recovery: Recovery | None, trigger: object) -> bool:
    check_choice("engine", engine, ("auto", "batch", "streaming"))
    if engine == "batch" and recovery is not None:
        raise FlowBuildError(
            "the batch engine keeps no state to recover: leave recovery out, or the engine"
        )
    if engine == "auto":
        return recovery is None and trigger is None and _bounded(plan) and not _timed(plan)
    return engine == "batch"


def _bounded(plan: Plan) -> bool:
    return all(_source(plan, name).bounded for name in plan.inputs)


def _timed(plan: Plan) -> bool:
    return any(_source(plan, name).needs_streaming for name in plan.inputs)


def _source(plan: Plan, step_id: str) -> Source[Any]:
    operator = plan.steps[step_id].operator
    if not isinstance(operator, Input):
        raise FlowBuildError(f"step {step_id!r} is not an input")
    return operator.source


def _interval(trigger: object) -> str | None:
    if trigger is None or trigger == "available":
        return None
    micros = duration_us(trigger, "trigger")  # type: ignore[arg-type]
    if micros < 0:
        raise FlowBuildError(f"trigger must not be negative, got {trigger!r}")
    return f"{micros // 1000} milliseconds"
