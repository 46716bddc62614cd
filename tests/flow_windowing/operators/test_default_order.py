"""The default of `ordered`: true where the result may depend on the order of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, FlowBuildError
from flow.testing import TestDriver, TestingSink, TestingSource, run_once

SECONDS = win.EventClock(lambda second: second, "1m")
HOUR = win.TumblingWindower("1h")
ITEMS = [("k", 3), ("k", 1), ("k", 2)]


class Listing(win.WindowLogic[int, list[int], list[int]]):
    def __init__(self, state: list[int] | None) -> None:
        self.values = state or []

    def on_value(self, value: int) -> list[list[int]]:
        self.values.append(value)
        return []

    def on_close(self) -> list[list[int]]:
        return [self.values]

    def snapshot(self) -> list[int]:
        return list(self.values)


class Joined(win.Aggregator[int, str, str]):
    """The values in the order of entering, as digits: an aggregator that says it needs an order."""

    @property
    def depends_on_order(self) -> bool:
        return True

    def initialize(self) -> str:
        return ""

    def add(self, state: str, value: int) -> str:
        return f"{state}{value}"

    def merge(self, state: str, other: str) -> str:
        return state + other

    def result(self, state: str) -> str:
        return state


def aggregated(**aggregates: Any) -> Callable[[Any], Any]:
    return lambda up: win.aggregate_window("w", up, SECONDS, HOUR, **aggregates)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (lambda up: win.window("w", up, SECONDS, HOUR, Listing), [1, 2, 3]),
        (lambda up: win.collect_window("w", up, SECONDS, HOUR), [1, 2, 3]),
        (lambda up: win.reduce_window("w", up, SECONDS, HOUR, lambda a, b: 10 * a + b), 123),
        (
            lambda up: win.fold_window("w", up, SECONDS, HOUR, list, lambda s, v: [*s, v]),
            [1, 2, 3],
        ),
        (aggregated(all=win.Collect()), {"all": [1, 2, 3]}),
        (aggregated(n=win.Count(), all=win.CollectUnique()), {"n": 3, "all": [1, 2, 3]}),
        (aggregated(text=Joined()), {"text": "123"}),
        (lambda up: win.join_window("w", up, up, clock=SECONDS, windower=HOUR), (3, 3)),
    ],
    ids=["window", "collect", "reduce", "fold", "Collect", "CollectUnique", "custom", "join"],
)
def test_values_enter_in_timestamp_order_where_the_result_depends_on_it(
    operator: Callable[[Any], Any], expected: Any
) -> None:
    [(_, (_, value))] = run_once(ITEMS, lambda stream: operator(stream).down)
    assert value == expected


def test_values_enter_at_once_where_the_result_is_the_same_in_any_order() -> None:
    graph = Dataflow("sums")
    up = op.input("in", graph, TestingSource([]))
    sums = win.aggregate_window(
        "w", up, SECONDS, HOUR, emit="update", total=win.Sum(), first=win.First()
    )
    op.output("out", sums.down, TestingSink([]))
    driver = TestDriver(graph)
    driver.send("in", ITEMS)
    assert [value["total"] for _, (_, value) in driver.take("out")] == [3, 4, 6]


@pytest.mark.parametrize("ordered", [0, 1, "yes"])
def test_ordered_is_true_false_or_left_out(ordered: Any) -> None:
    message = f"^step 'w': ordered must be True or False, got {type(ordered).__name__} {ordered!r}$"
    for add in (
        lambda up: win.collect_window("w", up, SECONDS, HOUR, ordered=ordered),
        lambda up: win.join_window("w", up, up, clock=SECONDS, windower=HOUR, ordered=ordered),
    ):
        with pytest.raises(FlowBuildError, match=message):
            run_once(ITEMS, lambda stream, add=add: add(stream).down)  # type: ignore[misc]
