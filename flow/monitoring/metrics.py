"""The table of metrics: name, type, unit, labels, meaning, and the values in the status of a run.

The exposition at ``/metrics`` and the table in ``docs/how_to/monitoring.md`` are made from
`METRICS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from flow.engine.epoch.context import BUFFERED_VALUES, OPEN_WINDOWS
from flow.monitoring.status import MAX_PARTITIONS, RunState, RunStatus, capped

_ITEMS = ("in", "out", "late", "filtered")


class Sample(NamedTuple):
    """A value of a metric, with the values of its labels but the first, ``flow``."""

    labels: tuple[str, ...]
    value: float


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
    samples: Callable[[RunStatus], Iterable[Sample]]

    @property
    def is_counter(self) -> bool:
        """True for a counter, False for a gauge."""
        return self.name.endswith("_total")

    def row(self) -> str:
        """Return the row of the metric in the table of the documentation."""
        kind = "counter" if self.is_counter else "gauge"
        labels = ", ".join(f"`{label}`" for label in self.labels)
        cells = (f"`{self.name}`", kind, self.unit, labels, self.meaning)
        return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _of_run(
    name: str, unit: str, meaning: str, value: Callable[[RunStatus], float | None]
) -> Metric:
    """Return a metric of the whole run, which has no sample while its value is ``None``."""

    def samples(status: RunStatus) -> Iterator[Sample]:
        found = value(status)
        if found is not None:
            yield Sample((), found)

    return Metric(name, unit, (), meaning, samples)


def _items(counter: str, meaning: str) -> Metric:
    """Return a counter of the items of each step that has counted some."""

    def samples(status: RunStatus) -> Iterator[Sample]:
        for step_id, step in status.steps.items():
            if counter in step.counts:
                yield Sample((step_id,), step.counts[counter])

    return Metric(f"flow_step_{counter}_items_total", "items", ("step",), meaning, samples)


def _size(gauge: str, unit: str, meaning: str) -> Metric:
    """Return a size of the state of each step that has such a gauge."""
    return Metric(f"flow_step_{gauge}", unit, ("step",), meaning, partial(_gauges, gauge))


def _gauges(name: str, status: RunStatus, scale: float = 1) -> Iterator[Sample]:
    for step_id, step in status.steps.items():
        if name in step.gauges:
            yield Sample((step_id,), step.gauges[name] * scale)


def _other_counts(status: RunStatus) -> Iterator[Sample]:
    for step_id, step in status.steps.items():
        for name, count in step.counts.items():
            if name not in _ITEMS:
                yield Sample((step_id, name), count)


def _busy(status: RunStatus) -> Iterator[Sample]:
    """Yield the busy time of each step."""
    for step_id, step in status.steps.items():
        yield Sample((step_id,), step.busy_seconds)


def _lags(status: RunStatus) -> Iterator[Sample]:
    for step_id, step in status.steps.items():
        if step.lag is not None:
            for name in ("least", "median", "greatest"):
                yield Sample((step_id, name), getattr(step.lag, name))


def _bounds(status: RunStatus) -> Iterator[Sample]:
    for step_id, step in status.steps.items():
        if step.held_at is not None:
            yield Sample((step_id, step.held_by), step.held_at)


def _behind(status: RunStatus) -> Iterator[Sample]:
    for step_id, counts in status.behind.items():
        for partition, count in capped(counts).items():
            yield Sample((step_id, partition), count)


def _phases(status: RunStatus) -> Iterator[Sample]:
    for phase, seconds in status.phase_seconds.items():
        yield Sample((phase,), seconds)


def _last_phases(status: RunStatus) -> Iterator[Sample]:
    if status.history:
        for phase, seconds in status.history[-1].phases.items():
            yield Sample((phase,), seconds)


def _state(status: RunStatus) -> Iterator[Sample]:
    for state in RunState:
        yield Sample((state.value,), float(status.state is state))


METRICS = (
    Metric(
        *("flow_run_state", "0 or 1", ("state",)),
        "1 for the state of the run: starting, running, ended, stopped or failed",
        _state,
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
        _phases,
    ),
    Metric(
        *("flow_last_epoch_phase_seconds", "seconds", ("phase",)),
        "duration of a phase of the last epoch",
        _last_phases,
    ),
    _items("in", "items that a step has read"),
    _items(
        "out", "items that a step has emitted on its first stream; all streams of a stateless step"
    ),
    _items("late", "late values of a step, those too far ahead and in gaps included"),
    _items("filtered", "items that a filter has removed"),
    Metric(
        *("flow_step_other_items_total", "items", ("step", "name")),
        "further counters: reasons of dropped and late values (`dropped`, `invalid`, `errors`, "
        "`gap`), `retries` of calls, and items on further streams",
        _other_counts,
    ),
    Metric(
        *("flow_step_busy_seconds_total", "seconds", ("step",)),
        "time that workers have worked in a step, summed over workers",
        _busy,
    ),
    _size("keys", "keys", "keys with state, after the last epoch"),
    _size("state_bytes", "bytes", "size of the state, after the last epoch"),
    _size(
        *(OPEN_WINDOWS, "windows"),
        "open windows of a step with windows, after the last epoch; 0 for a join by time",
    ),
    _size(
        *(BUFFERED_VALUES, "values"),
        "values that wait for the watermark, or that a join by time retains, after the last epoch",
    ),
    Metric(
        *("flow_step_partitions_apart_seconds", "seconds", ("step",)),
        "distance in event time of the source partitions that feed a step, where some hold its "
        "watermarks",
        partial(_gauges, "apart_us", scale=1e-6),
    ),
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

HEADING = "| metric | type | unit | labels | meaning |\n|---|---|---|---|---|"


def table() -> str:
    """Return the table of the documentation, as Markdown."""
    return "\n".join([HEADING, *(metric.row() for metric in METRICS)])
