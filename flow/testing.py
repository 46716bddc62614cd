"""Testing flows: `TestDriver` runs one without Spark, and sources and sinks for runs with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa
from typing_extensions import override

import flow.operators as op
from flow.checks import check_whole
from flow.columns.chunks import rows_as_dicts
from flow.connectors.sink import Guarantee, Sink, WriteContext, Written
from flow.connectors.source import (
    Batch,
    Invalid,
    Json,
    MemoryLog,
    Planner,
    Slice,
    Source,
    SourceLog,
    Split,
)
from flow.dataflow import Dataflow, Stream
from flow.durations import Duration, duration_us
from flow.engine.epoch.context import Control, ReadUpTo, SourcePartition, Stats
from flow.engine.feed.feed import plan_everything
from flow.engine.local import DEFAULT_SHARDS, EpochResult, LocalEngine, Part
from flow.errors import FlowBuildError, FlowTypeError, shorten
from flow.instants import Instant, Moment, instant_us
from flow.keyed.step import Stateful, key_by_key

X = TypeVar("X")


class TestDriver:
    """Runs a flow in this process, epoch by epoch, with system time in the test's hands.

    Sources and sinks are left aside: items are sent to inputs, and received from outputs.

    Args:
        flow: the flow to run.
        now: the system time at the start.
        shards: how many slices the key space has.

    Example:
        >>> import flow.operators as op
        >>> flow = Dataflow("example")
        >>> s = op.input("in", flow, TestingSource([]))
        >>> op.output("out", op.map("double", s, lambda x: 2 * x), TestingSink([]))
        >>> with TestDriver(flow) as t:
        ...     t.send("in", [1, 2])
        ...     t.received("out")
        [2, 4]
    """

    __test__ = False

    def __init__(
        self,
        flow: Dataflow,
        now: Instant = "1970-01-01T00:00:00Z",
        shards: int = DEFAULT_SHARDS,
    ) -> None:
        self._engine = LocalEngine(flow, shards)
        self._now_us = instant_us(now)
        self._downtime_us = 0
        self._clocks: dict[str, int] = {}
        self._behind: frozenset[SourcePartition] = frozenset()
        self._lagged: frozenset[str] = frozenset()
        self._many: frozenset[str] = frozenset()
        self._received: dict[str, list[Any]] = {
            edge.step_id: [] for edge in self._engine.plan.outputs
        }
        self.stats = Stats()

    def __enter__(self) -> TestDriver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def send(
        self,
        step_id: str,
        items: Iterable[Any] | pa.RecordBatch,
        *,
        after: Duration = "0s",
        behind: bool = False,
    ) -> None:
        """Run an epoch in which one input reads these items.

        Args:
            step_id: the input.
            items: what it reads.
            after: how much system time has passed while the items waited to be read, as in a slow
                epoch or an outage.
            behind: whether more is known to be there that the epoch does not read.
        """
        self.send_all({step_id: items}, after=after, behind=behind)

    def send_all(
        self,
        items: Mapping[str, Iterable[Any] | pa.RecordBatch],
        *,
        after: Duration = "0s",
        behind: bool | Collection[str] = False,
    ) -> None:
        """Run an epoch in which several inputs read items, each as one source partition.

        Args:
            items: what each input reads.
            after: how much system time has passed while the items waited to be read.
            behind: the inputs of which more is known to be there, ``True`` for all that are sent
                to. They stay behind until something, or nothing, is sent to them without it.

        Raises:
            FlowBuildError: when `behind` names what is not an input of the flow.
        """
        parts = {name: [Part(_listed(one))] for name, one in items.items()}
        self.send_parts(parts, after=after, behind=behind)

    def send_parts(
        self,
        parts: Mapping[str, Iterable[Part]],
        *,
        after: Duration = "0s",
        behind: bool | Collection[str | SourcePartition] = False,
    ) -> None:
        """Run an epoch in which inputs read several source partitions each; as `send_all`.

        Args:
            parts: what each input reads.
            after: how much system time has passed while the items waited to be read.
            behind: the inputs, or pairs of an input and a partition's number, of which more is
                known to be there; ``True`` for all that are sent to. Of an input that is named
                and not sent to, the first partition is meant.

        Raises:
            FlowBuildError: when `behind` names what is not an input of the flow.
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
        waited_us = _passed_us("after", after)
        self._now_us += waited_us
        self._epoch(sent, end_of_input=False, waited=sent if waited_us else ())

    def _check_behind(self, behind: Collection[str | SourcePartition]) -> None:
        inputs = self._engine.plan.inputs
        names = {one[0] if isinstance(one, tuple) else one for one in behind}
        if isinstance(behind, str) or not names <= set(inputs):
            raise FlowBuildError(
                f"behind must be True or a list of inputs, among {shorten(list(inputs))}; "
                f"got {shorten(behind)}"
            )

    def advance(self, duration: Duration) -> None:
        """Move system time forward and run an epoch without items.

        Raises:
            FlowBuildError: when the duration is negative.
        """
        self._now_us += _passed_us("advance", duration)
        self._epoch({}, end_of_input=False)

    def end(self) -> None:
        """End the input and drain the flow: every window closes, every final step emits."""
        self._behind = frozenset()
        self._epoch({}, end_of_input=True)

    def restart(self, after: Duration = "0s") -> None:
        """Go on as a run that was stopped and started again would: state stays, time was lost."""
        micros = duration_us(after)
        self._now_us += micros
        self._downtime_us += micros

    def received(self, step_id: str) -> list[Any]:
        """All that an output has received so far.

        Raises:
            FlowBuildError: when the flow has no such output.
        """
        if step_id not in self._received:
            known = ", ".join(repr(name) for name in self._received)
            raise FlowBuildError(f"the flow has no output {step_id!r}; its outputs are: {known}")
        return self._received[step_id]

    def _epoch(
        self,
        parts: Mapping[str, list[Part]],
        end_of_input: bool,
        waited: Collection[str] = (),
    ) -> None:
        control = self._control(parts, end_of_input, waited)
        result: EpochResult = self._engine.epoch(parts, control)
        self._clocks = {name: clock.after_us for name, clock in control.read.items()}
        for step_id, items in result.outputs.items():
            self._received[step_id] += items
        self.stats.counts.update(result.stats.counts)
        self.stats.gauges = result.stats.gauges
        self.stats.due_us = result.stats.due_us
        self.stats.dues = result.stats.dues
        self.stats.reached = result.stats.reached
        self.stats.lateness.update(result.stats.lateness)
        self.stats.late_from.update(result.stats.late_from)

    def _control(
        self, parts: Mapping[str, list[Part]], end_of_input: bool, waited: Collection[str]
    ) -> Control:
        """Return the control of an epoch; what `waited` had arrived before system time moved."""
        plan, moment = self._engine.plan, Moment(self._now_us, self._downtime_us)
        lagging = {name for name, _ in self._behind}
        clocks = {}
        for name in plan.inputs:
            before_us = self._clocks.get(name, moment.running_us)
            if name not in waited and name not in self._lagged:
                before_us = moment.running_us
            after_us = before_us if name in lagging else moment.running_us
            clocks[name] = ReadUpTo(before_us, after_us)
        self._lagged = frozenset(lagging)
        read = {(name, part.partition) for name, found in parts.items() for part in found}
        self._many |= {name for name, number in read | self._behind if number}
        sources = None
        if plan.tells_sources(self._many):
            sources = plan.sources_of(read)
        return Control(moment, end_of_input, clocks, self._behind, self._many, sources)


def _passed_us(what: str, duration: Duration) -> int:
    micros = duration_us(duration)
    if micros < 0:
        raise FlowBuildError(f"system time never goes back, got {what}({duration!r})")
    return micros


def _listed(items: Iterable[Any] | pa.RecordBatch) -> list[Any] | pa.RecordBatch:
    return items if isinstance(items, pa.RecordBatch) else list(items)


def run_once(items: Iterable[Any], build: Callable[[Stream[Any]], Stream[Any]]) -> list[Any]:
    """Run a few operators over some items, without Spark, and return what comes out at the end.

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


def swap_clock(flow: Dataflow, step_id: str, clock: object) -> Dataflow:
    """Copy a flow with another clock in the place of a windowing step's own.

    Args:
        flow: the flow, which stays as it is.
        step_id: the step whose clock to swap.
        clock: the clock to put there, such as ``SystemClock()``.

    Raises:
        FlowBuildError: when the flow has no such step, or the step has no clock.
        FlowTypeError: when `clock` is not a clock.

    Example:
        >>> import flow.operators as op, flow_windowing as win
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


def run_source(source: Source[X]) -> list[X]:
    """Read a bounded source to its end, as an engine would, and return its items.

    Raises:
        SourceError: when something cannot be read, whatever `on_invalid` says.
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
    return [item for split in splits for batch in source.read(split) for item in _plain(batch)]


def _plain(batch: Batch) -> list[Any]:
    if isinstance(batch, Invalid):
        return list(batch.inputs)
    return rows_as_dicts(batch) if isinstance(batch, pa.RecordBatch) else batch


@dataclass(frozen=True)
class Advance:
    """Among a `TestingSource`'s items: move system time forward; what follows is a new epoch."""

    duration: Duration

    def __post_init__(self) -> None:
        if duration_us(self.duration) < 0:
            raise FlowBuildError(f"system time never goes back, got Advance({self.duration!r})")


@dataclass(frozen=True)
class EOF:
    """Among a `TestingSource`'s items: the input ends here; the next run goes on after it."""


class ABORT:
    """Among a `TestingSource`'s items: the run dies here, once, as if the process were killed.

    The epoch that the items before it belong to is not committed: the next run does it again.
    """

    def __init__(self) -> None:
        self.fired = False

    def __repr__(self) -> str:
        return "ABORT()"


_SIGNS = (Advance, EOF, ABORT)


@dataclass(frozen=True)
class TestingSource(Source[X]):
    """A source that reads items from a list, for tests on Spark.

    Args:
        items: the items; `Advance`, `EOF` and `ABORT` among them steer the run.
        batch_size: how many items an epoch reads.
    """

    __test__ = False

    items: Sequence[X | Advance | EOF | ABORT]
    batch_size: int = 1_000

    def __post_init__(self) -> None:
        items: object = self.items
        if not isinstance(items, Sequence):
            raise FlowTypeError(f"TestingSource needs a list of items, got {shorten(items)}")
        check_whole("TestingSource: batch_size", self.batch_size, 1)

    @property
    @override
    def needs_streaming(self) -> bool:
        return any(isinstance(item, (Advance, ABORT)) for item in self.items)

    @override
    def planner(self, log: SourceLog, parallelism: int) -> Planner:
        return _TestingPlanner(self.items, self.batch_size)

    @override
    def read(self, split: Split) -> Iterator[Batch]:
        start, end = split.what
        yield [item for item in self.items[start:end] if not isinstance(item, _SIGNS)]


class _TestingPlanner(Planner):
    """Plans a `TestingSource`: the offset is the index of the next item."""

    def __init__(self, items: Sequence[Any], batch_size: int) -> None:
        self._items = items
        self._batch_size = batch_size
        self._ended = False

    def finished(self, start: Json | None) -> bool:
        return self._ended or (start or 0) >= len(self._items)

    def next(self, start: Json | None) -> Slice | None:
        if self.finished(start):
            return None
        first = at = start or 0
        advance_us, taken = 0, 0
        while at < len(self._items) and taken < self._batch_size:
            item = self._items[at]
            if isinstance(item, Advance) and at > first:
                break
            at += 1
            if isinstance(item, Advance):
                advance_us = duration_us(item.duration)
            elif isinstance(item, EOF):
                self._ended = True
                break
            elif isinstance(item, ABORT):
                if not item.fired:
                    item.fired = True
                    return Slice(at, [Split([first, at])], advance_us, True, self._behind(at))
            else:
                taken += 1
        behind = () if self._ended else self._behind(at)
        return Slice(at, [Split([first, at])] if taken else [], advance_us, behind=behind)

    def _behind(self, at: int) -> tuple[int, ...]:
        """Return the partition if an item waits: what follows an `Advance` comes later."""
        waits = at < len(self._items) and not isinstance(self._items[at], Advance)
        return (0,) if waits else ()


class TestingSink(Sink[X]):
    """A sink that appends what it gets to a list, each epoch once as long as the process lives.

    Args:
        items: the list.
    """

    __test__ = False
    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self, items: list[X]) -> None:
        self.items = items
        self._run_id = ""
        self._committed: set[tuple[str, int]] = set()

    def __repr__(self) -> str:
        return "TestingSink([...])"

    def __getstate__(self) -> dict[str, Any]:
        """What travels to workers: nothing, they only hand items on."""
        return {"items": [], "_run_id": "", "_committed": set()}

    @override
    def open(self, run_id: str, resuming: bool) -> None:
        self._run_id = run_id

    @override
    def write(self, context: WriteContext, batches: Iterator[Written]) -> list[Any]:
        return [item for batch in batches for item in _plain(batch)]

    @override
    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        if (self._run_id, epoch) not in self._committed:
            self._committed.add((self._run_id, epoch))
            for message in messages:
                self.items.extend(message)


__all__ = [
    "ABORT",
    "EOF",
    "Advance",
    "Part",
    "TestDriver",
    "TestingSink",
    "TestingSource",
    "key_by_key",
    "run_once",
    "run_source",
    "swap_clock",
]
