"""What a run did: counts by step, summed as the epochs go by."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from flow.engine.epoch.context import LateSource, Stats


@dataclass
class Summary:
    """What a run of a flow did.

    Attributes:
        flow_id: the flow's name.
        engine: which engine ran it.
        epochs: how many epochs it ran.
        seconds: how long it took.
        counts: how often something happened, by (step, what): ``in`` and ``out`` items,
            ``filtered``, ``late``, ``gap``, ``dropped``, ``invalid``, ``errors``.
        gauges: how much there was of something in the last epoch, by (step, what): ``keys``,
            ``state_bytes``, and ``apart_us``, how far the source partitions that feed a step are
            apart in event time, in microseconds, where some hold its watermarks.
        stopped: whether it was asked to stop before its input ended.
        aborted: whether a test's ``ABORT`` ended it.
        behind: how many items waited behind the last epoch, by input and source partition, for
            inputs that know it, such as topics of Kafka.
        lateness: how many values were late, by (step, late by how many microseconds, rounded up).
        late_sources: how many values were late, by where they came from, where several source
            partitions feed a step.
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

    def add(self, stats: Stats) -> None:
        """Add what an epoch counted."""
        self.epochs += 1
        self.counts.update(stats.counts)
        self.gauges = stats.gauges
        self.lateness.update(stats.lateness)
        self.late_sources.update(stats.late_sources)

    def late_by_us(self, step_id: str) -> dict[int, int]:
        """Return how many values of a step were late by each duration, in microseconds."""
        return {us: count for (name, us), count in self.lateness.items() if name == step_id}

    def late_from(self, step_id: str) -> dict[LateSource, int]:
        """Return how many values of a step were late, by where they came from."""
        return {one: count for one, count in self.late_sources.items() if one.step_id == step_id}

    def count(self, step_id: str, what: str) -> int:
        """How often something happened in a step."""
        return self.counts[step_id, what]
