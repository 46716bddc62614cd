"""Lateness while catching up: values that arrive within the wait are never late.

Partitions of unequal density are read in epochs of random length, with limits and outages, while
what arrives meanwhile waits in its source. A machine that met each value the moment it arrived
would call none of them late, so neither may the flow.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow.operators as op
import flow_windowing as win
from flow import Dataflow
from flow.testing import Part, TestDriver, TestingSink, TestingSource, key_by_key
from tests.support.sampling import sampled

WAIT = 10.0
UNTIL = 100.0
LENGTH = 20.0


@dataclass
class World:
    """Partitions with the values that arrive in them: (arrival, key, timestamp), by arrival."""

    seed: int
    limit: int
    parts: list[list[tuple[float, str, float]]] = field(default_factory=list)

    @classmethod
    def of(cls, seed: int) -> World:
        r = random.Random(seed)
        world = cls(seed, r.choice([5, 50, 10_000]))
        for _ in range(r.choice([1, 2, 3, 5])):
            rate, at, part = 10 ** r.uniform(-1, 0.7), 0.0, []
            while (at := at + r.expovariate(rate)) < UNTIL:
                delay = r.uniform(0, WAIT) * (r.random() < 0.3)
                part.append((round(at, 3), f"key {r.randrange(4)}", round(at - delay, 3)))
            world.parts.append(part)
        return world

    def expected(self) -> Counter[tuple[str, int]]:
        """The number of values of each key and window."""
        return Counter((key, int(ts // LENGTH)) for part in self.parts for _, key, ts in part)


def flow_of(inputs: int, clock: win.EventClock[Any], level_between: bool) -> Dataflow:
    flow = Dataflow("world")
    streams = [op.input(f"in {n}", flow, TestingSource([])) for n in range(inputs)]
    merged = op.merge("merge", *streams) if inputs > 1 else streams[0]
    if level_between:
        merged = op.stateful_map("between", op.key_on("by", merged, "k"), lambda n, v: (n, v))
    else:
        merged = op.key_on("by", merged, "k")
    windows = win.TumblingWindower(length=f"{LENGTH}s")
    counted = win.aggregate_window("count", merged, clock, windows, n=win.Count())
    op.output("out", counted.down, TestingSink([]))
    op.output("late", counted.late, TestingSink([]))
    return flow


def epochs(world: World) -> Iterator[tuple[float, float, Any, set[int]]]:
    """Yield for each epoch the time before it, an outage, the parts read, and partitions behind."""
    r = random.Random(world.seed + 1)
    place, now = [0] * len(world.parts), 0.0
    while now <= UNTIL or any(p < len(q) for p, q in zip(place, world.parts, strict=True)):
        passes = round(r.choice([0.2, 2.0, 20.0]), 3)
        outage = 60.0 if r.random() < 0.03 else 0.0
        now = round(now + passes + outage, 3)
        arrived = [sum(at <= now for at, *_ in part) for part in world.parts]
        ends = [min(n, p + world.limit) for n, p in zip(arrived, place, strict=True)]
        reads = [part[p:e] for part, p, e in zip(world.parts, place, ends, strict=True)]
        behind = {n for n, (e, t) in enumerate(zip(ends, arrived, strict=True)) if e < t}
        place = ends
        yield passes, outage, reads, behind


def play(world: World, *, inputs: bool, columns: bool, scope: str = "key", between: bool = False):
    clock = win.EventClock("at", f"{WAIT}s", scope=scope)  # type: ignore[arg-type]
    count = len(world.parts) if inputs else 1
    driver = TestDriver(flow_of(count, clock, between), now=0)
    for passes, outage, reads, behind in epochs(world):
        if outage:
            driver.restart(after=f"{outage}s")
        rows = [[{"k": key, "at": ts} for _, key, ts in read] for read in reads]
        items = [pa.RecordBatch.from_pylist(one) if columns and one else one for one in rows]
        if inputs:
            sent = {f"in {n}": [Part(one)] for n, one in enumerate(items)}
            held: Any = [f"in {n}" for n in behind]
        else:
            sent = {"in 0": [Part(one, n) for n, one in enumerate(items)]}
            held = [("in 0", n) for n in behind]
        driver.send_parts(sent, after=f"{passes}s", behind=held)
    return driver


def totals(driver: TestDriver) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for key, (meta, figures) in driver.received("out"):
        assert (key, meta.window_id) not in found, "a window came twice"
        found[key, meta.window_id] = figures["n"]
    return found


@sampled(60, by_default=2)
@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.sampled_from(["key", "stream"]))
def test_values_on_time_are_not_late(seed: int, inputs: bool, columns: bool, scope: str) -> None:
    world = World.of(seed)
    driver = play(world, inputs=inputs, columns=columns, scope=scope)
    assert driver.received("late") == []
    driver.end()
    assert totals(driver) == world.expected()


@sampled(25, by_default=2)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_values_on_time_are_not_late_after_another_keyed_step(
    seed: int, inputs: bool, columns: bool
) -> None:
    world = World.of(seed)
    driver = play(world, inputs=inputs, columns=columns, between=True)
    assert driver.received("late") == []
    driver.end()
    assert totals(driver) == world.expected()


@sampled(25, by_default=2)
@given(st.integers(0, 10**6), st.booleans())
def test_columns_and_objects_agree_while_catching_up(seed: int, inputs: bool) -> None:
    world = World.of(seed)
    with key_by_key():
        alone = play(world, inputs=inputs, columns=False)
    together = play(world, inputs=inputs, columns=True)
    for name in ("out", "late"):
        assert sorted(map(repr, alone.received(name))) == sorted(map(repr, together.received(name)))


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize(
    "seeds", [range(1), pytest.param(range(1, 20), marks=pytest.mark.extended)], ids=str
)
def test_windows_of_silent_keys_close_after_the_backlog(columns: bool, seeds: range) -> None:
    for seed in seeds:
        world = World.of(seed)
        driver = play(world, inputs=False, columns=columns)
        driver.advance("60s")
        assert totals(driver) == world.expected(), seed
