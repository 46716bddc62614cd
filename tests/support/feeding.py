"""Runs of a flow with its own sources in this process: the feed plans, the local engine runs."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import flow.operators as op
from flow import Dataflow
from flow.connectors.source import Invalid, Planner
from flow.engine.epoch.statistics import Stats
from flow.engine.feed.clocks import EpochClocks, SystemTime
from flow.engine.feed.feed import Feed, FeedSettings
from flow.engine.feed.offsets import EpochOffset
from flow.engine.feed.run_tables import Tables
from flow.engine.feed.slices import InputSlices
from flow.engine.local import LocalEngine, Part
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.plan import Plan
from flow.engine.steps.reading import source_of
from tests.support.clock import Clock
from tests.support.one_stream import a_flow
from tests.support.reading_files import JsonLog


def feed_of(
    planners: Mapping[str, Planner],
    system_time: SystemTime,
    *,
    monotonic: SystemTime | None = None,
    plan: Plan | None = None,
    state_names: Mapping[str, str] | None = None,
    check: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> Feed:
    """Return a feed, by default of a flow that merges the inputs.

    Args:
        planners: the planner of each input.
        system_time: the wall clock.
        monotonic: the monotonic clock; by default the wall clock.
        plan: the compiled flow.
        state_names: names of inputs in offsets, by step.
        check: called before sources are asked.
        settings: fields of `FeedSettings`.
    """
    plan = plan or compile_flow(a_flow(partial(op.merge, "merge"), *planners))
    plan = replace(plan, state_names=state_names or {})
    slices, clocks = InputSlices(plan, planners), EpochClocks(system_time, monotonic)
    return Feed(slices, clocks, Tables.of(plan), FeedSettings(**settings), check)


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
        return feed_of(planners, lambda: int(self.seconds() * 1e6), plan=plan, **self._options)

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
        result.stats.add(self._feed.finish_epoch(result.stats).stats)
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
