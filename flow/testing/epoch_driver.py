"""`TestDriver`: a flow run in the test's process, epoch by epoch, without Spark; and short runs."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa

import flow.operators as op
from flow.checks import check_items, check_whole, wrong_type
from flow.columns.arrow_types import RecordBatch
from flow.connectors.sink import WriteContext
from flow.connectors.source import MemoryLog, Source
from flow.dataflow import Dataflow, Stream
from flow.durations import Duration, duration_us
from flow.engine.epoch.context import Control, ReadUpTo
from flow.engine.epoch.failures import with_brief_errors
from flow.engine.epoch.seen_fields import missing_fields
from flow.engine.epoch.statistics import SourcePartition, Stats, merge_seen
from flow.engine.feed.slices import plan_everything
from flow.engine.local import LocalEngine, Part
from flow.engine.packets.shards import DEFAULT_SHARDS
from flow.engine.plan.plan import Plan
from flow.engine.plan.portability import check_portable
from flow.engine.steps.outputs import sink_of
from flow.errors import FlowBuildError, FlowTypeError, StepError, shorten
from flow.instants import NEVER, Instant, Moment, from_us, instant_us
from flow.keyed.step import LogicBuilder, Stateful
from flow.testing.lists import TestingSink, TestingSource, items_of
from flow.views.queries import View
from flow.views.view_sink import ViewRun, ViewSink, ViewWriter
from flow.views.views_file import Ask, opened_for_writing


def swap_clock(flow: Dataflow, step_id: str, clock: object) -> Dataflow:
    """Return a copy of a flow in which one windowing step has another clock.

    Args:
        flow: the flow, which does not change.
        step_id: the windowing step.
        clock: the new clock, such as ``SystemClock()``.

    Raises:
        FlowBuildError: when the flow has no such step, or the step has no clock.
        FlowTypeError: when `clock` is not a clock.

    Example:
        >>> import flow.operators as op, flow_windowing as win
        >>> from flow.testing import TestDriver, TestingSink, TestingSource
        >>> flow = Dataflow("example")
        >>> s = op.input("in", flow, TestingSource([]))
        >>> hours, clock = win.TumblingWindower("1h"), win.SystemClock()
        >>> op.output("out", win.collect_window("hourly", s, clock, hours).down, TestingSink([]))
        >>> event_time = win.EventClock(lambda seconds: seconds, "0s")
        >>> with TestDriver(swap_clock(flow, "hourly", event_time)) as t:
        ...     t.send("in", [("k", 5), ("k", 3600)])
        ...     [values for _, (_, values) in t.received("out")]
        [[5]]
    """
    operator = flow.step(step_id).operator
    builder: Any = getattr(operator, "builder", None)
    if not isinstance(operator, Stateful) or not hasattr(builder, "clock"):
        raise FlowBuildError(
            f"step {step_id!r} has no clock: swap_clock is for windowing steps, "
            "such as those of win.aggregate_window"
        )
    try:
        swapped = replace(builder, clock=clock)
    except FlowTypeError as error:
        raise FlowTypeError(f"step {step_id!r}: {error}") from None
    return flow.with_operator(step_id, replace(operator, builder=swapped))


_RUN_ID = "test"


class DriverViews:
    """The views of outputs with a `ViewSink`, written by the code that runs on Spark use too.

    Args:
        plan: the compiled flow.
    """

    def __init__(self, plan: Plan) -> None:
        self._epoch = 0
        sinks = {edge.step_id: sink_of(plan, edge) for edge in plan.outputs}
        self._sinks = {name: sink for name, sink in sinks.items() if isinstance(sink, ViewSink)}
        if self._sinks:
            self._database = opened_for_writing(":memory:")
            weakref.finalize(self, self._database.close)
        self._writers = {
            name: ViewWriter(
                self._database, name, sink.by, sink.kept(), ViewRun(plan.flow_id, _RUN_ID, name)
            )
            for name, sink in self._sinks.items()
        }
        for writer in self._writers.values():
            writer.open()

    def commit(self, outputs: Mapping[str, list[Any]]) -> None:
        """Write an epoch's items to the views."""
        for name, writer in self._writers.items():
            context = WriteContext(name, self._epoch, 0, _RUN_ID)
            rows = self._sinks[name].write(context, iter([outputs.get(name, [])]))
            writer.commit(self._epoch, rows)
        self._epoch += 1

    def view(self, name: str) -> View:
        """Return a view.

        Raises:
            FlowBuildError: when the flow has no such view.
        """
        if name not in self._sinks:
            known = ", ".join(map(repr, self._sinks)) or "none"
            raise FlowBuildError(f"the flow has no view {name!r}; outputs with ViewSink: {known}")
        return View(name, self._sinks[name].by, self._reading)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Ask]:
        yield self._database.execute


class TestDriver:
    """A run of a flow in the test's process, epoch by epoch; the test sets system time.

    The driver uses no sources and sinks: the test sends items to inputs, and receives the items of
    outputs. It keeps the view of an output with a `ViewSink` in memory. A function that changes an
    item that it was given fails its epoch with a `StepError`.

    Args:
        flow: the flow to run.
        now: the system time at the start.
        shards: the number of shards of the key space.

    Raises:
        FlowBuildError: if a step could not be sent to Spark's workers, for example as its function
            uses a lock.

    Example:
        >>> import flow.operators as op
        >>> from flow.testing import TestDriver, TestingSink, TestingSource
        >>> flow = Dataflow("example")
        >>> s = op.input("in", flow, TestingSource([]))
        >>> op.output("out", op.map("double", s, lambda x: 2 * x), TestingSink([]))
        >>> t = TestDriver(flow)
        >>> t.send("in", [1, 2])
        >>> t.take("out")
        [2, 4]
    """

    __test__ = False

    def __init__(
        self,
        flow: Dataflow,
        now: Instant = "1970-01-01T00:00:00Z",
        shards: int = DEFAULT_SHARDS,
    ) -> None:
        check_whole("TestDriver: shards", shards, 1)
        if not isinstance(flow, Dataflow):
            raise wrong_type("TestDriver needs a Dataflow", flow)
        self._engine = LocalEngine(flow, shards)
        check_portable(self._engine.plan.for_workers().steps, with_ends=False)
        self._now_us = instant_us(now)
        self._downtime_us = 0
        self._clocks: dict[str, int] = {}
        self._behind: frozenset[SourcePartition] = frozenset()
        self._lagged: frozenset[str] = frozenset()
        self._with_partitions: frozenset[str] = frozenset()
        self._received: dict[str, list[Any]] = {
            edge.step_id: [] for edge in self._engine.plan.outputs
        }
        self._last = Control(Moment(self._now_us))
        self._views = DriverViews(self._engine.plan)
        self.stats = Stats()

    def __enter__(self) -> TestDriver:
        """Return the driver; leaving the block closes the resources of `map_async` steps."""
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()

    @with_brief_errors
    def send(
        self,
        step_id: str,
        items: Iterable[Any] | RecordBatch,
        *,
        after: Duration = "0s",
        behind: bool = False,
    ) -> None:
        """Run an epoch in which one input reads these items.

        Args:
            step_id: the input.
            items: the items that the input reads.
            after: the system time that passes before the items are read, as in a slow epoch or an
                outage.
            behind: True if the input has more items, which the epoch does not read.
        """
        self.send_all({step_id: items}, after=after, behind=behind)

    @with_brief_errors
    def send_all(
        self,
        items: Mapping[str, Iterable[Any] | RecordBatch],
        *,
        after: Duration = "0s",
        behind: bool | Collection[str] = False,
    ) -> None:
        """Run an epoch in which several inputs read items, each as one source partition.

        Args:
            items: the items that each input reads.
            after: the system time that passes before the items are read.
            behind: the inputs that have more items, which the epoch does not read; ``True`` for
                all inputs in `items`. An input stays behind until a later epoch sends items, or an
                empty list, without `behind`.

        Raises:
            FlowBuildError: if `behind` names a step that is not an input of the flow.
            FlowTypeError: if the items of an input are a dict or a text, which is one item.
        """
        parts = {name: [Part(_listed(name, one))] for name, one in items.items()}
        self.send_parts(parts, after=after, behind=behind)

    @with_brief_errors
    def send_parts(
        self,
        parts: Mapping[str, Iterable[Part]],
        *,
        after: Duration = "0s",
        behind: bool | Collection[str | SourcePartition] = False,
    ) -> None:
        """Run an epoch in which inputs read several source partitions each; compare `send_all`.

        Args:
            parts: the source partitions that each input reads.
            after: the system time that passes before the items are read.
            behind: the inputs, or pairs of an input and a partition's number, that have more
                items; ``True`` for all inputs in `parts`. An input's name stands for the
                partitions in `parts`, or for partition 0 of an input that is not in `parts`.

        Raises:
            FlowBuildError: if `behind` names a step that is not an input of the flow.
        """
        sent = {name: list(found) for name, found in parts.items()}
        named = (list(sent) if behind else []) if isinstance(behind, bool) else behind
        self._check_behind(named)
        self._behind = frozenset(
            {one for one in self._behind if one[0] not in sent}
            | {one for one in named if isinstance(one, tuple)}
            | {
                (name, part.partition)
                for name in named
                if isinstance(name, str)
                for part in sent.get(name, [Part(())])
            }
        )
        wait_us = _passed_us("after", after)
        self._now_us += wait_us
        self._epoch(sent, end_of_input=False, waiting=sent if wait_us else ())

    def _check_behind(self, behind: Collection[str | SourcePartition]) -> None:
        """Raise a `FlowBuildError` unless `behind` names only inputs of the flow."""
        inputs = self._engine.plan.sources
        names = {one[0] if isinstance(one, tuple) else one for one in behind}
        if isinstance(behind, str) or not names <= set(inputs):
            raise FlowBuildError(
                f"behind must be True or a list of inputs, among {shorten(list(inputs))}; "
                f"got {shorten(behind)}"
            )

    @with_brief_errors
    def advance(self, duration: Duration) -> None:
        """Move system time forward and run an epoch without items.

        Raises:
            FlowBuildError: if the duration is negative.
        """
        self._now_us += _passed_us("advance", duration)
        self._epoch({}, end_of_input=False)

    @with_brief_errors
    def end(self) -> None:
        """End the input and drain the flow: every window closes, every final step emits.

        Raises:
            StepError: if a step names a field that no record it has read has, and that no
                ``missing=`` of an aggregate expects to be missing.
        """
        self._behind = frozenset()
        self._epoch({}, end_of_input=True)
        for step_id, problem in missing_fields(self.stats.seen):
            raise StepError(step_id, problem)

    def restart(self, after: Duration = "0s") -> None:
        """Continue as if in a new run: state is restored, and the time `after` is downtime.

        Raises:
            FlowBuildError: if the duration is negative.
        """
        micros = _passed_us("restart", after)
        self._now_us += micros
        self._downtime_us += micros

    def received(self, step_id: str) -> list[Any]:
        """Return all items that an output has received so far.

        Raises:
            FlowBuildError: if the flow has no such output.
        """
        return list(self._received_by(step_id))

    def take(self, step_id: str) -> list[Any]:
        """Return the items that an output has received since the last `take`, and remove them.

        Raises:
            FlowBuildError: if the flow has no such output.
        """
        items = self._received_by(step_id)
        taken = list(items)
        items.clear()
        return taken

    def view(self, step_id: str) -> View:
        """Return the view of an output with a `ViewSink`; each epoch of the test is committed.

        Raises:
            FlowBuildError: if the flow has no such view.
        """
        return self._views.view(step_id)

    def late(self, step_id: str) -> int:
        """Return the number of late values of a windowing step so far.

        Raises:
            EngineError: if the step is not a keyed step.
        """
        self._engine.plan.keyed(step_id)
        return self.stats.counts[step_id, "late"]

    def state(self, step_id: str, key: str) -> Any:
        """Return the state of a key; ``None`` for a key without state.

        For a windowing step, the state is a dict of the key's watermark, its open windows with the
        value of each so far, and its buffered values. For a step with another logic, it is the
        logic's snapshot.

        Raises:
            EngineError: if the step is not a keyed step.
        """
        snapshot, moment = self._engine.snapshot(step_id, key, self._last)
        builder = self._engine.plan.keyed(step_id).builder
        if snapshot is None or not isinstance(builder, LogicBuilder):
            return snapshot
        return builder.view(snapshot, moment)

    def watermark(self, step_id: str, key: str) -> datetime | None:
        """Return the watermark of a key of a windowing step; ``None`` before the first value.

        Raises:
            EngineError: if the step is not a keyed step.
        """
        snapshot, moment = self._engine.snapshot(step_id, key, self._last)
        builder = self._engine.plan.keyed(step_id).builder
        return builder.watermark(snapshot, moment) if isinstance(builder, LogicBuilder) else None

    def hold(self, step_id: str) -> datetime | None:
        """Return the hold of a step: the least timestamp that a result of it may still have.

        The steps in event time that read its results do not call a value late by a later watermark.
        ``None`` for a step that holds no other.

        Raises:
            EngineError: if the step is not a keyed step.
        """
        hold_us = self._engine.hold_us(step_id)
        return None if hold_us >= NEVER else from_us(hold_us)

    def _received_by(self, step_id: str) -> list[Any]:
        """Return the driver's list of the items of an output, which `take` empties.

        Raises:
            FlowBuildError: if the flow has no such output.
        """
        if step_id not in self._received:
            known = ", ".join(repr(name) for name in self._received)
            raise FlowBuildError(f"the flow has no output {step_id!r}; its outputs are: {known}")
        return self._received[step_id]

    def _epoch(
        self,
        parts: Mapping[str, list[Part]],
        end_of_input: bool,
        waiting: Collection[str] = (),
    ) -> None:
        control = self._last = self._control(parts, end_of_input, waiting)
        result = self._engine.epoch(parts, control)
        self._clocks = {name: clock.after_us for name, clock in control.read.items()}
        for step_id, items in result.outputs.items():
            self._received[step_id] += items
        self._views.commit(result.outputs)
        before, self.stats = self.stats, result.stats
        self.stats.counts.update(before.counts)
        self.stats.lateness.update(before.lateness)
        self.stats.late_from.update(before.late_from)
        merge_seen(self.stats.seen, before.seen)

    def _control(
        self, parts: Mapping[str, list[Part]], end_of_input: bool, waiting: Collection[str]
    ) -> Control:
        """Return an epoch's control. The items of `waiting` arrived before system time moved."""
        plan, moment = self._engine.plan, Moment(self._now_us, self._downtime_us)
        # Watermarks do not wait for the changes of tables.
        behind = frozenset(one for one in self._behind if one[0] in plan.inputs)
        lagging = {name for name, _ in behind}
        clocks = {}
        for name in plan.inputs:
            before_us = self._clocks.get(name, moment.running_us)
            if name not in waiting and name not in self._lagged:
                before_us = moment.running_us
            after_us = before_us if name in lagging else moment.running_us
            clocks[name] = ReadUpTo(before_us, after_us)
        self._lagged = frozenset(lagging)
        read = {(name, part.partition) for name, found in parts.items() for part in found}
        self._with_partitions |= {name for name, number in read | self._behind if number}
        sources = None
        if plan.has_source_numbers(self._with_partitions):
            sources = plan.sources_of(read)
        return Control(
            moment,
            end_of_input,
            clocks,
            behind,
            self._with_partitions,
            sources,
            self._last.number + 1,
        )


def _passed_us(what: str, duration: Duration) -> int:
    """Return the time by which system time advances, in µs; `what` names it in errors.

    Raises:
        FlowBuildError: if the duration is negative.
    """
    micros = duration_us(duration)
    if micros < 0:
        raise FlowBuildError(
            f"system time never goes back: {what} must not be negative, got {duration!r}"
        )
    return micros


def _listed(step_id: str, items: Iterable[Any] | pa.RecordBatch) -> list[Any] | pa.RecordBatch:
    if isinstance(items, pa.RecordBatch):
        return items
    check_items(f"TestDriver: what input {step_id!r} reads", items)
    return list(items)


X = TypeVar("X")


def run_once(items: Iterable[Any], build: Callable[[Stream[Any]], Stream[Any]]) -> list[Any]:
    """Run a few operators over items without Spark, and return the items of the last stream.

    >>> import flow.operators as op
    >>> run_once([1, 2], lambda s: op.map("double", s, lambda x: x * 2))
    [2, 4]
    """
    flow = Dataflow("once")
    op.output("out", build(op.input("in", flow, TestingSource(()))), TestingSink([]))
    with TestDriver(flow) as driver:
        driver.send("in", items)
        driver.end()
        return driver.received("out")


def run_source(source: Source[X]) -> list[X]:
    """Read a bounded source to its end, as an engine would, and return its items.

    Raises:
        SourceError: if an input cannot be read, also with ``on_invalid="drop"``.
    """
    planner = source.planner(MemoryLog(), parallelism=2)
    try:
        slices = plan_everything({"source": planner})["source"]
    finally:
        planner.close()
    splits = [
        split
        for one in slices
        for split in sorted(one.splits, key=lambda split: (split.partition, split.order))
    ]
    return [item for split in splits for batch in source.read(split) for item in items_of(batch)]
