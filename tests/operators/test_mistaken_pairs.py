"""Functions that take a pair for a value, or the reverse: the error names the fitting operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas
import pytest

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, StepError, Stream
from flow.connectors.items import from_items
from flow.errors import FlowTypeError
from flow.testing import TestDriver, TestingSink, TestingSource, run_once

PAIRS = [("a", {"n": 1, "m": 2, "at": 5})]
RECORDS = [{"n": 1, "m": 2, "at": 5}]
CLOCK, HOURS = win.EventClock("at", "0s"), win.TumblingWindower("1h")

OF_PAIRS = (
    "; these are (key, value) pairs: op.map_value, op.filter_value and op.flat_map_value give a "
    "function the value"
)
OF_WINDOWS = (
    "; these are results of windows, (key, (WindowMetadata, value)): op.map_window gives a "
    "function the three parts, and op.records makes records of them"
)
OF_VALUES = "; this is the value of a pair, without its key: op.map gives a function (key, value)"
WITHOUT_KEY = "; these are items without a key: op.key_on makes (key, value) pairs of them"


def two(pair: Any) -> None:
    _key, _value = pair


def three(result: Any) -> None:
    _key, _window, _value = result


async def field_of(item: Any) -> Any:
    return item["n"]


def sums(s: Stream[Any], clock: win.EventClock[Any] = CLOCK, field: Any = "n") -> Stream[Any]:
    return win.aggregate_window("sums", s, clock, HOURS, n=win.Sum(field)).down


def of_windows(build: Callable[[Stream[Any]], Stream[Any]]) -> Callable[[Stream[Any]], Stream[Any]]:
    return lambda s: build(sums(s))


MISTAKES: dict[str, tuple[list[Any], Callable[[Stream[Any]], Stream[Any]], str]] = {
    "map": (PAIRS, lambda s: op.map("step", s, lambda row: row["n"]), OF_PAIRS),
    "map by attribute": (PAIRS, lambda s: op.map("step", s, lambda row: row.n), OF_PAIRS),
    "map with arithmetic": ([("a", 1)], lambda s: op.map("step", s, lambda n: n + 1), OF_PAIRS),
    "map of two": (PAIRS, lambda s: op.map("step", s, lambda key, value: value), OF_PAIRS),
    "filter": (PAIRS, lambda s: op.filter("step", s, lambda row: row["n"] > 1), OF_PAIRS),
    "flat_map": (PAIRS, lambda s: op.flat_map("step", s, lambda row: row["n"]), OF_PAIRS),
    "key_on": (PAIRS, lambda s: op.key_on("step", s, "n"), OF_PAIRS),
    "map_async": (
        PAIRS,
        lambda s: op.map_async("step", s, field_of, retry=op.Retry(1)),
        OF_PAIRS,
    ),
    "map of a window": (
        PAIRS,
        of_windows(lambda s: op.map("step", s, lambda row: row["n"])),
        OF_WINDOWS,
    ),
    "map of three": (PAIRS, of_windows(lambda s: op.map("step", s, three)), OF_WINDOWS),
    "map_value of a window": (
        PAIRS,
        of_windows(lambda s: op.map_value("step", s, lambda row: row["n"])),
        OF_WINDOWS,
    ),
    "key_on of a window": (PAIRS, of_windows(lambda s: op.key_on("step", s, "n")), OF_WINDOWS),
    "clock of a window": (
        PAIRS,
        of_windows(lambda s: win.collect_window("step", s, CLOCK, HOURS).down),
        OF_WINDOWS,
    ),
    "map_value": (PAIRS, lambda s: op.map_value("step", s, lambda kv: kv[1]["n"]), OF_VALUES),
    "map_value of two": (PAIRS, lambda s: op.map_value("step", s, lambda k, v: v), OF_VALUES),
    "unpacking a record": (PAIRS, lambda s: op.map_value("step", s, two), OF_VALUES),
    "unpacking a number": ([("a", 1)], lambda s: op.map_value("step", s, two), OF_VALUES),
    "part of a number": (
        [("a", 1)],
        lambda s: op.map_value("step", s, lambda kv: kv[1]),
        OF_VALUES,
    ),
    "stateful_map": (
        PAIRS,
        lambda s: op.stateful_map("step", s, lambda _, kv: (None, kv[1])),
        OF_VALUES,
    ),
    "clock": (PAIRS, lambda s: sums(s, win.EventClock(lambda kv: kv[1]["at"], "0s")), OF_VALUES),
    "aggregate": (PAIRS, lambda s: sums(s, field=lambda kv: kv[1]["n"]), OF_VALUES),
    "map without keys": (RECORDS, lambda s: op.map("step", s, lambda kv: kv[1]), WITHOUT_KEY),
    "unpacking without keys": (RECORDS, lambda s: op.map("step", s, two), WITHOUT_KEY),
}


@pytest.mark.parametrize(("items", "build", "advice"), MISTAKES.values(), ids=MISTAKES)
def test_the_error_says_what_the_function_gets(items: Any, build: Any, advice: str) -> None:
    with pytest.raises(StepError) as error:
        run_once(items, build)
    assert error.value.problem.endswith(advice)
    assert error.value.problem.count("; th") == 1


def inner(_: Any) -> Any:
    return two(), 1 / 0  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("items", "function"),
    [
        ([("k", "no number")], lambda pair: int(pair[1])),
        ([("k", {})], lambda pair: pair[1]["missing"]),
        (["a,b,c"], lambda line: two(line.split(","))),
        ([{"n": 0}], lambda row: 1 / row["n"]),
        ([("k", 1)], inner),
    ],
)
def test_other_errors_have_no_such_advice(items: Any, function: Any) -> None:
    with pytest.raises(StepError) as error:
        run_once(items, lambda s: op.map("step", s, function))
    assert "these are" not in error.value.problem


@pytest.mark.parametrize("item", [{"n": 1}, "text", b"text", 5])
def test_an_item_in_the_place_of_a_list_is_refused(item: Any) -> None:
    flow = Dataflow("one")
    op.output("out", op.input("in", flow, TestingSource([])), TestingSink([]))
    kind = f"got {type(item).__name__} {item!r}"
    with TestDriver(flow) as driver:
        problem = "TestDriver: what input 'in' reads must be a list of items, also for one item"
        with pytest.raises(FlowTypeError, match=rf"{problem}: \[item\], {kind}"):
            driver.send("in", item)
        driver.send("in", [item])
        assert driver.take("out") == [item]
    with pytest.raises(FlowTypeError, match=f"from_items: items must be a list of items, .*{kind}"):
        from_items(item)


def test_a_data_frame_in_the_place_of_a_list_is_refused() -> None:
    frame = pandas.DataFrame({"n": [1]})  # Iterating over it gives the name of its column.
    with pytest.raises(FlowTypeError, match=r"list of items: frame.to_dict\('records'\)"):
        run_once(frame, lambda s: s)
