"""Stream progress of a step on Spark: the same as in process, epoch by epoch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

import flow.operators as op
from flow import Dataflow, run
from flow.engine.epoch.context import Control
from flow.engine.local import LocalEngine, Part
from flow.instants import Moment
from flow.testing import TestingSink, TestingSource
from tests.engine.progress.test_stream_progress import by_key, travel
from tests.support.epochs import EpochsSource, SourceEpoch
from tests.support.logics import EpochSize, Waypoint


def journeys(source: Any, outputs: dict[str, list[Any]]) -> Dataflow:
    """Travellers of what was read, of what level 1 made of it, and of both; the sizes of epochs."""
    flow = Dataflow("journeys")
    stream = op.input("in", flow, source)
    first = travel("first", stream)
    plain = op.map("plain", first, lambda pair: (f"{pair[0]}+", pair[1][0]))
    moving = op.filter_value("moving", plain, lambda value: isinstance(value, int | Waypoint))
    second = travel("second", moving)
    both = travel("both", stream, moving)
    sizes = op.stateful("sizes", stream, EpochSize)
    for name, up in {"first": first, "second": second, "both": both, "sizes": sizes}.items():
        op.output(f"to {name}", up, TestingSink(outputs.setdefault(name, [])))
    return flow


JOURNEY = (
    SourceEpoch(
        (
            Part([("a", 3), ("b", Waypoint(12)), ("a", 9)], partition=0),
            Part([("c", 2), ("a", 5), ("c", 7), ("b", 4)], partition=1),
        )
    ),
    SourceEpoch((Part([("a", 14), ("c", 11)], partition=0),)),
    SourceEpoch((Part([("d", Waypoint(20)), ("c", 13)], partition=1), Part([("a", 6)], 2))),
    SourceEpoch(()),
    SourceEpoch((Part([("a", 30)], 0), Part([("a", 25)], 1), Part([("c", 26)], 2))),
)


def in_process(epochs: Sequence[SourceEpoch]) -> dict[str, dict[str, list[Any]]]:
    engine = LocalEngine(journeys(TestingSource([]), {}), shards=3)
    outputs: dict[str, list[Any]] = defaultdict(list)
    for number, epoch in enumerate([*epochs, SourceEpoch()]):
        control = Control(Moment(0), end_of_input=number == len(epochs))
        for name, items in engine.epoch({"in": epoch.parts}, control).outputs.items():
            outputs[name.removeprefix("to ")] += items
    return {name: by_key(items) for name, items in outputs.items()}


@pytest.mark.extended
@pytest.mark.spark
@pytest.mark.parametrize("engine", ["batch", "streaming"])
def test_stream_progress_on_spark_equals_that_in_process(engine: Any, spark: SparkSession) -> None:
    outputs: dict[str, list[Any]] = {}
    flow = journeys(EpochsSource(JOURNEY), outputs)
    run(flow, spark=spark, engine=engine, shards=3, partitions=2, system_time=0)
    assert {name: by_key(items) for name, items in outputs.items()} == in_process(JOURNEY)
