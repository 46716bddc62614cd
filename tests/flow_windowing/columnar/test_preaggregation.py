"""Aggregation of records before the shuffle: the same results as without it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.columns.chunks import as_items
from flow.connectors.files import ParquetSource
from flow.connectors.source import MemoryLog, Source, Split
from flow.engine.epoch.context import Control, Front, first_fronts, fronts_after, fronts_along
from flow.engine.feed.offsets import EpochOffset, Origin
from flow.engine.feed.slices import batch_plan, plan_everything, planners_of
from flow.engine.packets.packets import Packet, has_partials, sorted_chunks
from flow.engine.plan.compiler import compile_flow
from flow.engine.plan.plan import Plan
from flow.engine.steps.level import live_states, run_level
from flow.engine.steps.reading import pipeline_of, read_split
from flow.instants import NEVER, Moment, from_us
from flow.keyed.step import OverColumns, TimeColumn
from flow.testing import TestDriver, TestingSink, TestingSource
from flow_windowing.columnar.step import preaggregation
from flow_windowing.columnar.step.preaggregation import WindowPreaggregation
from tests.support.clock import Clock
from tests.support.feeding import feed_of

START_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
OUTPUTS = ("down", "late", "closed")


def window_flow(source: Source[Any], clock: Any, windower: Any, timestamp: Any = None) -> Dataflow:
    """Return a flow with sums, means and counts of each key and window, and all of its streams."""
    flow = Dataflow("sums")
    keyed = op.key_on("keyed", op.input("in", flow, source), "key")
    out = win.aggregate_window(
        *("w", keyed, clock, windower),
        timestamp=timestamp,
        total=win.Sum("x"),
        mean=win.Mean("x"),
        n=win.Count(),
        some=win.Count(where=pc.field("x") > 2),
    )
    for name in OUTPUTS:
        op.output(name, getattr(out, name), TestingSink([]))
    return flow


def random_flow(random_: random.Random) -> Dataflow:
    """Return a flow with a random clock and windower."""
    wait = random_.choice([timedelta.max, timedelta(), timedelta(seconds=3), timedelta(seconds=30)])
    scope, on_idle = random_.choice(["key", "stream"]), random_.choice(["advance", "hold"])
    clock: Any = win.EventClock("ts", wait, on_idle=on_idle, scope=scope)
    length = timedelta(seconds=random_.choice([10, 60]))
    windowers = [
        win.TumblingWindower(length),
        win.TumblingWindower(length, align_to=from_us(START_US + 1), closed="right"),
        win.SlidingWindower(length, timedelta(seconds=random_.choice([5, 7]))),
        win.CalendarWindower("day", "Europe/Berlin"),
    ]
    clock = random_.choice([clock, clock, clock, win.SystemClock()])
    timestamp = random_.choice([None, "open", "close", "last"])
    return window_flow(TestingSource([]), clock, random_.choice(windowers), timestamp)


def random_rows(random_: random.Random, at_us: int) -> pa.RecordBatch:
    """Return rows that start at a time: in order, but for jitter and some that are far behind."""
    floats = random_.random() < 0.5
    values = [0, 1, 2, 3, 0.25, -0.0, None] if floats else [0, 1, 2, 3, None, 1 << 60]
    times_us = []
    for _ in range(random_.randint(1, 60)):
        at_us += random_.choice([0, 1, 1, 2, 5]) * SECOND_US
        times_us.append(at_us - random_.choice([0, 0, 0, 1, 2, random_.randint(0, 50)]) * SECOND_US)
    columns = {
        "key": pa.array(random_.choices("abcd", k=len(times_us))),
        "ts": pa.array(times_us, pa.timestamp("us", "UTC")),
        "x": pa.array(
            random_.choices(values, k=len(times_us)), pa.float64() if floats else pa.int64()
        ),
    }
    return pa.RecordBatch.from_pydict(columns)


@contextmanager
def preaggregating(fronts_us: dict[str, int]) -> Iterator[list[int]]:
    """Aggregate the records of any epoch, with given fronts; yield the rows that are left out."""
    left: list[int] = []
    split = WindowPreaggregation.split

    def counting(*arguments: Any) -> Any:
        found = split(*arguments)
        left.extend([] if found is None else [len(found[0])])
        return found

    def with_fronts(*arguments: Any) -> Any:
        pipeline = pipeline_of(*arguments)
        pipeline.fronts_us.update(fronts_us)
        return pipeline

    with (
        patch.object(preaggregation, "LEAST_ROWS", 1),
        patch.object(preaggregation, "LEAST_RATIO", 1),
        patch.object(WindowPreaggregation, "split", counting),
        patch("flow.engine.local.pipeline_of", with_fronts),
    ):
        yield left


def outputs_of(seed: int, fronts_us: dict[str, int]) -> list[Any]:
    """Return what a random flow emits for random epochs, in order; advance a front beside them."""
    random_ = random.Random(seed)
    front_us, at_us = -NEVER, START_US
    with TestDriver(random_flow(random_), now=from_us(START_US)) as driver:
        for _ in range(random_.randint(1, 4)):
            rows = random_rows(random_, at_us)
            fronts_us["w"] = front_us
            driver.send("in", rows)
            at_us = max(at_us, pc.max(rows["ts"]).value)
            front_us = max(front_us, at_us)
            if random_.random() < 0.5:
                driver.advance("20s")
                front_us += 20 * SECOND_US
        driver.end()
        counted = driver.stats.counts["w", "in"]
        return [*(driver.received(name) for name in OUTPUTS), counted]


def test_results_late_values_and_watermarks_are_those_of_single_records() -> None:
    fronts_us: dict[str, int] = {}
    with preaggregating(fronts_us) as left:
        found = [outputs_of(seed, fronts_us) for seed in range(80)]
    assert len(left) > 80
    assert sum(left) > 100
    expected = [outputs_of(seed, {}) for seed in range(80)]
    assert list(map(repr, found)) == list(map(repr, expected))
    assert any(late for _, late, *_ in found)


@pytest.mark.parametrize(
    ("clock", "windower", "aggregator"),
    [
        (win.EventClock("ts", "1s", max_ahead="1h"), win.TumblingWindower("1m"), win.Count()),
        (win.EventClock("ts", "1s"), win.TumblingWindower("1m", grace="0s"), win.Count()),
        (win.EventClock("ts", "1s"), win.SlidingWindower("1m", "2m"), win.Count()),
        (win.EventClock("ts", "1s"), win.SessionWindower("1m"), win.Count()),
        (win.EventClock("ts", "1s"), win.TumblingWindower("1m"), win.First("x")),
        (win.EventClock("ts", "1s"), win.TumblingWindower("1m"), win.Max("x")),
    ],
)
def test_steps_whose_results_may_change_take_single_records(
    clock: Any, windower: Any, aggregator: Any
) -> None:
    flow = Dataflow("f")
    keyed = op.key_on("keyed", op.input("in", flow, TestingSource([])), "key")
    out = win.aggregate_window("w", keyed, clock, windower, a=aggregator)
    op.output("out", out.down, TestingSink([]))
    lowering = compile_flow(flow).lowered["w"]
    assert not isinstance(lowering, OverColumns) or lowering.preaggregation is None


def test_records_of_all_keys_are_timed_by_their_source(tmp_path: Path) -> None:
    write_files(tmp_path)
    flow = Dataflow("f")
    keyed = op.key_on("keyed", op.input("in", flow, ParquetSource(str(tmp_path))), "key")
    clock: Any = win.EventClock("ts", "10s")
    out = win.aggregate_window_all("w", keyed, clock, win.TumblingWindower("1m"), n=win.Count())
    op.output("out", out.down, TestingSink([]))
    timed_by = compile_flow(flow).timed_by
    assert timed_by == {"w.partial": ("in", TimeColumn("ts", 10 * SECOND_US))}


def write_files(folder: Path) -> None:
    """Write six files of 6,000 records of seven keys, of which some are late by up to a minute."""
    numbers = np.random.default_rng(7)
    for file in range(6):
        times_us = START_US + (np.arange(6000) + file * 6000) * 20_000
        times_us -= numbers.integers(0, 5 * SECOND_US, 6000)
        is_late = numbers.random(6000) < 0.001
        is_late[0] = True  # Only the records before the file show that.
        times_us -= np.where(is_late, 60 * SECOND_US, 0)
        columns = {
            "key": pa.array([f"key {key}" for key in numbers.integers(0, 7, 6000)]),
            "ts": pa.array(times_us, pa.timestamp("us", "UTC")),
            "x": pa.array(numbers.integers(0, 400, 6000) / 4),
        }
        pq.write_table(pa.table(columns), folder / f"{file}.parquet", row_group_size=2000)


def batch_of(plan: Plan) -> tuple[list[str], int]:
    """Return the outputs of a batch of one shard, as text, and its packets with partial rows."""
    control = Control(Moment(START_US), end_of_input=True)
    with planners_of(plan, plan.inputs, 2) as planners:
        planned = batch_plan(plan, plan_everything(planners), control)
    state, slices = live_states(plan, "w"), planned.controls
    packets = [[*read_split(plan, 1, one, slices[0])] for one in planned.readings]
    assert len(slices) == len(packets) == 3
    made: list[Packet] = []
    for at, (of_slice, read) in enumerate(zip(slices, packets, strict=True)):
        made += run_level(plan, 1, 1, 0, read, lambda _: state, at, of_slice)
    made += run_level(plan, 1, 1, 0, [], lambda _: state, len(slices), planned.last)
    out = [
        repr(item)
        for edge in plan.outputs
        for chunk in sorted_chunks([packet for packet in made if packet.dest == edge.dest])
        for item in as_items(chunk).items
    ]
    return sorted(out), sum(has_partials(packet) for read in packets for packet in read)


@pytest.mark.parametrize("scope", ["key", "stream"])
def test_a_parquet_file_tells_which_records_are_on_time(tmp_path: Path, scope: Any) -> None:
    write_files(tmp_path)
    source = ParquetSource(str(tmp_path), rows_per_epoch=15_000)
    clock: Any = win.EventClock("ts", "10s", scope=scope)
    flow = window_flow(source, clock, win.TumblingWindower("1m"))
    with patch("flow.engine.steps.reading.FLUSH_ITEMS", 1):
        found, packets = batch_of(compile_flow(flow))
    assert packets
    with patch.object(preaggregation, "LEAST_ROWS", 1 << 40):
        expected, packets = batch_of(compile_flow(flow))
    assert not packets
    assert found == expected
    assert any("LateValue" in one for one in found)


def front(us: int, wait_us: int = 0) -> Front:
    return Front("in", "ts", wait_us, us)


TIMED_BY = {"w": ("in", TimeColumn("ts", 0))}


def test_a_front_is_the_greatest_timestamp_advanced_by_time_that_has_passed() -> None:
    before = Control(Moment(100), fronts={"w": front(50)})
    read = [("in", Split(None, peak_us=40)), ("in", Split(None, peak_us=70))]
    assert list(fronts_along(before.fronts, read)) == [{"w": 50}, {"w": 50}, {"w": 70}]
    assert fronts_after(TIMED_BY, before, read, Moment(130)) == {"w": front(100)}
    start = Control(Moment(130), fronts=first_fronts(TIMED_BY))
    assert fronts_after(TIMED_BY, start, (), Moment(130)) == first_fronts(TIMED_BY)


def test_a_front_is_unknown_after_a_split_without_a_peak_and_after_a_change_of_the_wait() -> None:
    before = Control(Moment(100), fronts={"w": front(50), "other": front(50, wait_us=9)})
    read = [("elsewhere", Split(None)), ("in", Split(None)), ("in", Split(None, peak_us=70))]
    assert list(fronts_along(before.fronts, read))[-1] == {}
    assert fronts_after(TIMED_BY, before, read, Moment(130)) == {}
    assert fronts_after({"w": ("in", TimeColumn("ts", 8))}, before, (), Moment(130)) == {}
    assert fronts_after(TIMED_BY, Control(Moment(100)), (), Moment(130)) == {}


def endless_flow(wait: Any = timedelta.max) -> Dataflow:
    clock: Any = win.EventClock("ts", wait)
    return window_flow(TestingSource([]), clock, win.TumblingWindower("1m"))


def test_a_front_of_an_endless_wait_is_known_until_the_wait_changes() -> None:
    finite, endless = (compile_flow(endless_flow(wait)).timed_by for wait in ("1s", timedelta.max))
    assert endless == {"w": ("", TimeColumn("ts", NEVER))}
    start = Control(Moment(100), fronts=first_fronts(endless))
    assert list(fronts_after(endless, start, [("in", Split(None))], Moment(130))) == ["w"]
    before = Control(Moment(100), fronts=first_fronts(finite))
    assert fronts_after(endless, before, (), Moment(130)) == {}


@pytest.mark.parametrize(("fronts_us", "left_out"), [({"w": -NEVER}, [0]), ({}, [])])
def test_records_may_be_late_by_a_wait_before_an_endless_one(
    fronts_us: dict[str, int], left_out: list[int]
) -> None:
    with preaggregating(fronts_us) as left, TestDriver(endless_flow()) as driver:
        driver.send("in", random_rows(random.Random(1), START_US))
    assert left == left_out


def test_records_may_be_late_for_the_state_that_a_checkpoint_is_seeded_with() -> None:
    def of_first_epoch(origin: Origin | None) -> list[str]:
        planner = TestingSource([1]).planner(MemoryLog(), 1)
        feed = feed_of({"in": planner}, Clock(START_US), origin=origin)
        feed.slices.plan = replace(feed.slices.plan, timed_by=TIMED_BY)
        control = feed.next(EpochOffset()).control
        return [] if control is None else [*control.fronts]

    assert of_first_epoch(None) == ["w"]
    assert of_first_epoch(Origin(EpochOffset(), None, "seed-1")) == []


def test_fronts_are_logged_with_the_epoch() -> None:
    control = Control(Moment(100), fronts={"w": front(50)})
    assert Control.decode(control.encode()) == control


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_the_peak_of_a_split_is_the_greatest_of_its_row_groups(tmp_path: Path, unit: str) -> None:
    times = [datetime(2024, 1, 1, 0, 0, second, tzinfo=UTC) for second in (3, 9, 5, 4)]
    table = pa.table({"ts": pa.array(times, pa.timestamp(unit, "UTC"))})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    source = ParquetSource(str(tmp_path), rows_per_epoch=2).timed_by("ts")
    planner = source.planner(MemoryLog(), 1)
    first = planner.next(None)
    assert first is not None
    second = planner.next(first.end)
    assert second is not None
    peaks = [split.peak_us for one in (first, second) for split in one.splits]
    assert peaks == [pa.scalar(at, pa.timestamp("us", "UTC")).value for at in (times[1], times[2])]


@pytest.mark.parametrize(("us", "zone"), [(0, None), (1 << 60, "UTC")])
def test_a_time_without_a_zone_or_out_of_range_has_no_peak(
    tmp_path: Path, us: int, zone: str | None
) -> None:
    table = pa.table({"ts": pa.array([us], pa.timestamp("us", zone))})
    pq.write_table(table, tmp_path / "a.parquet")
    planner = ParquetSource(str(tmp_path)).timed_by("ts").planner(MemoryLog(), 1)
    planned = planner.next(None)
    assert planned is not None
    assert [split.peak_us for split in planned.splits] == [None]


class ShiftedSource(ParquetSource):
    """A user's source, which may read other timestamps than the footers of its files have."""


def test_a_subclass_of_a_source_has_no_peak(tmp_path: Path) -> None:
    write_files(tmp_path)
    planned = ShiftedSource(str(tmp_path)).timed_by("ts").planner(MemoryLog(), 1).next(None)
    assert planned is not None
    assert {split.peak_us for split in planned.splits} == {None}
