"""Emitted items that are their key's state, which later epochs do not change."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from typing_extensions import override

import flow.operators as op
import flow_windowing as win
from flow import Stream
from flow.instants import Moment
from flow.keyed.logic import KEEP, Keep, StatefulLogic, detach, detach_items
from tests.support.one_stream import driver

Build = Callable[[Stream[Any]], Stream[Any]]

CLOCK, DAY = win.EventClock(lambda n: n, "1h"), win.TumblingWindower("1d")


def gathered(seen: list[int] | None, n: int) -> tuple[list[int], list[int]]:
    seen = seen or []
    seen.append(n)
    return seen, seen


def gathered_in_tuple(seen: list[int] | None, n: int) -> tuple[list[int], tuple[int, list[int]]]:
    seen, _ = gathered(seen, n)
    return seen, (n, seen)


def gathered_in_dict(seen: list[int] | None, n: int) -> tuple[list[int], dict[str, Any]]:
    seen, _ = gathered(seen, n)
    return seen, {"n": n, "seen": {"all": [seen]}}


def part_of_the_state(
    state: dict[str, list[int]] | None, n: int
) -> tuple[dict[str, list[int]], list[int]]:
    state = state or {"seen": []}
    state["seen"].append(n)
    return state, state["seen"]


def recent(
    state: dict[str, deque[int]] | None, n: int
) -> tuple[dict[str, deque[int]], dict[str, deque[int]]]:
    state = state or {"recent": deque(maxlen=2)}
    state["recent"].append(n)
    return state, {"recent": state["recent"]}


def gathered_twice(seen: list[int] | None, n: int) -> tuple[list[int], list[list[int]]]:
    seen, _ = gathered(seen, n)
    return seen, [seen, seen]


def added(seen: list[int], n: int) -> list[int]:
    seen.append(n)
    return seen


class Gathering(StatefulLogic[int, Any, list[int]]):
    def __init__(self, state: list[int] | None) -> None:
        self.seen = state or []

    @override
    def on_item(self, value: int, moment: Moment) -> tuple[Iterable[Any], Keep]:
        self.seen.append(value)
        return [self.seen], KEEP

    @override
    def snapshot(self) -> list[int]:
        return list(self.seen)


class Yielding(Gathering):
    """Changes what it has emitted in the same call."""

    @override
    def on_item(self, value: int, moment: Moment) -> tuple[Iterable[Any], Keep]:
        return self._emitted(value), KEEP

    def _emitted(self, value: int) -> Iterable[Any]:
        self.seen.append(value)
        yield self.seen
        self.seen.append(-value)


class Listed(win.Aggregator[int, list[int], list[int]]):
    """An aggregator of one's own whose figure is its state."""

    @override
    def initialize(self) -> list[int]:
        return []

    @override
    def add(self, state: list[int], value: int) -> list[int]:
        state.append(value)
        return state

    @override
    def merge(self, state: list[int], other: list[int]) -> list[int]:
        return [*state, *other]

    @override
    def result(self, state: list[int]) -> list[int]:
        return state


BUILDS: dict[str, Build] = {
    "stateful_map": lambda s: op.stateful_map("step", s, gathered),
    "stateful_map in a tuple": lambda s: op.stateful_map("step", s, gathered_in_tuple),
    "stateful_map in a dict": lambda s: op.stateful_map("step", s, gathered_in_dict),
    "part of the state": lambda s: op.stateful_map("step", s, part_of_the_state),
    "deque in the state": lambda s: op.stateful_map("step", s, recent),
    "stateful_flat_map": lambda s: op.stateful_flat_map("step", s, gathered_twice),
    "stateful": lambda s: op.stateful("step", s, Gathering),
    "stateful that yields": lambda s: op.stateful("step", s, Yielding),
    "fold_window": lambda s: (
        win.fold_window("step", s, CLOCK, DAY, list, added, ordered=False, emit="update").down
    ),
    "aggregate_window": lambda s: (
        win.aggregate_window(
            "step", s, CLOCK, DAY, each=Listed(), ordered=False, emit="update"
        ).down
    ),
}


@pytest.mark.parametrize("name", BUILDS)
def test_an_item_that_is_the_state_is_what_it_was_when_it_was_emitted(name: str) -> None:
    def received(*epochs: list[tuple[str, int]]) -> list[Any]:
        with driver(BUILDS[name]) as t:
            for items in epochs:
                t.send("in", items)
            t.end()
            return t.received("out")

    items = [("k", 1), ("k", 2), ("k", 3)]
    together, apart = received(items), received(*([item] for item in items))
    assert together == apart
    assert len({str(item) for item in together}) > 1


def test_other_items_are_not_copied() -> None:
    item = object()
    assert detach_items(Gathering(None), [item])[0] is item
    assert detach((item,), [item]) == (item,)
