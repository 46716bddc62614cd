"""The table of metrics: name, type, unit, labels, meaning, and the values in the status of a run.

The exposition at ``/metrics`` and the table in ``docs/how_to/monitoring.md`` are made from
`METRICS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from flow.engine.epoch.context import BUFFERED_VALUES, OPEN_WINDOWS
from flow.monitoring.status import RunState, RunStatus

MAX_PARTITIONS = 50
"""The number of source partitions of an input with samples of their own; the partitions that are
least behind share the label value ``other``."""

_ITEMS = ("in", "out", "late", "filtered")


class Sample(NamedTuple):
    """A value of a metric, with the values of its labels but the first, ``flow``."""

    labels: tuple[str, ...]
    value: float


class MetricType(Enum):
    """The type of a metric, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True)
class Metric:
    """A metric of a run. Its first label is always ``flow``, the flow's name.

    Attributes:
        name: the name; that of a counter ends in ``_total``.
        type: the type.
        unit: the unit of values.
        labels: the names of the other labels.
        meaning: the meaning, as a row of the documentation and as the help of the exposition.
        samples: returns the values.
    """

    name: str
    type: MetricType
    unit: str
    labels: tuple[str, ...]
    meaning: str
    samples: Callable[[RunStatus], Iterable[Sample]]

    def row(self) -> str:
        """Return the row of the metric in the table of the documentation."""
        labels = ", ".join(f"`{label}`" for label in self.labels)
        cells = (f"`{self.name}`", self.type.value, self.unit, labels, self.meaning)
        return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _count(name: str) -> Callable[[RunStatus], Iterator[Sample]]:
    """Return a function that yields a counter of the steps that have counted."""

    def samples(status: RunStatus) -> Iterator[Sample]:
        for step_id, step in status.steps.items():
            if name in step.counts:
                yield Sample((step_id,), step.counts[name])

    return samples


def _gauge(name: str, scale: float = 1) -> Callable[[RunStatus], Iterator[Sample]]:
    def samples(status: RunStatus) -> Iterator[Sample]:
        for step_id, step in status.steps.items():
            if name in step.gauges:
                yield Sample((step_id,), step.gauges[name] * scale)

    return samples


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


def _behind(status: RunStatus) -> Iterator[Sample]:
    for step_id, counts in status.behind.items():
        for partition, count in capped(counts).items():
            yield Sample((step_id, partition), count)


def capped(counts: Mapping[str, int], most: int = MAX_PARTITIONS) -> dict[str, int]:
    """Return the largest counts by name, and the sum of all others as ``other``.

    >>> capped({"a": 1, "b": 5, "c": 2}, 1)
    {'b': 5, 'other': 3}
    """
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    named, others = dict(ordered[:most]), ordered[most:]
    if others:
        named["other"] = named.get("other", 0) + sum(count for _, count in others)
    return named


def _phases(status: RunStatus) -> Iterator[Sample]:
    for phase, seconds in status.phase_seconds.items():
        yield Sample((phase,), seconds)


def _last_phases(status: RunStatus) -> Iterator[Sample]:
    if status.history:
        for phase, seconds in status.history[-1].phases.items():
            yield Sample((phase,), seconds)


def _one(value: Callable[[RunStatus], float | None]) -> Callable[[RunStatus], Iterator[Sample]]:
    """Return the sample of a metric without further labels; none while its value is ``None``."""

    def samples(status: RunStatus) -> Iterator[Sample]:
        found = value(status)
        if found is not None:
            yield Sample((), found)

    return samples


def _state(status: RunStatus) -> Iterator[Sample]:
    for state in RunState:
        yield Sample((state.value,), float(status.state is state))


_COUNTER, _GAUGE = MetricType.COUNTER, MetricType.GAUGE

METRICS = (
    Metric(
        "flow_run_state",
        *(_GAUGE, "0 or 1", ("state",)),
        "1 for the state of the run: starting, running, ended, stopped or failed",
        _state,
    ),
    Metric(
        "flow_start_time_seconds",
        *(_GAUGE, "seconds since 1970", ()),
        "start of the run",
        _one(lambda status: status.started_at),
    ),
    Metric(
        "flow_last_commit_time_seconds",
        *(_GAUGE, "seconds since 1970", ()),
        "commit of the last epoch",
        _one(lambda status: status.last_commit_at),
    ),
    Metric(
        "flow_epochs_total",
        *(_COUNTER, "epochs", ()),
        "epochs that the run has committed",
        _one(lambda status: status.epochs),
    ),
    Metric(
        "flow_epoch_phase_seconds_total",
        *(_COUNTER, "seconds", ("phase",)),
        "duration of a phase, summed over epochs",
        _phases,
    ),
    Metric(
        "flow_last_epoch_phase_seconds",
        *(_GAUGE, "seconds", ("phase",)),
        "duration of a phase of the last epoch",
        _last_phases,
    ),
    Metric(
        "flow_step_in_items_total",
        *(_COUNTER, "items", ("step",)),
        "items that a step has read",
        _count("in"),
    ),
    Metric(
        "flow_step_out_items_total",
        *(_COUNTER, "items", ("step",)),
        "items that a step has emitted on its first stream; all streams of a stateless step",
        _count("out"),
    ),
    Metric(
        "flow_step_late_items_total",
        *(_COUNTER, "items", ("step",)),
        "late values of a step, those too far ahead and in gaps included",
        _count("late"),
    ),
    Metric(
        "flow_step_filtered_items_total",
        *(_COUNTER, "items", ("step",)),
        "items that a filter has removed",
        _count("filtered"),
    ),
    Metric(
        "flow_step_other_items_total",
        *(_COUNTER, "items", ("step", "name")),
        "further counters: reasons of dropped and late values (`dropped`, `invalid`, `errors`, "
        "`gap`), `retries` of calls, and items on further streams",
        _other_counts,
    ),
    Metric(
        "flow_step_busy_seconds_total",
        *(_COUNTER, "seconds", ("step",)),
        "time that workers have worked in a step, summed over workers",
        _busy,
    ),
    Metric(
        "flow_step_keys",
        *(_GAUGE, "keys", ("step",)),
        "keys with state, after the last epoch",
        _gauge("keys"),
    ),
    Metric(
        "flow_step_state_bytes",
        *(_GAUGE, "bytes", ("step",)),
        "size of the state, after the last epoch",
        _gauge("state_bytes"),
    ),
    Metric(
        "flow_step_open_windows",
        *(_GAUGE, "windows", ("step",)),
        "open windows of a step with windows, after the last epoch; 0 for a join by time",
        _gauge(OPEN_WINDOWS),
    ),
    Metric(
        "flow_step_buffered_values",
        *(_GAUGE, "values", ("step",)),
        "values that wait for the watermark, or that a join by time retains, after the last epoch",
        _gauge(BUFFERED_VALUES),
    ),
    Metric(
        "flow_step_partitions_apart_seconds",
        *(_GAUGE, "seconds", ("step",)),
        "distance in event time of the source partitions that feed a step, where some hold its "
        "watermarks",
        _gauge("apart_us", 1e-6),
    ),
    Metric(
        "flow_step_watermark_lag_seconds",
        *(_GAUGE, "seconds", ("step", "over_keys")),
        "lag of watermarks behind system time, `least`, `median` and `greatest` of the keys that "
        "the last epoch with values touched",
        _lags,
    ),
    Metric(
        "flow_source_behind_items",
        *(_GAUGE, "items", ("step", "partition")),
        f"items of a source partition not read yet; at most {MAX_PARTITIONS} partitions of an "
        "input have a label, the others are `other`",
        _behind,
    ),
    Metric(
        "flow_workers",
        *(_GAUGE, "processes", ()),
        "Python workers that took part in the last epoch",
        _one(lambda status: len(status.workers)),
    ),
    Metric(
        "flow_workers_memory_bytes",
        *(_GAUGE, "bytes", ()),
        "memory of these workers",
        _one(lambda status: sum(status.workers.values())),
    ),
)
"""The metrics in the order of the table."""

HEADING = "| metric | type | unit | labels | meaning |\n|---|---|---|---|---|"


def table() -> str:
    """Return the table of the documentation, as Markdown."""
    return "\n".join([HEADING, *(metric.row() for metric in METRICS)])
