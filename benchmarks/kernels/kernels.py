"""The kernels, by name: pieces of an epoch's work on columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

import flow.operators as op
import flow_windowing as win
from benchmarks.kafka_job import amounts, order
from benchmarks.kernels.data import FEW_KEYS, ROWS, START_US, Events
from flow import Dataflow, KeyedStream
from flow.columns.arrays import Ints, running_max
from flow.columns.chunks import KeyedRecords
from flow.connectors.kafka.deserializers import FlatJsonColumns
from flow.engine.packets.packets import Packet, encode_keyed
from flow.engine.packets.shards import hash_keys, segment_of
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.plan import Edge
from flow.engine.progress.meter import Meter, Partition
from flow.engine.state.store import pack, unpack
from flow.engine.steps.gathering import gather_rows
from flow.instants import Moment
from flow.keyed.shard_logic import SegmentDump, ShardEpoch, ShardLogic, ShardRows
from flow.keyed.step import OverColumns, Stateful
from flow.testing import TestingSink, TestingSource
from flow_windowing import (
    CalendarWindower,
    Count,
    CountDistinct,
    CountWindower,
    Earliest,
    EventClock,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    Quantile,
    SessionWindower,
    SlidingWindower,
    Sum,
    TopK,
    TumblingWindower,
)
from flow_windowing.columnar.aggregates.sums import group_totals
from flow_windowing.rules.triggers import Emit
from flow_windowing.windowers.windower import Windower

Work: TypeAlias = Callable[[], object]
"""The work of a kernel, without arguments. It may run once, since it changes its data."""

SHARDS, SEGMENTS, ORIGINS = 32, 64, 4
MINUTE_US = 60_000_000
FIVE_MINUTES_US, FOUR_DAYS_US = 5 * MINUTE_US, 4 * 24 * 60 * MINUTE_US
# With constant system time only events close windows, and no event is late.
NOW = Moment(START_US)
ASKED = ShardEpoch(NOW, end_of_input=False, wanted=frozenset({0}))
MANY = Events(ROWS, FIVE_MINUTES_US)
KEYS = (("1k", FEW_KEYS), ("20k", ROWS))
"""The numbers of keys, each with its suffix in the names of kernels."""


@dataclass(frozen=True)
class Kernel:
    """A piece of work on columns.

    Attributes:
        name: the kernel's name.
        prepare: prepares the data, and returns the work, which may run once.
        rows: the number of rows, or keys, of the work.
    """

    name: str
    prepare: Callable[[], Work]
    rows: int = ROWS


NUMBERS: Mapping[str, Any] = {
    "count": Count(),
    "total": Sum("amount"),
    "mean": Mean("amount"),
    "least": Min("amount"),
    "most": Max("amount"),
}
PICKED: Mapping[str, Any] = {
    "different": CountDistinct("amount"),
    "often": TopK("amount", 3),
    "median": Quantile("amount", 0.5),
}
EDGES: Mapping[str, Any] = {
    "first": First("amount"),
    "last": Last("amount"),
    "earliest": Earliest("amount"),
    "latest": Latest("amount"),
}


@dataclass(frozen=True)
class WindowStep:
    """A windowing step, to run as an engine does.

    Attributes:
        edge: the edge that the step reads.
        operator: the step's operator.
    """

    edge: Edge
    operator: Stateful

    @classmethod
    def of(
        cls,
        clock: EventClock[Any],
        windower: Windower[Any],
        figures: Mapping[str, Any] = NUMBERS,
        emit: Emit = "close",
    ) -> WindowStep:
        """Return the step with this clock, windower, aggregates and `emit`."""
        flow = Dataflow("kernels")
        events: TestingSource[Any] = TestingSource([])
        keyed = op.key_on("key", op.input("in", flow, events), "user")
        out = win.aggregate_window("windows", keyed, clock, windower, emit=emit, **figures)
        op.output("out", out.down, TestingSink([]))
        return cls._of(flow)

    @classmethod
    def folding(cls) -> WindowStep:
        """Return a step that folds pairs of a time and an amount by a Python function."""
        flow = Dataflow("kernels")
        pairs: KeyedStream[tuple[Any, float]] = op.input("in", flow, TestingSource([]))
        clock: EventClock[Any] = EventClock(itemgetter(0), "10s")
        minutes = TumblingWindower("1m")
        out = win.fold_window("windows", pairs, clock, minutes, float, _added, float.__add__)
        op.output("out", out.down, TestingSink([]))
        return cls._of(flow)

    @classmethod
    def _of(cls, flow: Dataflow) -> WindowStep:
        """Return the windowing step of a flow."""
        plan = compile_flow(flow)
        operator = plan.steps["windows"].operator
        if not isinstance(operator, Stateful):
            raise TypeError("the step does not run on columns, so that there is no kernel")
        (edge,) = plan.edges_into("windows")
        return cls(edge, operator)

    def logic(self) -> ShardLogic:
        """Return the logic of an empty shard."""
        lowering = self.operator.lower()
        if not isinstance(lowering, OverColumns):
            raise TypeError(f"the step does not run over columns: {lowering.reason}")
        return lowering.shard_logic()


def _added(total: float, pair: tuple[Any, float]) -> float:
    """Return the fold of a total and a value: the folder."""
    return total + pair[1]


CLOCK: EventClock[Any] = EventClock("ts", "10s")
TUMBLING = WindowStep.of(CLOCK, TumblingWindower("1m"))
FOLDING = WindowStep.folding()
WINDOWS: dict[str, tuple[Windower[Any], int]] = {
    "tumbling": (TumblingWindower("1m"), FIVE_MINUTES_US),
    "sliding": (SlidingWindower("1m", "20s"), FIVE_MINUTES_US),
    "session": (SessionWindower("10s"), FIVE_MINUTES_US),
    "count": (CountWindower(2), FIVE_MINUTES_US),
    "calendar": (CalendarWindower("day", "Europe/Paris"), FOUR_DAYS_US),
}
"""Windowers, each with the event time of an epoch in which some windows close and others stay."""
OVERLAPPING = (FEW_KEYS, FIVE_MINUTES_US)
"""Keys, and the event time of an epoch whose windows have enough values to be made of tiles."""


def all_kernels() -> dict[str, Kernel]:
    """Return the kernels, by name."""
    return {one.name: one for one in _kernels()}


def _kernels() -> Iterator[Kernel]:
    yield Kernel("hash-keys", _hash_keys)
    for called, keys in KEYS:
        events = Events(keys, FIVE_MINUTES_US)
        yield Kernel(f"pack-records-{called}", partial(_pack_records, events))
        yield Kernel(f"gather-rows-{called}", partial(_gather_rows, events))
        yield Kernel(f"running-max-{called}", partial(_running_max, events))
        yield Kernel(f"exact-sums-{called}", partial(_exact_sums, events))
    for name, (windower, epoch_us) in WINDOWS.items():
        for called, keys in KEYS:
            events = Events(keys, epoch_us)
            step = partial(WindowStep.of, CLOCK, windower)
            yield Kernel(f"{name}-windows-{called}", partial(_windows, events, step))
    overlapping = partial(WindowStep.of, CLOCK, SlidingWindower("10m", "10s"))
    yield Kernel("overlapping-windows-1k", partial(_windows, Events(*OVERLAPPING), overlapping))
    for called, keys in KEYS:
        events, minutes = Events(keys, FIVE_MINUTES_US), TumblingWindower("1m")
        edges = partial(WindowStep.of, CLOCK, minutes, EDGES)
        yield Kernel(f"tumbling-edges-{called}", partial(_windows, events, edges))
        updates = partial(WindowStep.of, CLOCK, minutes, NUMBERS, "update")
        yield Kernel(f"tumbling-updates-{called}", partial(_windows, events, updates))
        picked = partial(WindowStep.of, CLOCK, minutes, PICKED)
        yield Kernel(f"tumbling-picked-{called}", partial(_windows, events, picked))
        gap = SessionWindower("10s")
        for emit in ("epoch", "update"):
            emitting = partial(WindowStep.of, CLOCK, gap, NUMBERS, emit)
            yield Kernel(f"session-{emit}s-{called}", partial(_windows, events, emitting))
    for called, keys in KEYS:
        events = Events(keys, FIVE_MINUTES_US)
        yield Kernel(f"pack-objects-{called}", partial(_pack_objects, events))
        yield Kernel(f"fold-windows-{called}", partial(_folds, events))
    yield Kernel("dump-objects", _dump_objects)
    yield Kernel("dump-segments", _dump_segments)
    yield Kernel("load-segments", _load_segments)
    yield Kernel("pack-segments", _pack_segments)
    yield Kernel("unpack-segments", _unpack_segments)
    yield Kernel("stamp-records", _stamp_records)
    yield Kernel("read-json", _read_json)


def _hash_keys() -> Work:
    return partial(hash_keys, MANY.epoch(0).keys)


def _pack_records(events: Events) -> Work:
    chunk = events.epoch(0)
    return lambda: list(encode_keyed(chunk, SHARDS, TUMBLING.edge))


def _gather_rows(events: Events) -> Work:
    return partial(gather_rows, (TUMBLING.edge,), _packets(events.epoch(0)))


def _running_max(events: Events) -> Work:
    """Return the work of watermarks without the clock: the running maximum of each key's times."""
    rows = _arrived(events, 0)
    times_us = _column(rows, "ts").cast(pa.int64()).to_numpy()[rows.order]
    return partial(running_max, times_us, np.repeat(np.arange(len(rows.counts)), rows.counts))


def _exact_sums(events: Events) -> Work:
    rows = _arrived(events, 0)
    amounts = _column(rows, "amount").to_numpy()[rows.order]
    # If each key has one row, groups of two rows stand for keys: a sum of one number is no work.
    counts = rows.counts if len(rows.counts) < ROWS else np.full(ROWS // 2, 2)
    return partial(group_totals, amounts, np.cumsum(counts) - counts)


def _windows(events: Events, step: Callable[[], WindowStep]) -> Work:
    """Return the work of an epoch, with windows that the epoch before has left open."""
    logic = step().logic()
    logic.run(_arrived(events, 0), ASKED)
    return partial(logic.run, _arrived(events, 1), ASKED)


def _pack_objects(events: Events) -> Work:
    chunk = events.objects(0)
    return lambda: list(encode_keyed(chunk, SHARDS, FOLDING.edge))


def _folds(events: Events) -> Work:
    """Return the same work over objects, some of which are buffered."""
    logic = FOLDING.logic()
    logic.run(_arrived_objects(events, 0), ASKED)
    return partial(logic.run, _arrived_objects(events, 1), ASKED)


def _dump_objects() -> Work:
    """Return the work of writing windows over objects, and buffered objects."""
    logic = FOLDING.logic()
    logic.run(_arrived_objects(MANY, 0), ASKED)
    return partial(logic.dump, segment_of(hash_keys(logic.keys()), SEGMENTS), list(range(SEGMENTS)))


def _dump_segments() -> Work:
    logic, numbers = _held()
    return partial(logic.dump, numbers, list(range(SEGMENTS)))


def _load_segments() -> Work:
    contents, logic = _segments(), TUMBLING.logic()

    def load() -> pa.Array:
        for content in contents:
            logic.load(content)
        # The logic combines the loaded segments at the first access.
        return logic.keys()

    return load


def _pack_segments() -> Work:
    contents = _segments()
    return lambda: [pack(content) for content in contents]


def _unpack_segments() -> Work:
    packed = [pack(content) for content in _segments()]
    return lambda: [unpack(content) for content in packed]


def _stamp_records() -> Work:
    """Return the work of measuring progress for a step whose clock has ``scope="stream"``."""
    of_stream = replace(CLOCK, scope="stream")
    step = WindowStep.of(of_stream, TumblingWindower("1m"))
    progress = step.operator.capabilities.progress
    if progress is None:
        raise TypeError(f"{of_stream!r} measures no progress")
    meter = Meter(step.edge, progress, Partition("in", 0), NOW, in_columns=True)
    return partial(meter.stamp, MANY.epoch(0))


def _read_json() -> Work:
    """Return the work of reading one field of seven, of the messages of `benchmarks/kafka.py`."""
    values = [order(*one).encode() for one in amounts(ROWS)[:ROWS]]
    return partial(FlatJsonColumns(pa.schema({"amount": pa.int64()})).column, values)


def _packets(chunk: KeyedRecords) -> list[Packet]:
    """Return an epoch's events as the packets of one shard from several splits."""
    size = len(chunk) // ORIGINS
    return [
        Packet(TUMBLING.edge.dest, 0, origin, origin, payload)
        for origin in range(ORIGINS)
        for _, payload in encode_keyed(_part(chunk, origin * size, size), 1, TUMBLING.edge)
    ]


def _part(chunk: KeyedRecords, start: int, count: int) -> KeyedRecords:
    pos = chunk.pos[start : start + count]
    return KeyedRecords(chunk.keys.slice(start, count), chunk.batch.slice(start, count), pos)


@cache
def _arrived(events: Events, epoch: int) -> ShardRows:
    """Return an epoch's events as the rows of a shard; steps do not change them."""
    rows = gather_rows((TUMBLING.edge,), _packets(events.epoch(epoch)))
    if rows is None:
        raise ValueError("an epoch has no rows")
    return rows


@cache
def _arrived_objects(events: Events, epoch: int) -> ShardRows:
    """Return an epoch's events as the rows of a shard, as Python objects."""
    packets = [
        Packet(FOLDING.edge.dest, 0, 0, 0, payload)
        for _, payload in encode_keyed(events.objects(epoch), 1, FOLDING.edge)
    ]
    rows = gather_rows((FOLDING.edge,), packets)
    if rows is None:
        raise ValueError("an epoch has no rows")
    return rows


def _column(rows: ShardRows, name: str) -> pa.Array:
    if isinstance(rows.values, list):
        raise TypeError("the rows have come as objects")
    return rows.values.column(name)


def _held() -> tuple[ShardLogic, Ints]:
    """Return the state of `ROWS` keys with open windows, and the segment of each key."""
    logic = TUMBLING.logic()
    logic.run(_arrived(MANY, 0), ASKED)
    return logic, segment_of(hash_keys(logic.keys()), SEGMENTS)


@cache
def _segments() -> list[bytes]:
    logic, numbers = _held()
    dumped: list[SegmentDump] = logic.dump(numbers, list(range(SEGMENTS)))
    return [one.content for one in dumped if one.content is not None]
