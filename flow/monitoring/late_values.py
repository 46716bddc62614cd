"""The late values of a run by step: the wait that they needed, and the newest of them."""

from __future__ import annotations

from collections import Counter

from flow.engine.epoch.context import LateSource
from flow.engine.epoch.late_items import MAX_ITEMS, LateItem
from flow.engine.epoch.summary import EpochReport
from flow.reports.loss_warnings import wait_advice


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
        self._lateness: dict[str, Counter[int]] = {}
        self._sources: dict[str, Counter[LateSource]] = {}

    def add(self, report: EpochReport) -> None:
        """Add the late values of an epoch."""
        for (step_id, late_by_us), count in report.lateness.items():
            self._lateness.setdefault(step_id, Counter())[late_by_us] += count
        for source, count in report.late_sources.items():
            self._sources.setdefault(source.step_id, Counter())[source] += count
        for step_id in {step_id for step_id, _ in report.lateness}:
            clause = wait_advice(self._lateness[step_id], self._sources.get(step_id))
            self.advice[step_id] = clause.removeprefix(": ")
        for item in report.late_items:
            before = self.items.get(item.step_id, ())
            self.items[item.step_id] = (*before, item)[-MAX_ITEMS:]
