"""The recorder: makes the status of a run from the reports of its epochs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from flow.engine.epoch.statistics import MAX_ITEMS, LateItem, StepBound
from flow.engine.epoch.summary import EpochReport, Summary, WatermarkLag
from flow.engine.plan.plan import Plan
from flow.errors import FlowError, StepError, error_message, shorten
from flow.instants import NO_PROGRESS
from flow.monitoring.backlog import Backlogs, Point, with_point
from flow.monitoring.bottleneck import Work, limits_of
from flow.monitoring.run_status import EpochStatus, ErrorStatus, RunState, RunStatus, StepStatus
from flow.reports.failure_text import describe_failure
from flow.reports.loss_warnings import LateTotals
from flow.reports.progress import RateWindow

HISTORY_EPOCHS = 300
"""The number of epochs that a status has."""

_MESSAGE_LENGTH = 4_000

NumberT = TypeVar("NumberT", int, float)


class Recorder:
    """The status of a run, made anew with each report; one thread may report at a time.

    Args:
        plan: the compiled flow.
        engine: the name of the engine.
        trigger_seconds: the trigger's interval; ``None`` without one.
        clock: the machine's clock, in seconds since 1970.

    Attributes:
        status: the newest status.
    """

    def __init__(
        self,
        plan: Plan,
        engine: str,
        trigger_seconds: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._plan = plan
        self._inputs = plan.sources
        self._backlogs = Backlogs(plan)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._busy: dict[str, float] = {}
        self._phases: dict[str, float] = {}
        self._active_at: dict[str, float] = {}
        self._lags: dict[str, WatermarkLag] = {}
        self._late = LateValues()
        started = clock()
        self._samples = RateWindow[Work]()
        self._samples.add(started, Work())
        self.status = RunStatus.starting(plan, engine, started, trigger_seconds)

    def start(self) -> RunStatus:
        """Return the status once Spark is there, and the first epoch may begin."""
        self.status = replace(self.status, state=RunState.RUNNING)
        return self.status

    def add(self, report: EpochReport) -> RunStatus:
        """Return the status after an epoch."""
        now = self._clock()
        self._counts.update(report.counts)
        for step_id, seconds in report.busy.items():
            self._busy[step_id] = self._busy.get(step_id, 0.0) + seconds
        for phase, seconds in report.phases.items():
            self._phases[phase] = self._phases.get(phase, 0.0) + seconds
        self._active_at.update((step_id, now) for (step_id, _), n in report.counts.items() if n)
        self._lags.update(report.lags)
        self._late.add(report)
        total = Work(self._counts.copy(), self._busy.copy(), self._phases.copy())
        since, before = self._samples.add(now, total)
        work = total.since(before)
        steps = self._status_of_steps(report, now, now - since, work)
        status, epoch = self.status, self._epoch(report, now)
        status = replace(
            status,
            state=RunState.RUNNING,
            steps=MappingProxyType(steps),
            epochs=epoch.index,
            last_commit_at=now,
            system_time=None if report.system_time is None else report.system_time.timestamp(),
            lag=report.lag,
            behind=report.behind,
            backlogs=self._backlogs.after(report, self._lags, now),
            workers=report.workers,
            history=(*status.history[-(HISTORY_EPOCHS - 1) :], epoch),
            phase_seconds=dict(self._phases),
        )
        self.status = replace(
            status,
            limits=limits_of(status, self._plan, work, now),
            points=with_point(status.points, self._point(status, report)),
        )
        return self.status

    def end(self, summary: Summary) -> RunStatus:
        """Return the status after the run has returned its summary."""
        state = RunState.STOPPED if summary.stopped or summary.aborted else RunState.ENDED
        return self._over(state)

    def fail(self, error: BaseException, has_checkpoint: bool = False) -> RunStatus:
        """Return the status after the run has raised an error.

        Args:
            error: the error.
            has_checkpoint: True if the next run continues from a checkpoint.
        """
        status = ErrorStatus(self._clock(), _message(error), remedy=_remedy(error, has_checkpoint))
        if isinstance(error, StepError):
            key = None if error.key is None else shorten(error.key)
            status = replace(status, step_id=error.step_id, key=key, item=error.item)
        return self._over(RunState.FAILED, status)

    def _over(self, state: RunState, error: ErrorStatus | None = None) -> RunStatus:
        """Return the status after the run: nothing has a rate any more."""
        steps = {
            step_id: replace(step, rates={}, busy_share=0.0)
            for step_id, step in self.status.steps.items()
        }
        self.status = replace(
            self.status,
            state=state,
            steps=MappingProxyType(steps),
            limits=(),
            ended_at=self._clock(),
            error=error,
        )
        return self.status

    def _epoch(self, report: EpochReport, now: float) -> EpochStatus:
        behind = [sum(counts.values()) for counts in report.behind.values()]
        return EpochStatus(
            self.status.epochs + 1,
            report.epoch,
            now,
            sum(report.count(step_id, "out") for step_id in self._inputs),
            report.phases,
            sum(behind) if behind else None,
        )

    def _point(self, status: RunStatus, report: EpochReport) -> Point:
        behind = status.backlogs.values()
        return Point(
            status.history[-1].committed_at,
            sum(status.steps[name].rates.get("out", 0.0) for name in self._inputs),
            max((lag.greatest for lag in report.lags.values()), default=None),
            status.history[-1].behind,
            max((one.seconds for one in behind), default=0.0),
            sum(size for (_, name), size in report.gauges.items() if name == "state_bytes"),
            sum(seconds for name, seconds in report.phases.items() if name != "waiting"),
        )

    def _status_of_steps(
        self, report: EpochReport, now: float, seconds: float, work: Work
    ) -> dict[str, StepStatus]:
        counts, gauges = _by_step(self._counts), _by_step(report.gauges)
        work = work if seconds > 0 else Work()
        rates = _by_step({name: n / seconds for name, n in work.counts.items()})
        shares = {name: busy / seconds for name, busy in work.busy.items()}
        return {
            step_id: StepStatus(
                counts.get(step_id, {}),
                gauges.get(step_id, {}),
                rates.get(step_id, {}),
                self._busy.get(step_id, 0.0),
                shares.get(step_id, 0.0),
                self._active_at.get(step_id),
                self._lags.get(step_id),
                *self._held(report.bounds.get(step_id), self.status.steps[step_id], now),
                self._late.advice.get(step_id, ""),
                self._late.items.get(step_id, ()),
            )
            for step_id in self.status.steps
        }

    def _held(
        self, bound: StepBound | None, before: StepStatus, now: float
    ) -> tuple[str, float | None, float | None]:
        """Return what holds a step, its bound, and since when the two have been the same."""
        if bound is None:
            return "", None, None
        at = None if bound.bound_us <= NO_PROGRESS else bound.bound_us / 1e6
        is_same = (before.held_by, before.held_at) == (bound.setter, at)
        return bound.setter, at, before.held_since if is_same else now


def _message(error: BaseException) -> str:
    """Return the text of an error, without the step, the key and the item of a call."""
    text = error_message(error)
    if isinstance(error, StepError):
        plain = StepError(error.step_id, error.problem)
        plain.__cause__ = error.__cause__
        text = describe_failure(plain).removeprefix(f"step {error.step_id!r}: ")
    elif isinstance(error, FlowError):
        text = describe_failure(error)
    return text[:_MESSAGE_LENGTH] or type(error).__name__


def _remedy(error: BaseException, has_checkpoint: bool) -> str:
    """Return what to do after an error that ended a run."""
    cause = "Remove the cause and start the run again"
    if isinstance(error, StepError):
        cause = f"Correct step {error.step_id!r}, or the data, and start the run again"
    if has_checkpoint:
        return f"{cause}: it continues after the last commit, and reads what follows once more."
    return f"{cause}: without recovery=RecoveryConfig(...) it reads its inputs from the start."


def _by_step(values: Mapping[tuple[str, str], NumberT]) -> dict[str, dict[str, NumberT]]:
    """Return values by step, and then by name."""
    by_step: dict[str, dict[str, NumberT]] = {}
    for (step_id, name), value in values.items():
        by_step.setdefault(step_id, {})[name] = value
    return by_step


class LateValues:
    """The late values of a run, added epoch by epoch.

    Attributes:
        advice: the longer wait that a step's late values needed, and their main source, as a
            sentence, by step.
        items: the newest late values in the samples of epochs, by step, oldest first.
    """

    def __init__(self) -> None:
        self.advice: dict[str, str] = {}
        self.items: dict[str, tuple[LateItem, ...]] = {}
        self._totals = LateTotals()

    def add(self, report: EpochReport) -> None:
        """Add the late values of an epoch."""
        self._totals.add(report)
        for step_id in {step_id for step_id, _ in report.lateness}:
            self.advice[step_id] = self._totals.advice(step_id).removeprefix(": ")
        for item in report.late_items:
            before = self.items.get(item.step_id, ())
            self.items[item.step_id] = (*before, item)[-MAX_ITEMS:]
