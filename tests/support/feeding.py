"""Runs of a flow with its own sources in this process: the feed plans, the local engine runs."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from typing import Any

from flow import Dataflow
from flow.connectors.source import Invalid
from flow.engine.epoch.context import Stats
from flow.engine.feed.feed import Feed
from flow.engine.feed.offsets import EpochOffset
from flow.engine.local import LocalEngine, Part
from flow.engine.steps.reading import source_of
from tests.support.clock import Clock
from tests.support.reading_files import JsonLog


class FedRun:
    """A flow that is run epoch by epoch, and can be killed before each commit.

    Attributes:
        outputs: the items of each output, of committed epochs.
        stats: the statistics of all committed epochs.
        offset: the offset of the last committed epoch.
        seconds: system time, in seconds.
    """

    def __init__(self, flow: Dataflow, **options: Any) -> None:
        self.seconds = Clock(now=0.0)
        self.outputs: dict[str, list[Any]] = {}
        self.stats = Stats()
        self.offset = EpochOffset()
        self._engine = LocalEngine(flow, shards=2)
        self._options = options
        self._logs: Mapping[str, JsonLog] = {name: JsonLog() for name in self._engine.plan.inputs}
        self._uncommitted: EpochOffset | None = None
        self._feed = self._new_feed()

    def _new_feed(self) -> Feed:
        plan = self._engine.plan
        planners = {
            name: source_of(plan.steps[name]).planner(self._logs[name], parallelism=2)
            for name in plan.inputs
        }
        return Feed(planners, lambda: int(self.seconds() * 1e6), plan=plan, **self._options)

    def kill(self) -> None:
        """Plan an epoch and forget its results, as a crash does; the log and the state stay."""
        planned = self._feed.next(self.offset)
        if planned != self.offset:
            self._uncommitted = EpochOffset.from_json(json.loads(json.dumps(planned.to_json())))
        self._feed = self._new_feed()

    def epoch(self) -> bool:
        """Run and commit the next epoch, or the one that was interrupted; False without one."""
        planned = self._uncommitted or self._feed.next(self.offset)
        self._uncommitted = None
        if planned == self.offset:
            return False
        self._feed.last = planned
        assert planned.control is not None
        parts: dict[str, list[Part]] = {}
        for step_id, split in sorted(
            planned.read, key=lambda one: (one[1].partition, one[1].order)
        ):
            source = pickle.loads(pickle.dumps(source_of(self._engine.plan.steps[step_id])))
            for batch in source.read(split):
                assert not isinstance(batch, Invalid)
                parts.setdefault(step_id, []).append(Part(batch, split.partition))
        result = self._engine.epoch(parts, planned.control)
        self._feed.note(result.stats)
        self.stats.add(result.stats)
        for name, items in result.outputs.items():
            self.outputs.setdefault(name, []).extend(items)
        self.offset = EpochOffset.from_json(json.loads(json.dumps(planned.to_json())))
        return True

    def run(self, most: int = 1_000) -> None:
        """Run epochs until there is none."""
        for _ in range(most):
            if not self.epoch():
                return
        raise AssertionError(f"more than {most} epochs")
