"""User functions that raise: every exception ends the flow and names step, key and item."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any, NoReturn

import pytest
from pyspark.sql import SparkSession
from typing_extensions import override

import flow.operators as op
import flow_windowing as win
from flow import Dataflow, StepError, Stream, run
from flow.connectors.source import Split
from flow.instants import Moment
from flow.keyed.logic import Keep, StatefulLogic
from flow.testing import TestDriver, TestingSink, TestingSource, run_once


class MuteError(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no words")


class OutsideError(BaseException):
    """An exception that is no `Exception`, as a cancellation and groups of exceptions are."""


RAISED: dict[str, Callable[[], BaseException]] = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "MuteError": MuteError,
    "OutsideError": OutsideError,
}
ITEMS = [("a", 1), ("b", 2)]
CLOCK, DAY = win.EventClock(lambda n: n, "0s"), win.TumblingWindower("1d")


class Raising:
    """A function of any number of arguments that raises at 2."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, *values: Any) -> Any:
        if any(value in (2, ("b", 2)) for value in values):
            raise RAISED[self.kind]()
        return None if len(values) == 1 else (values[1], values[1])


class OwnLogic(StatefulLogic[Any, Any, Any]):
    def __init__(self, function: Raising) -> None:
        self.function = function

    @override
    def on_item(self, value: Any, moment: Moment) -> tuple[Iterable[Any], Keep]:
        return [self.function(value)], Keep.KEEP

    @override
    def snapshot(self) -> None:
        return None


class OwnWindow(win.WindowLogic[Any, Any, Any]):
    def __init__(self, function: Raising) -> None:
        self.function = function

    @override
    def on_value(self, value: Any) -> Iterable[Any]:
        return [self.function(value)]

    @override
    def on_close(self) -> Iterable[Any]:
        return ()

    @override
    def snapshot(self) -> None:
        return None


class OwnAggregator(win.Aggregator[Any, Any, Any]):
    def __init__(self, function: Raising) -> None:
        self.function = function

    @override
    def initialize(self) -> int:
        return 0

    @override
    def add(self, state: Any, value: Any) -> Any:
        self.function(value)
        return state

    @override
    def merge(self, state: Any, other: Any) -> NoReturn:
        raise NotImplementedError

    @override
    def result(self, state: Any) -> Any:
        return state


class Awaited:
    """An async function of a keyed item that calls a function of its value."""

    def __init__(self, function: Raising) -> None:
        self.function = function

    async def __call__(self, pair: tuple[str, int]) -> None:
        self.function(pair[1])


BUILDS: dict[str, Callable[[Stream[Any], Raising], Stream[Any]]] = {
    "map": lambda s, f: op.map("step", s, f),
    "filter": lambda s, f: op.filter("step", s, f),
    "flat_map": lambda s, f: op.flat_map("step", s, lambda item: f(item) or ()),
    "map_value": lambda s, f: op.map_value("step", s, f),
    "try_map": lambda s, f: op.try_map("step", s, f).ok,
    "map_async": lambda s, f: op.map_async("step", s, Awaited(f), retry=op.Retry(1)),
    "stateful_map": lambda s, f: op.stateful_map("step", s, f),
    "stateful": lambda s, f: op.stateful("step", s, lambda _: OwnLogic(f)),
    "fold_final": lambda s, f: op.fold_final("step", s, int, f),
    "clock": lambda s, f: (
        win.collect_window("step", s, win.EventClock(lambda n: f(n) or n, "0s"), DAY).down
    ),
    "window": lambda s, f: win.window("step", s, CLOCK, DAY, lambda _: OwnWindow(f)).down,
    "fold_window": lambda s, f: win.fold_window("step", s, CLOCK, DAY, int, f).down,
    "fold_window that updates": lambda s, f: (
        win.fold_window("step", s, CLOCK, DAY, int, f, emit="update").down
    ),
    "aggregate_window": lambda s, f: (
        win.aggregate_window("step", s, CLOCK, DAY, own=OwnAggregator(f)).down
    ),
}
CAUGHT = {("try_map", "MuteError")}
"""What the step is there to catch."""


def flow_of(build: str, kind: str) -> Dataflow:
    flow = Dataflow("raising")
    stream = op.input("in", flow, TestingSource(ITEMS))
    op.output("out", BUILDS[build](stream, Raising(kind)), TestingSink([]))
    return flow


def play(flow: Dataflow) -> None:
    with TestDriver(flow, now=0) as driver:
        driver.send("in", ITEMS)
        driver.end()


def check(error: StepError, build: str, kind: str) -> None:
    assert error.step_id == "step"
    assert kind in str(error)
    assert error.item in ("2", "('b', 2)"), build
    assert error.key == (None if build in ("map", "filter", "flat_map", "try_map") else "b")
    modules = [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)]
    libraries = {"flow", "flow_windowing", "pyspark", "py4j", "concurrent"}
    assert sum(module.partition(".")[0] in libraries for module in modules) <= 2, modules
    cause = "".join(traceback.format_exception(error.__cause__))
    assert "in __call__\n    raise RAISED[self.kind]()" in cause
    assert not re.search(r"flow(_windowing)?/\w+/.*\.py", cause)


def test_with_debug_messages_all_frames_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "flow")
    for build in ("map", "stateful_map"):  # In this process, and in a packet as from a worker.
        with pytest.raises(StepError) as caught:
            play(flow_of(build, "SystemExit"))
        assert "/flow/engine/local.py" in "".join(traceback.format_tb(caught.value.__traceback__))
        cause = "".join(traceback.format_exception(caught.value.__cause__))
        assert "in __call__" in cause
        assert "/flow/" in cause


CASES = [(build, kind) for build in BUILDS for kind in RAISED if (build, kind) not in CAUGHT]


@pytest.mark.parametrize(("build", "kind"), CASES)
def test_in_process(build: str, kind: str) -> None:
    with pytest.raises(StepError) as caught:
        play(flow_of(build, kind))
    check(caught.value, build, kind)
    assert type(caught.value.__cause__).__name__ in (kind, "RuntimeError")


class RaisingSource(TestingSource[Any]):
    """A source that raises as it is read."""

    @override
    def read(self, split: Split) -> Iterator[Any]:
        if split.what:
            raise OutsideError("no disk")
        yield []


def raising_rows() -> NoReturn:
    raise OutsideError("no disk")


@pytest.mark.parametrize("source", [RaisingSource([1]), raising_rows])
def test_a_source_that_raises_names_its_step(source: Any) -> None:
    def build(s: Stream[int]) -> Stream[int]:
        return op.map_with("with", s, op.lookup_table("rows", s.flow, source, str), lambda n, _: n)

    with pytest.raises(StepError, match=r"step 'rows': reading .*OutsideError: no disk"):
        run_once([1], build)


ON_SPARK = ["map", "stateful_map", "clock", "window"]
"""A step of each kind that workers run in a way of its own."""
BY_DEFAULT = {
    ("batch", "map", "SystemExit"),
    ("batch", "stateful_map", "KeyboardInterrupt"),
    ("batch", "clock", "GeneratorExit"),
    ("batch", "window", "MuteError"),
    ("batch", "map", "OutsideError"),
}
"""Each step and each exception once; an error in a query: `tests/test_engines.py`."""


def on_spark() -> list[Any]:
    """Return all combinations of an engine, a step and an exception, most marked `extended`."""
    return [
        pytest.param(*case, marks=[] if case in BY_DEFAULT else pytest.mark.extended)
        for case in product(("batch", "streaming"), ON_SPARK, RAISED)
    ]


@pytest.mark.spark
@pytest.mark.parametrize(("engine", "build", "kind"), on_spark())
def test_on_spark(spark: SparkSession, engine: Any, build: str, kind: str) -> None:
    with pytest.raises(StepError) as caught:
        run(flow_of(build, kind), spark=spark, engine=engine, shards=2, partitions=1)
    check(caught.value, build, kind)
