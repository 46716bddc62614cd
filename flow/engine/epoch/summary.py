"""The reports of epochs and of a run: counts by step, late values, and the lag of watermarks.

A step counts late values by lateness, rounded up to two digits to bound the number of counters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from flow.connectors.source import Planner
from flow.dataflow import Dataflow
from flow.displays import NotebookObject
from flow.engine.epoch.statistics import LateItem, LateSource, SourcePartition, Stats, StepBound
from flow.operators.edges import Input


class WatermarkLag(NamedTuple):
    """The lag of a step's watermarks behind system time, in seconds, rounded up to two digits.

    Only keys that the epoch touched count: those with values, and those whose windows closed. The
    lag has the wait of the clock, and the delay of the data.

    Attributes:
        least: the least lag of a key; 0 for a watermark that is ahead of system time.
        median: the median lag.
        greatest: the greatest lag.
        keys: the number of keys.
    """

    least: float
    median: float
    greatest: float
    keys: int


def watermark_lags(lags: Mapping[tuple[str, int], int]) -> dict[str, WatermarkLag]:
    """Return the lag of each step.

    Args:
        lags: the number of keys, by (step, lag in µs).

    >>> watermark_lags({("hourly", 1_000_000): 2, ("hourly", 5_000_000): 1})
    {'hourly': WatermarkLag(least=1.0, median=1.0, greatest=5.0, keys=3)}
    """
    by_step: dict[str, Counter[int]] = {}
    for (step_id, lag_us), count in lags.items():
        by_step.setdefault(step_id, Counter())[lag_us] += count
    return {step_id: _lag(counts) for step_id, counts in by_step.items()}


def _lag(counts: Counter[int]) -> WatermarkLag:
    keys = counts.total()
    passed, median_us = 0, 0
    for lag_us, count in sorted(counts.items()):
        passed += count
        if 2 * passed >= keys:
            median_us = lag_us
            break
    return WatermarkLag(min(counts) / 1e6, median_us / 1e6, max(counts) / 1e6, keys)


@dataclass(frozen=True)
class EpochReport:
    """The report of one epoch, which ``run(flow, on_epoch=...)`` calls a function with.

    Attributes:
        epoch: the epoch's number; a replayed epoch keeps its number.
        counts: counters of the epoch, by (step, name); see `Summary.counts`.
        gauges: sizes at the end of the epoch, by (step, name); see `Summary.gauges`.
        system_time: the epoch's system time; ``None`` for a batch.
        end_of_input: True if the epoch drains the flow.
        lag: the distance of each input from the newest data, in words, for inputs that know it.
        behind: the number of items not read yet, by input and source partition, for inputs that
            know it.
        behind_by: the distance in time of each input that has data left to read, in seconds: all
            data that had arrived by then has been read.
        phases: the duration of each phase of the epoch in seconds, in order: ``waiting``,
            ``planning``, ``starting``, ``reading``, ``steps``, ``sinks``, ``spark``, ``commit``.
            The sum of ``reading``, ``steps``, ``sinks`` and ``spark`` is the duration of Spark's
            job, see ``flow.engine.spark.epochs``.
        busy: the time that workers worked in each step, in seconds, summed over workers; a keyed
            step's time has that of its state, an input's that of its source.
        lags: the lag of watermarks behind system time, by step; of the keys that the epoch touched.
        workers: the memory of each Python worker that took part, in bytes, by worker.
        bounds: the bound of the watermarks of each step that other steps, or source partitions that
            are behind, hold at the end of the epoch.
        lateness: the number of late values, by (step, lateness in microseconds, rounded up).
        late_sources: the number of late values by origin, where several source partitions feed a
            step.
        late_items: a sample of the late values of each step, in a run with ``web_values=True``.

    Example:
        >>> report = EpochReport(3, counts=Counter({("in", "out"): 20}))
        >>> report.count("in", "out"), report.count("in", "invalid")
        (20, 0)
    """

    epoch: int
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    gauges: Counter[tuple[str, str]] = field(default_factory=Counter)
    system_time: datetime | None = None
    end_of_input: bool = False
    lag: Mapping[str, str] = field(default_factory=dict)
    behind: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    behind_by: Mapping[str, float] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    busy: Mapping[str, float] = field(default_factory=dict)
    lags: Mapping[str, WatermarkLag] = field(default_factory=dict)
    workers: Mapping[str, int] = field(default_factory=dict)
    bounds: Mapping[str, StepBound] = field(default_factory=dict)
    lateness: Mapping[tuple[str, int], int] = field(default_factory=dict)
    late_sources: Mapping[LateSource, int] = field(default_factory=dict)
    late_items: Sequence[LateItem] = ()

    def count(self, step_id: str, name: str) -> int:
        """Return a counter of a step, 0 if it has counted nothing."""
        return self.counts[step_id, name]


@dataclass
class Summary(NotebookObject):
    """The summary of a run, which `run` returns; a notebook shows it as a table.

    Attributes:
        flow_id: the flow's name.
        engine: the name of the engine.
        epochs: the number of epochs.
        seconds: the duration of the run.
        counts: counters, by (step, name): ``in`` and ``out`` items, ``filtered``, ``late``,
            ``gap``, ``dropped``, ``invalid``, ``errors``.
        gauges: sizes at the end of the last epoch, by (step, name): ``keys``, ``state_bytes``;
            ``open_windows`` and ``buffered_values``, of steps with windows or values that wait;
            ``apart_us``, the distance in event time of the source partitions that feed a step, in
            microseconds, where some hold its watermarks.
        stopped: True if the run was asked to stop before its input ended.
        aborted: True if a test's ``ABORT`` ended the run.
        behind: the number of items not read yet after the last epoch, by input and source
            partition, for inputs that know it, such as topics of Kafka.
        lateness: the number of late values, by (step, lateness in microseconds, rounded up).
        late_sources: the number of late values by origin, where several source partitions feed a
            step.
        step_ids: the steps of the flow, in flow order.
        inputs: the inputs among them.
    """

    flow_id: str
    engine: str
    epochs: int = 0
    seconds: float = 0.0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    gauges: Counter[tuple[str, str]] = field(default_factory=Counter)
    stopped: bool = False
    aborted: bool = False
    behind: dict[str, dict[str, int]] = field(default_factory=dict)
    lateness: Counter[tuple[str, int]] = field(default_factory=Counter)
    late_sources: Counter[LateSource] = field(default_factory=Counter)
    step_ids: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()

    def describe(self, flow: Dataflow) -> None:
        """Set the steps and the inputs to those of the flow."""
        self.step_ids = tuple(step.step_id for step in flow.steps)
        self.inputs = tuple(one.step_id for one in flow.steps if isinstance(one.operator, Input))

    def steps_shown(self) -> tuple[str, ...]:
        """Return the steps of the flow; if the summary has none, the steps with counts, sorted."""
        return self.step_ids or tuple(sorted({step_id for step_id, _ in self.counts}))

    def add(self, stats: Stats) -> None:
        """Add the statistics of an epoch; called by the engines."""
        self.epochs += 1
        self.counts.update(stats.counts)
        self.gauges = stats.gauges
        self.lateness.update(stats.lateness)
        self.late_sources.update(stats.late_sources)

    def late_by_us(self, step_id: str) -> dict[int, int]:
        """Return the number of late values of a step by lateness, in microseconds."""
        return {us: count for (name, us), count in self.lateness.items() if name == step_id}

    def late_from(self, step_id: str) -> dict[LateSource, int]:
        """Return the number of late values of a step by origin."""
        return {one: count for one, count in self.late_sources.items() if one.step_id == step_id}

    def count(self, step_id: str, name: str) -> int:
        """Return a counter of a step, 0 if it has counted nothing."""
        return self.counts[step_id, name]


def late_sources(
    stats: Stats,
    feeds: Mapping[str, Sequence[str]],
    reached_us: Mapping[SourcePartition, int],
    name_of: Callable[[SourcePartition], str],
) -> Counter[LateSource]:
    """Return the number of late values of an epoch by step and source partition.

    Args:
        stats: the statistics of the epoch.
        feeds: the inputs that feed each step.
        reached_us: the progress of each source partition in event time, in µs.
        name_of: returns the name of a source partition.
    """
    counts = Counter[LateSource]()
    for (step_id, partition), count in stats.late_from.items():
        feeding = {one: us for one, us in reached_us.items() if one[0] in feeds[step_id]}
        ahead = max(feeding, key=feeding.__getitem__, default=partition)
        counts[LateSource(step_id, name_of(partition), name_of(ahead))] += count
    return counts


def source_name(planners: Mapping[str, Planner], partition: SourcePartition) -> str:
    """Return the name of a source partition for messages, with the input that reads it.

    Args:
        planners: the planners of the inputs, by step.
        partition: the input and the partition's number.
    """
    step_id, number = partition
    planner = planners.get(step_id)
    name = f"partition {number}" if planner is None else planner.name_of(number)
    return f"{name} (input {step_id!r})"
