"""What a run did: counts by step, summed as the epochs go by."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from flow.engine.context import Stats


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
        gauges: how much there was of something in the last epoch, by (step, what): ``keys``.
        stopped: whether it was asked to stop before its input ended.
        aborted: whether a test's ``ABORT`` ended it.
    """

    flow_id: str
    engine: str
    epochs: int = 0
    seconds: float = 0.0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    gauges: Counter[tuple[str, str]] = field(default_factory=Counter)
    stopped: bool = False
    aborted: bool = False

    def add(self, stats: Stats) -> None:
        """Add what an epoch counted."""
        self.epochs += 1
        self.counts.update(stats.counts)
        self.gauges = stats.gauges

    def count(self, step_id: str, what: str) -> int:
        """How often something happened in a step."""
        return self.counts[step_id, what]
