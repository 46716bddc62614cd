"""Items are values: the driver of tests names a step whose function changes what it was given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import flow.operators as op
import flow_windowing as win
from flow import StepError, Stream
from flow.testing import run_once
from tests.support.one_stream import driver

CLOCK, SLIDING = win.EventClock("at", "0s"), win.SlidingWindower("10s", "5s")
ITEMS = [{"at": at, "n": 1} for at in (1, 6, 30, 1)]


def changed(row: Any) -> Any:
    row["n"] += 1
    return row


def read(row: Any) -> Any:
    return row["n"]


def is_one(row: Any) -> bool:
    return changed(row)["n"] == 2


async def changed_later(row: Any) -> Any:
    return changed(row)


def summed(total: Any, row: Any) -> Any:
    total["n"] += row["n"]
    return total


def keyed(s: Stream[Any]) -> Any:
    return op.key_on("key", s, lambda _: "k")


BUILDS: dict[str, Callable[[Stream[Any]], Stream[Any]]] = {
    "before a sibling": lambda s: op.merge("m", op.map("x", s, changed), op.map("y", s, read)),
    "after a sibling": lambda s: op.merge("m", op.map("y", s, read), op.map("x", s, changed)),
    "for a replay": lambda s: op.map("x", s, changed),
    "filter": lambda s: op.filter("x", s, is_one),
    "key_on": lambda s: op.key_on("x", s, lambda row: str(changed(row))),
    "flat_map": lambda s: op.flat_map("x", s, lambda row: [changed(row)]),
    "inspect": lambda s: op.inspect("x", s, lambda _, row: changed(row)),
    "try_map": lambda s: op.try_map("x", s, changed).ok,
    "map_async": lambda s: op.map_async("x", s, changed_later),
    "a value": lambda s: op.map_value("x", keyed(s), changed),
    "state": lambda s: op.stateful_map("x", keyed(s), lambda _, row: (row, changed(row))),
    "windows that overlap": lambda s: win.reduce_window("x", keyed(s), CLOCK, SLIDING, summed).down,
    "windows over columns": lambda s: (
        (
            win.fold_window(
                "x", keyed(s), CLOCK, SLIDING, int, lambda n, row: n + read(changed(row))
            )
        ).down
    ),
    "results that overlap": lambda s: op.map_value(
        "x", win.collect_window("w", keyed(s), CLOCK, SLIDING).down, lambda one: changed(one[1][0])
    ),
    "a retained value": lambda s: op.map_value(
        "x", op.join("j", keyed(s), keyed_again(s)), lambda sides: changed(sides[0])
    ),
    "a late value": lambda s: op.map_value(
        "x",
        win.collect_window("w", keyed(s), CLOCK, SLIDING).late,
        lambda late: changed(late.value),
    ),
}


def keyed_again(s: Stream[Any]) -> Any:
    return op.key_on("again", s, lambda _: "k")


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS.keys())
def test_a_function_that_changes_an_item_is_an_error(build: Callable[..., Any]) -> None:
    with pytest.raises(StepError, match="step 'x': a function changed an item") as caught:
        run_once([dict(item) for item in ITEMS], build)
    assert "'n': 1" in (caught.value.item or "")


def test_each_step_has_items_of_its_own_of_records() -> None:
    with driver(BUILDS["before a sibling"]) as t:
        t.send("in", pa.RecordBatch.from_pylist(ITEMS[:1]))
        assert t.received("out") == [{"at": 1, "n": 2}, 1]


@dataclass
class Pickled:
    n: int
    times: ClassVar[list[int]] = []

    def __reduce__(self) -> Any:
        self.times.append(self.n)
        return Pickled, (self.n,)


def test_of_many_items_some_are_checked() -> None:
    run_once(list(map(Pickled, range(10_000))), lambda s: op.map("x", s, lambda item: item.n))
    assert len(Pickled.times) == 2 * 250


@dataclass
class Cached:
    n: int

    @cached_property
    def double(self) -> int:
        return 2 * self.n


@pytest.mark.parametrize(("item", "result"), [(Cached(2), 4), ([lambda: 1], 1)])
def test_items_that_cache_or_cannot_be_pickled_pass(item: Any, result: int) -> None:
    def use(item: Any) -> Any:
        return item.double if isinstance(item, Cached) else item.pop()()

    assert run_once([item], lambda s: op.map("x", s, use)) == [result]
