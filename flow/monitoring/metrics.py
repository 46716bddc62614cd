"""The table of metrics: name, type, unit, labels, meaning, and the values in the status of a run.

The exposition at ``/metrics`` is made from `METRICS`, and a test holds the table in
``docs/how_to/monitoring.md`` to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from flow.engine.epoch.statistics import STATISTICS, Statistic
from flow.monitoring.run_status import MAX_PARTITIONS, RunState, RunStatus, capped

_LOSSES = ", ".join(f"`{each.name}`" for each in STATISTICS if each.is_loss and not each.meaning)


Samples: TypeAlias = Mapping[tuple[str, ...], float]
"""The values of a metric, by the values of its labels but the first, ``flow``."""


@dataclass(frozen=True)
class Metric:
    """A metric of a run. Its first label is always ``flow``, the flow's name.

    Attributes:
        name: the name; that of a counter ends in ``_total``, all others are gauges.
        unit: the unit of values.
        labels: the names of the other labels.
        meaning: the meaning, as a row of the documentation and as the help of the exposition.
        samples: returns the values.
    """

    name: str
    unit: str
    labels: tuple[str, ...]
    meaning: str
    samples: Callable[[RunStatus], Samples]

    @property
    def is_counter(self) -> bool:
        """True for a counter, False for a gauge."""
        return self.name.endswith("_total")


def _of_run(
    name: str, unit: str, meaning: str, value: Callable[[RunStatus], float | None]
) -> Metric:
    """Return a metric of the whole run, which has no sample while its value is ``None``."""

    def samples(status: RunStatus) -> Samples:
        found = value(status)
        return {} if found is None else {(): found}

    return Metric(name, unit, (), meaning, samples)


def _of_steps(statistic: Statistic) -> Metric:
    """Return the metric of a counter or a size, of each step that has it."""

    def samples(status: RunStatus) -> Samples:
        found = {
            step_id: step.counts if statistic.is_counter else step.gauges
            for step_id, step in status.steps.items()
        }
        name, scale = statistic.name, statistic.scale
        return {(step_id,): one[name] * scale for step_id, one in found.items() if name in one}

    return Metric(statistic.metric, statistic.unit, ("step",), statistic.meaning, samples)


def _with_metrics(*, counters: bool) -> Iterator[Metric]:
    """Yield the metrics of the counters of steps, or those of sizes."""
    for each in STATISTICS:
        if each.meaning and each.is_counter is counters:
            yield _of_steps(each)


def _other_counts(status: RunStatus) -> Samples:
    own = {each.name for each in STATISTICS if each.meaning}
    steps = status.steps.items()
    return {
        (of, name): n for of, step in steps for name, n in step.counts.items() if name not in own
    }


def _lags(status: RunStatus) -> Samples:
    lags = {step_id: step.lag for step_id, step in status.steps.items() if step.lag is not None}
    names = ("least", "median", "greatest")
    return {(of, name): getattr(lag, name) for of, lag in lags.items() for name in names}


def _last_phases(status: RunStatus) -> Samples:
    phases = status.history[-1].phases if status.history else {}
    return {(phase,): seconds for phase, seconds in phases.items()}


def _bounds(status: RunStatus) -> Samples:
    steps = status.steps.items()
    return {(of, step.held_by): step.held_at for of, step in steps if step.held_at is not None}


def _behind(status: RunStatus) -> Samples:
    behind = {step_id: capped(counts) for step_id, counts in status.behind.items()}
    return {(of, name): count for of, counts in behind.items() for name, count in counts.items()}


METRICS = (
    Metric(
        *("flow_run_state", "0 or 1", ("state",)),
        "1 for the state of the run: starting, running, ended, stopped or failed",
        lambda status: {(state.value,): float(status.state is state) for state in RunState},
    ),
    _of_run(
        *("flow_start_time_seconds", "seconds since 1970", "start of the run"),
        lambda status: status.started_at,
    ),
    _of_run(
        *("flow_last_commit_time_seconds", "seconds since 1970", "commit of the last epoch"),
        lambda status: status.last_commit_at,
    ),
    _of_run(
        *("flow_epochs_total", "epochs", "epochs that the run has committed"),
        lambda status: status.epochs,
    ),
    Metric(
        *("flow_epoch_phase_seconds_total", "seconds", ("phase",)),
        "duration of a phase, summed over epochs",
        lambda status: {(phase,): seconds for phase, seconds in status.phase_seconds.items()},
    ),
    Metric(
        *("flow_last_epoch_phase_seconds", "seconds", ("phase",)),
        "duration of a phase of the last epoch",
        _last_phases,
    ),
    *_with_metrics(counters=True),
    Metric(
        *("flow_step_other_items_total", "items", ("step", "name")),
        f"further counters: reasons of dropped and late values ({_LOSSES}), `retries` of calls, "
        "and items on further streams",
        _other_counts,
    ),
    Metric(
        *("flow_step_busy_seconds_total", "seconds", ("step",)),
        "time that workers have worked in a step, summed over workers",
        lambda status: {(name,): step.busy_seconds for name, step in status.steps.items()},
    ),
    *_with_metrics(counters=False),
    Metric(
        *("flow_step_watermark_lag_seconds", "seconds", ("step", "over_keys")),
        "lag of watermarks behind system time, `least`, `median` and `greatest` of the keys that "
        "the last epoch with values touched",
        _lags,
    ),
    Metric(
        *("flow_step_bound_seconds", "seconds", ("step", "set_by")),
        "event time since 1970 that a step's watermarks may reach, where another step or a source "
        "partition that is behind holds them",
        _bounds,
    ),
    Metric(
        *("flow_source_behind_items", "items", ("step", "partition")),
        f"items of a source partition not read yet; at most {MAX_PARTITIONS} partitions of an "
        "input have a label, the others are `other`",
        _behind,
    ),
    Metric(
        *("flow_source_behind_seconds", "seconds", ("step",)),
        "distance in time from the newest data, of an input that is behind or counts its unread "
        "items",
        lambda status: {(name,): one.seconds for name, one in status.backlogs.items()},
    ),
    _of_run(
        *("flow_workers", "processes", "Python workers that took part in the last epoch"),
        lambda status: len(status.workers),
    ),
    _of_run(
        *("flow_workers_memory_bytes", "bytes", "memory of these workers"),
        lambda status: sum(status.workers.values()),
    ),
)
"""The metrics in the order of the table."""
